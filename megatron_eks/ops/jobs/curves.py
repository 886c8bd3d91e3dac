"""Loss and speed over steps: as a line of signs for a terminal, and as a picture for a page."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from megatron_eks.ops.html import Html, Part, tag

Points = Sequence[tuple[int, float]]
"""Steps in their order, each with a value; a value that is no number is a gap."""

# From an eighth of a block to a whole one.
BLOCKS = "".join(map(chr, range(0x2581, 0x2589)))
_COLUMNS, _MOST_POINTS = 28, 800
_WIDTH, _HEIGHT = 1000, 260
# A band that lies so many times further than the data would make a flat line of them.
_FAR = 5


def sparkline(values: Sequence[float]) -> str:
    """Draw values in one line; `!` stands where one is no number."""
    share = max(1.0, len(values) / _COLUMNS)
    columns = [
        values[int(place * share) : max(int(place * share) + 1, int((place + 1) * share))]
        for place in range(min(len(values), _COLUMNS))
    ]
    means = [sum(column) / len(column) for column in columns]
    known = [mean for mean in means if math.isfinite(mean)]
    low, high = min(known, default=0), max(known, default=0)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0
    return "".join(
        BLOCKS[round((mean - low) * scale)] if math.isfinite(mean) else "!" for mean in means
    )


@dataclass(frozen=True)
class Line:
    """One start's values."""

    points: Points
    counted_to: int
    """Later steps were done again, or lost."""


@dataclass(frozen=True)
class _Scale:
    """Where steps and values are in a picture."""

    first: int
    last: int
    low: float
    high: float

    def x(self, step: float) -> float:
        return min(1, max(0, (step - self.first) / (self.last - self.first or 1))) * _WIDTH

    def y(self, value: float) -> float:
        return min(1, max(0, (self.high - value) / (self.high - self.low))) * _HEIGHT


def draw(
    title: str,
    lines: Sequence[Line],
    marks: Sequence[tuple[int, str]] = (),
    *,
    band: tuple[float, float] | None = None,
    note: str = "",
) -> Html:
    """Return lines over the same steps as a picture; a sentence where there is nothing to draw.

    `marks` are steps at which a start ended, each with what stands there; `band`, what the plan
    predicts.
    """
    known = [each for line in lines for each in line.points if math.isfinite(each[1])]
    if len(known) < 2:  # noqa: PLR2004 -- a line has two ends
        return tag("p", f"{title}: fewer than two steps are known.")
    scale = _scale(known, band)
    levels = [part / 4 * _HEIGHT for part in (1, 2, 3)]
    ends = [round(scale.x(step), 1) for step, _ in marks]
    shown = tag(
        "svg",
        *_band(band, scale),
        *(tag("line", x1=0, x2=_WIDTH, y1=y, y2=y, class_="level") for y in levels),
        *(path for line in lines for path in _paths(line, scale)),
        *(tag("line", x1=x, x2=x, y1=0, y2=_HEIGHT, class_="mark") for x in ends),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title} over steps",
    )
    labels = (tag("b", words, style=f"left:{scale.x(step) / _WIDTH:.2%}") for step, words in marks)
    return tag(
        "figure",
        tag("figcaption", tag("strong", title), tag("small", note)),
        tag("div", _number(scale.high), class_="scale"),
        tag("div", shown, *labels, class_="plot"),
        tag("div", _number(scale.low), class_="scale"),
        tag(
            "div",
            tag("span", f"step {scale.first}"),
            tag("span", f"step {scale.last}"),
            class_="scale ends",
        ),
    )


def _scale(known: Points, band: tuple[float, float] | None) -> _Scale:
    steps, values = [step for step, _ in known], [value for _, value in known]
    low, high = min(values), max(values)
    if band and low / _FAR < band[0] and band[1] < high * _FAR:
        # With room around it, so that its edges are seen.
        low, high = min(low, band[0] * 0.9), max(high, band[1] * 1.1)
    if low == high:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    return _Scale(min(steps), max(steps), low, high)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 -- four digits


def _band(band: tuple[float, float] | None, scale: _Scale) -> Iterator[Part]:
    if band and band[1] > scale.low and band[0] < scale.high:
        top, bottom = scale.y(band[1]), scale.y(band[0])
        yield tag("rect", x=0, y=top, width=_WIDTH, height=max(1, bottom - top), class_="band")


def _paths(line: Line, scale: _Scale) -> Iterator[Part]:
    counted = [each for each in line.points if each[0] <= line.counted_to]
    # From the last one that counts, so that the line has no gap there.
    lost = [*counted[-1:], *line.points[len(counted) :]]
    for points, kind in ((counted, "line"), (lost if len(lost) > 1 else [], "line lost")):
        for is_number, whole in groupby(points, key=lambda each: math.isfinite(each[1])):
            if is_number:
                way = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in _fewer([*whole]))
                yield tag("polyline", points=way, class_=kind)


def _fewer(points: Points) -> Iterator[tuple[int, float]]:
    """Yield as many points as can be seen: of each few neighbours the lowest and the highest."""
    share = max(1, 2 * len(points) // _MOST_POINTS)
    if share == 1:
        yield from points
        return
    for begin in range(0, len(points), share):
        near = points[begin : begin + share]
        yield from sorted({min(near, key=itemgetter(1)), max(near, key=itemgetter(1))})
