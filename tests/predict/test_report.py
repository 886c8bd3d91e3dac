"""docs/predictions.md: its table and figures are what the present model predicts."""

import struct
import zlib

from benchmarks import report


def test_the_table_is_fresh():
    """`make generate` writes it again."""
    text = report.PAGE.read_text(encoding="utf-8")
    assert report.page(text) == text


def test_figures_are_fresh():
    """Pixel by pixel: versions of zlib pack the same pixels differently."""
    for name, drawn in report.figures().items():
        kept = (report.DOCS / "predictions" / name).read_bytes()
        assert kept[:8] == b"\x89PNG\r\n\x1a\n"
        assert _pixels(kept) == _pixels(drawn), name


def _pixels(png: bytes) -> bytes:
    """Return the one IDAT chunk of a figure, unpacked."""
    start = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[start - 4 : start])
    return zlib.decompress(png[start + 4 : start + 4 + length])
