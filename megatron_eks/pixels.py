"""Pictures as PNG files, with nothing but zlib: dots, lines, and small letters."""

import struct
import zlib
from collections.abc import Iterable

Colour = tuple[int, int, int]

COLOURS: tuple[Colour, ...] = (
    (31, 119, 180),
    (214, 39, 40),
    (44, 160, 44),
    (255, 127, 14),
    (148, 103, 189),
    (23, 190, 207),
    (140, 86, 75),
)
BLACK, GREY, LIGHT = (0, 0, 0), (150, 150, 150), (225, 225, 225)

SIZE = 640
"""Of a picture, both ways."""

_SCALE = 2
# Three bits a row, five rows: what axes and legends need.
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz/.%-+(), "
_ROWS = """
75557 26227 71747 71717 55711 74717 74757 71111 75757 75717 25755 65656 34443 65556 74647 74644
34553 55755 72227 11152 55655 44447 57755 65555 25552 65644 25573 65655 34216 72222 55557 55552
55775 55255 55222 71247 11244 00002 51245 00700 02720 12221 42224 00024 00000
"""
_GLYPHS = dict(zip(_LETTERS, _ROWS.split(), strict=True))


class Canvas:
    """Pixels, from the top left corner."""

    def __init__(self) -> None:
        self.pixels = bytearray(b"\xff" * (SIZE * SIZE * 3))

    def dot(self, x: int, y: int, colour: Colour, radius: int = 0) -> None:
        """Draw a filled circle."""
        for row in range(y - radius, y + radius + 1):
            for column in range(x - radius, x + radius + 1):
                near = (row - y) ** 2 + (column - x) ** 2 <= radius * (radius + 1)
                if near and 0 <= row < SIZE and 0 <= column < SIZE:
                    start = (row * SIZE + column) * 3
                    self.pixels[start : start + 3] = bytes(colour)

    def line(self, start: tuple[int, int], end: tuple[int, int], colour: Colour) -> None:
        """Draw a line between two pixels."""
        steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for step in range(steps + 1):
            x, y = (a + (b - a) * step / steps for a, b in zip(start, end, strict=True))
            self.dot(round(x), round(y), colour)

    def text(self, x: int, y: int, words: str, colour: Colour = BLACK) -> None:
        """Write words of the letters that there are, from their top left corner."""
        for index, letter in enumerate(words.lower()):
            for row, bits in enumerate(_GLYPHS[letter]):
                for column in range(3):
                    if int(bits) >> (2 - column) & 1:
                        self._block(x + (index * 4 + column) * _SCALE, y + row * _SCALE, colour)

    def _block(self, x: int, y: int, colour: Colour) -> None:
        for row in range(_SCALE):
            for column in range(_SCALE):
                self.dot(x + column, y + row, colour)

    def png(self) -> bytes:
        """Encode rows of three bytes a pixel (PNG specification, third edition, section 5)."""
        rows = b"".join(
            b"\0" + self.pixels[start : start + SIZE * 3]
            for start in range(0, len(self.pixels), SIZE * 3)
        )
        header = struct.pack(">IIBBBBB", SIZE, SIZE, 8, 2, 0, 0, 0)
        parts: Iterable[tuple[bytes, bytes]] = (
            (b"IHDR", header),
            (b"IDAT", zlib.compress(rows, 9)),
            (b"IEND", b""),
        )
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in parts
        )
