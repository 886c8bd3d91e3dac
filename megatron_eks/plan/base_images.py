"""What the name of a base image says: whether docker reads it, and what its contents cannot do."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.cuda import FIRST_CUDA, is_older
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning

# distribution/reference, "Grammar": lowercase but for the host and the tag.
_REFERENCE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
# NGC catalogue: tags with -igpu are for Jetson; AWS Deep Learning Containers and others say arm64.
_ARM = re.compile(r"-igpu\b|\bl4t\b|(?<![a-z])(arm64|aarch64)(?![a-z])")
# Docker Official Images of operating systems and languages: PyTorch is in none of them.
_WITHOUT_TORCH = re.compile(
    r"(docker\.io/)?(library/)?(alpine|amazonlinux|debian|python|rockylinux|ubuntu)"
)


def check_base(path: Path, image: str, config: ClusterConfig) -> Iterator[Finding]:
    """Yield why an image cannot be built from this one, or what is built would not run."""
    if "$" in image:
        return
    if not _REFERENCE.fullmatch(image):
        found = f"{image!r} is no name of an image: docker build stops at FROM"
        remedy = "write REGISTRY/NAME:TAG, in lowercase, without https:// and blanks"
        yield Finding(Code.BUILD_ARGUMENT, path, found, remedy)
        return
    if _is_floating(image):
        found = f"{image} is another image after each release, under one tag of ours"
        remedy = "name a release, best with its digest: IMAGE:TAG@sha256:..."
        yield warning(Code.BUILD_ARGUMENT, path, found, remedy)
    name = image.partition("@")[0]
    if _ARM.search(name):
        found = f"{image} is made for ARM processors, and all nodes and builds here have x86-64"
        yield Finding(Code.BUILD_ARGUMENT, path, found, "use the tag of the same image for x86-64")
    elif "megatron" in path and _WITHOUT_TORCH.fullmatch(name.partition(":")[0]):
        found = f"{image} has no PyTorch, and the Dockerfile installs none"
        remedy = "use an image such as nvcr.io/nvidia/nemo:26.08.01"
        # A fork's Dockerfile may install it.
        yield warning(Code.BUILD_ARGUMENT, path, found, remedy)
    yield from _too_old(path, image, config)


def _too_old(path: Path, image: str, config: ClusterConfig) -> Iterator[Finding]:
    """Yield the newest GPU of the pools for which the image's CUDA has no code."""
    gpus = [
        INSTANCES[p.instance_type].gpu for p in config.gpu_pools if p.instance_type in INSTANCES
    ]
    missing = [gpu for gpu in gpus if is_older(image, FIRST_CUDA[gpu.cuda_major])]
    if missing:
        newest = max(missing, key=lambda gpu: FIRST_CUDA[gpu.cuda_major])
        first = ".".join(map(str, FIRST_CUDA[newest.cuda_major]))
        found = f"{image} is of a CUDA before {first}, the first one for {newest.name}"
        remedy = f"use an image with CUDA {first} or later"
        # Other pools may run it, and a fork's Dockerfile may bring another PyTorch.
        yield warning(Code.BUILD_ARGUMENT, path, found, remedy)


def _is_floating(image: str) -> bool:
    """Tell whether an image is named without a release: no tag, or the one that moves."""
    name, _, tag = image.rpartition("/")[2].partition(":")
    return "@" not in image and bool(name) and tag in {"", "latest"}
