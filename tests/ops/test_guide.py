"""The guide's tables are those of the catalogue."""

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.ops import guide as generator
from megatron_eks.ops.guide import GUIDE, guide


def test_the_committed_guide_is_fresh():
    """`make generate` would change nothing."""
    text = GUIDE.read_text()
    assert guide(text) == text


def test_tables_are_made_from_the_catalogue(monkeypatch):
    """A type that the catalogue loses is gone from both tables; the prose stays."""
    others = {name: each for name, each in INSTANCES.items() if name != "p4d.24xlarge"}
    monkeypatch.setattr(generator, "INSTANCES", others)
    text = GUIDE.read_text()
    without = [line for line in text.splitlines() if "p4d.24xlarge" not in line]
    assert guide(text).splitlines() == without


def test_a_layout_that_the_guide_names_is_the_smallest():
    """The default job runs tensor 4 on p4d; with 2 `meks validate` refuses it."""
    (row,) = [line for line in GUIDE.read_text().splitlines() if "| p4d.24xlarge | tensor" in line]
    assert row.split("|")[3].strip() == "tensor 4 8"
