"""Draws points of two numbers each as a PNG, both axes logarithmic."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_eks.pixels import BLACK, COLOURS, GREY, LIGHT, SIZE, Canvas

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Point = tuple[float, float]

_MARGIN = 70
_THOUSAND = 1000


@dataclass(frozen=True)
class Axes:
    """The same range on both axes, and what they show."""

    low: float
    high: float
    across: str
    up: str

    def place(self, point: Point) -> tuple[int, int]:
        """Return the pixel of a point."""
        inside = SIZE - 2 * _MARGIN
        span = math.log(self.high / self.low)
        x, y = (math.log(value / self.low) / span * inside for value in point)
        return round(_MARGIN + x), round(SIZE - _MARGIN - y)


def scatter(axes: Axes, groups: "Mapping[str, Sequence[Point]]", off: float) -> bytes:
    """Return a PNG with a diagonal, lines that far off it, and a colour for each group."""
    canvas = Canvas()
    for tick in _ticks(axes):
        x, y = axes.place((tick, tick))
        canvas.line((x, _MARGIN), (x, SIZE - _MARGIN), LIGHT)
        canvas.line((_MARGIN, y), (SIZE - _MARGIN, y), LIGHT)
        label = f"{tick:g}" if tick < _THOUSAND else f"{tick / _THOUSAND:g}k"
        canvas.text(x - len(label) * 4, SIZE - _MARGIN + 10, label)
        canvas.text(_MARGIN - 10 - len(label) * 8, y - 5, label)
    for factor, colour in ((1.0, BLACK), (1 + off, GREY), (1 / (1 + off), GREY)):
        first = max(axes.low, axes.low / factor)
        last = min(axes.high, axes.high / factor)
        canvas.line(axes.place((first, first * factor)), axes.place((last, last * factor)), colour)
    for index, (name, points) in enumerate(groups.items()):
        colour = COLOURS[index % len(COLOURS)]
        for point in points:
            canvas.dot(*axes.place(point), colour, radius=3)
        canvas.dot(_MARGIN + 16, _MARGIN + 16 + index * 18, colour, radius=4)
        canvas.text(_MARGIN + 28, _MARGIN + 11 + index * 18, name)
    canvas.text(SIZE // 2 - len(axes.across) * 4, SIZE - 30, axes.across)
    canvas.text(10, 30, axes.up)
    return canvas.png()


def _ticks(axes: Axes) -> "Iterator[float]":
    for power in range(math.floor(math.log10(axes.low)), math.ceil(math.log10(axes.high)) + 1):
        for digit in (1, 2, 5):
            if axes.low <= digit * 10.0**power <= axes.high:
                yield digit * 10.0**power
