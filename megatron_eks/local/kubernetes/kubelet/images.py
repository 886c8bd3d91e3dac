"""Which files of this machine stand in for which image; no image is pulled or run."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from megatron_eks.catalog.pins import POD_UID
from megatron_eks.local.kubernetes.kubelet.rootfs import Mount

_ROOT = Path(__file__).parents[4]
_MEGATRON = Path(__file__).parents[2] / "megatron"
_STAND_INS = Path(__file__).with_name("standins")
_OURS = "/opt/megatron-eks"
_PACKAGES = f"{_OURS}/packages"
_PATH = f"{_OURS}/standins:{_OURS}/python/bin:/usr/local/bin:/usr/bin:/bin"


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


class UnknownImageError(Exception):
    """No layout stands in for an image, or what it needs is not installed."""


def find(name: str, more: Sequence[Image] = ()) -> Image:
    """Return the layout for an image; the caller's own entries come first."""
    repository = re.sub(r"(:[\w.-]+)?(@sha256:\w+)?$", "", name)
    for image in (*more, *_table()):
        if f"/{repository}".endswith(f"/{image.repository}"):
            missing = [each.source for each in image.mounts if not Path(each.source).exists()]
            if missing:
                raise UnknownImageError(
                    f"{name} is played by files that are not there: {', '.join(missing)}"
                    " - run: make programs"
                )
            return image
    raise UnknownImageError(f"no process plays {name} on this machine")


def torch(repository: str, package: Path = _ROOT / "megatron_eks") -> Image:
    """Return the layout of an image with PyTorch and our programs."""
    # At a path of its own, whatever the checkout's is: a pod's volume at /tmp would hide one there.
    python = (_ROOT / ".venv-programs").resolve()
    return Image(
        repository,
        mounts=(
            *interpreter(python / "bin" / "python"),
            Mount(str(python), f"{_OURS}/python", read_only=True),
            Mount(str(package), f"{_PACKAGES}/{package.name}", read_only=True),
            *_stand_ins("torch"),
        ),
        # As the Dockerfiles of assets/images have it.
        environment={"PATH": _PATH, "HOME": "/tmp", "PYTHONPATH": _PACKAGES},  # noqa: S108 -- the container's own
        directory=_OURS,
        user=POD_UID,
    )


def megatron(repository: str) -> Image:
    """Return the same with Megatron, which runs on CPUs, where the image has Megatron-LM."""
    image = torch(repository)
    checkout = Mount(str(_MEGATRON), "/opt/megatron-lm", read_only=True)
    return replace(image, mounts=(*image.mounts, checkout))


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


def _table() -> tuple[Image, ...]:
    return (
        megatron("megatron-training"),
        torch("fsdp"),
        torch("pytorch/pytorch"),
        _small("busybox", "busybox"),
        _small("docker/library/python", "python"),
        _small("nvcr.io/nvidia/cuda", "cuda"),
        # What these would find out is in the node's description already.
        _small("nvidia/k8s-device-plugin", "idle", "nvidia-device-plugin"),
        _small("eks/aws-efa-k8s-device-plugin", "idle", "idle"),
        _small("nvidia/k8s/dcgm-exporter", "dcgm-exporter", "dcgm-exporter"),
    )


def _small(repository: str, stand_ins: str, *entrypoint: str) -> Image:
    # The interpreter behind any virtual environment, for the stand-ins that are Python.
    python = Path(sys.executable).resolve()
    return Image(
        repository,
        mounts=(*interpreter(python), *_stand_ins(stand_ins)),
        entrypoint=entrypoint,
        environment={"PATH": _PATH, "PYTHON": str(python)},
    )


def _stand_ins(name: str) -> tuple[Mount, ...]:
    return (Mount(str(_STAND_INS / name), f"{_OURS}/standins", read_only=True),)
