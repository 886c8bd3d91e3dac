"""Which files of this machine stand in for which image; no image is pulled or run."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from megatron_eks.localcloud.kubernetes.kubelet.rootfs import Mount


@dataclass(frozen=True)
class Image:
    """The layout behind an image's name."""

    repository: str
    """The end of the image's name, in whole parts, without tag and digest."""
    mounts: Sequence[Mount] = ()
    entrypoint: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: int = 0
    remedy: str = ""
    """What brings its files, if they may be missing."""

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> "Image":
        """Return a layout that was written as JSON."""
        return cls(**{**written, "mounts": tuple(Mount(**each) for each in written["mounts"])})


class UnknownImageError(Exception):
    """No layout stands in for an image, or what it needs is not installed."""


def find(name: str, images: Sequence[Image]) -> Image:
    """Return the first layout that stands in for an image."""
    repository = re.sub(r"(:[\w.-]+)?(@sha256:\w+)?$", "", name)
    for image in images:
        if f"/{repository}".endswith(f"/{image.repository}"):
            missing = [each.source for each in image.mounts if not Path(each.source).exists()]
            if missing:
                raise UnknownImageError(
                    f"{name} is played by files that are not there: {', '.join(missing)}"
                    f" - {image.remedy}"
                )
            return image
    raise UnknownImageError(f"no process plays {name} on this machine")


def interpreter(program: Path) -> tuple[Mount, ...]:
    """Return what lets a Python run, by whatever links it is called, if it is not the system's."""
    found = set()
    while program.is_symlink():
        program = Path(os.path.normpath(program.parent / program.readlink()))
        # `bin` is in the folder that holds all of it. A link may lead from one such to another.
        found.add(program.parents[1])
    whole = program.resolve().parents[1]
    return tuple(
        Mount(str(whole), str(each), read_only=True)
        for each in sorted({*found, whole})
        if not each.is_relative_to("/usr") and (each / "bin").exists()
    )
