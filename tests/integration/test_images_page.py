"""docs/images.md says what the images really are."""

import re
from typing import get_args

from megatron_eks.catalog import pins
from megatron_eks.catalog.images import TagStrategy, TestLevel
from megatron_eks.project import ROOT
from tests.assets.image_versions import IMAGE_VERSIONS

PAGE = (ROOT / "docs" / "images.md").read_text()


def rows(heading: str) -> dict[str, list[str]]:
    """Return the table under a heading: first cell to the others."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    return {re.sub(r"[`*]| \(default\)", "", cells[0]): cells[1:] for cells in found[2:]}


def test_versions_are_the_pins():
    """A pin that moves without the page would mislead."""
    table = rows("What is in it")
    megatron, fsdp = IMAGE_VERSIONS["megatron"], IMAGE_VERSIONS["fsdp"]
    for column, versions in enumerate((megatron, fsdp)):
        torch = versions["torch"].partition("+")[0]
        expected = f"{torch}, {versions['cuda']}, {versions['nccl']}"
        assert table["torch, CUDA, NCCL"][column] == expected
    assert table["Megatron core, Bridge, Transformer Engine"][0] == ", ".join(
        megatron[name] for name in ("megatron_core", "megatron_bridge", "transformer_engine")
    )
    assert table["EFA installer, with plugin and libfabric"][0] == ", ".join(
        megatron[name] for name in ("efa_installer", "aws_ofi_nccl", "libfabric")
    )
    locked = (ROOT / "assets" / "images" / "fsdp" / "requirements.txt").read_text()
    theirs = dict(re.findall(r"^(transformers|accelerate)==(\S+)", locked, re.MULTILINE))
    written = "{transformers}, with accelerate {accelerate}".format_map(theirs)
    assert table["transformers"] == [megatron["transformers"], written]
    assert "26.08.01" in pins.MEGATRON_BASE_IMAGE
    assert "26.08.01" in table["base"][0]
    assert "2.13-cu133" in pins.FSDP_BASE_IMAGE
    assert "2.13-cu133" in table["base"][1]


def test_levels_and_strategies_are_all_there():
    """Each value that the cluster file takes has its row."""
    assert tuple(rows("How it was tested")) == get_args(TestLevel)
    assert tuple(rows("Tags")) == get_args(TagStrategy)
