"""Draws points of two numbers each as a PNG, both axes logarithmic, with nothing but zlib."""

import math
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Colour = tuple[int, int, int]
Point = tuple[float, float]

COLOURS: tuple[Colour, ...] = (
    (31, 119, 180),
    (214, 39, 40),
    (44, 160, 44),
    (255, 127, 14),
    (148, 103, 189),
    (23, 190, 207),
    (140, 86, 75),
)
_BLACK, _GREY, _LIGHT = (0, 0, 0), (150, 150, 150), (225, 225, 225)

_SIZE, _MARGIN, _SCALE = 640, 70, 2
_THOUSAND = 1000
# Three bits a row, five rows: what axes and legends need.
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz/.%-+(), "
_ROWS = """
75557 26227 71747 71717 55711 74717 74757 71111 75757 75717 25755 65656 34443 65556 74647 74644
34553 55755 72227 11152 55655 44447 57755 65555 25552 65644 25573 65655 34216 72222 55557 55552
55775 55255 55222 71247 11244 00002 51245 00700 02720 12221 42224 00024 00000
"""
_GLYPHS = dict(zip(_LETTERS, _ROWS.split(), strict=True))


@dataclass(frozen=True)
class Axes:
    """The same range on both axes, and what they show."""

    low: float
    high: float
    across: str
    up: str

    def place(self, point: Point) -> tuple[int, int]:
        """Return the pixel of a point."""
        inside = _SIZE - 2 * _MARGIN
        span = math.log(self.high / self.low)
        x, y = (math.log(value / self.low) / span * inside for value in point)
        return round(_MARGIN + x), round(_SIZE - _MARGIN - y)


class _Canvas:
    """Pixels, from the top left corner."""

    def __init__(self) -> None:
        self.pixels = bytearray(b"\xff" * (_SIZE * _SIZE * 3))

    def dot(self, x: int, y: int, colour: Colour, radius: int = 0) -> None:
        for row in range(y - radius, y + radius + 1):
            for column in range(x - radius, x + radius + 1):
                near = (row - y) ** 2 + (column - x) ** 2 <= radius * (radius + 1)
                if near and 0 <= row < _SIZE and 0 <= column < _SIZE:
                    start = (row * _SIZE + column) * 3
                    self.pixels[start : start + 3] = bytes(colour)

    def line(self, start: tuple[int, int], end: tuple[int, int], colour: Colour) -> None:
        steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for step in range(steps + 1):
            x, y = (a + (b - a) * step / steps for a, b in zip(start, end, strict=True))
            self.dot(round(x), round(y), colour)

    def text(self, x: int, y: int, words: str, colour: Colour = _BLACK) -> None:
        for index, letter in enumerate(words.lower()):
            for row, bits in enumerate(_GLYPHS[letter]):
                for column in range(3):
                    if int(bits) >> (2 - column) & 1:
                        self._block(x + (index * 4 + column) * _SCALE, y + row * _SCALE, colour)

    def _block(self, x: int, y: int, colour: Colour) -> None:
        for row in range(_SCALE):
            for column in range(_SCALE):
                self.dot(x + column, y + row, colour)


def scatter(axes: Axes, groups: "Mapping[str, Sequence[Point]]", off: float) -> bytes:
    """Return a PNG with a diagonal, lines that far off it, and a colour for each group."""
    canvas = _Canvas()
    for tick in _ticks(axes):
        x, y = axes.place((tick, tick))
        canvas.line((x, _MARGIN), (x, _SIZE - _MARGIN), _LIGHT)
        canvas.line((_MARGIN, y), (_SIZE - _MARGIN, y), _LIGHT)
        label = f"{tick:g}" if tick < _THOUSAND else f"{tick / _THOUSAND:g}k"
        canvas.text(x - len(label) * 4, _SIZE - _MARGIN + 10, label)
        canvas.text(_MARGIN - 10 - len(label) * 8, y - 5, label)
    for factor, colour in ((1.0, _BLACK), (1 + off, _GREY), (1 / (1 + off), _GREY)):
        first = max(axes.low, axes.low / factor)
        last = min(axes.high, axes.high / factor)
        canvas.line(axes.place((first, first * factor)), axes.place((last, last * factor)), colour)
    for index, (name, points) in enumerate(groups.items()):
        colour = COLOURS[index % len(COLOURS)]
        for point in points:
            canvas.dot(*axes.place(point), colour, radius=3)
        canvas.dot(_MARGIN + 16, _MARGIN + 16 + index * 18, colour, radius=4)
        canvas.text(_MARGIN + 28, _MARGIN + 11 + index * 18, name)
    canvas.text(_SIZE // 2 - len(axes.across) * 4, _SIZE - 30, axes.across)
    canvas.text(10, 30, axes.up)
    return _png(canvas.pixels)


def _ticks(axes: Axes) -> "Iterator[float]":
    for power in range(math.floor(math.log10(axes.low)), math.ceil(math.log10(axes.high)) + 1):
        for digit in (1, 2, 5):
            if axes.low <= digit * 10.0**power <= axes.high:
                yield digit * 10.0**power


def _png(pixels: bytearray) -> bytes:
    """Encode rows of three bytes a pixel (PNG specification, third edition, section 5)."""
    rows = b"".join(
        b"\0" + pixels[start : start + _SIZE * 3] for start in range(0, len(pixels), _SIZE * 3)
    )
    header = struct.pack(">IIBBBBB", _SIZE, _SIZE, 8, 2, 0, 0, 0)
    parts: Iterable[tuple[bytes, bytes]] = (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
