"""docs/predictions.md: its tables and figures are what the present model predicts."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from benchmarks import report

DRAWN = report.figures()


def test_the_tables_are_fresh():
    """`make generate` writes them again."""
    text = report.PAGE.read_text(encoding="utf-8")
    assert report.page(text) == text


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_figure_is_fresh(name):
    """But for the edges of letters, which are not the same on every processor."""
    kept, drawn = (
        np.asarray(Image.open(BytesIO(data)).convert("L"), dtype=int)
        for data in ((report.DOCS / "predictions" / name).read_bytes(), DRAWN[name])
    )
    assert kept.shape == drawn.shape
    assert np.mean(abs(kept - drawn) > 64) < 0.0005
