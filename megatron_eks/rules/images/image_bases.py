"""Rules over the images that a Dockerfile builds on, and the EFA installer that it brings."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.image_stages import Instruction
from megatron_eks.rules.image_tags import missing_tag
from megatron_eks.rules.images.image_variables import assignments
from megatron_eks.rules.values import shown

_INSTALLER = re.compile(
    r"(?:aws-efa-installer-|EFA(?:_INSTALLER)?_VERSION=[\"']?v?)1\.(?P<minor>\d+)\."
)
_OLD_INSTALLER = 30
_REFERENCE = re.compile(r"\$\{?(\w+)\}?")
# What stands there for a template engine to fill is no image's name yet.
_IMAGE = re.compile(r"\w[\w./:@+-]*")


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge each FROM, and each installer; a finding comes with its line.

    Docker, "Building best practices", pinned base images.
    """
    yield from _bases(listed)
    for each in listed:
        for finding in _installer(each):
            yield finding, each.line


def _bases(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    arguments: dict[str, str] = {}
    stages: set[str] = {"scratch"}
    for each in listed:
        if each.name == "ARG":
            for name, value in assignments(each):
                arguments.setdefault(name, value or "")
        if each.name != "FROM":
            continue
        words = [word for word in each.rest.split() if not word.startswith("--")]
        image = _REFERENCE.sub(lambda match: arguments.get(match[1], ""), words[0]) if words else ""
        tag = image.rpartition("/")[2].partition(":")[2]
        moves = tag in {"", "latest"} and "@" not in image
        known = _IMAGE.fullmatch(image) is not None and not image.endswith((":", "/"))
        example = missing_tag(image) if tag and not moves else None
        if known and example is not None:
            found = f"{shown(image)}: its registry has no such tag, and the build ends at once"
            yield Finding(Code.IMAGE_TAG, ("FROM",), found, f"name a release: {example}"), each.line
        if known and moves and image.lower() not in stages:
            found = f"{shown(image)} is whatever was pushed last"
            remedy = "name a digest (@sha256:...), or a tag that nobody moves"
            yield Finding(Code.IMAGE_BASE, ("FROM",), found, remedy, Level.WARNING), each.line
        if len(words) > 2 and words[1].lower() == "as":  # noqa: PLR2004 -- FROM image AS stage
            stages.add(words[2].lower())


def _installer(instruction: Instruction) -> Iterator[Finding]:
    """Yield an EFA installer whose libfabric today's NCCL plugin does not take.

    aws-ofi-nccl v1.21, src/nccl_ofi_net.cpp: libfabric 1.22 and later. The installer had 1.19 in
    its release 1.30, and has 1.22 in 1.36 (AWS ParallelCluster, CHANGELOG of 3.9 and 3.12).
    """
    match = _INSTALLER.search(instruction.rest)
    if match and int(match["minor"]) <= _OLD_INSTALLER:
        found = f"EFA installer 1.{match['minor']}: its libfabric is 1.19 or older"
        remedy = "use 1.36.0 or later: aws-ofi-nccl takes no libfabric before 1.22 since its v1.21"
        yield Finding(Code.IMAGE_EFA, (instruction.name,), found, remedy, Level.WARNING)
