"""Rule over tags of images that their registry does not have."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.values import is_placeholder, shown, text
from megatron_eks.rules.workloads import Manifest

# NVIDIA, release notes of the containers, "Pulling a Container": xx.yy-py3, a year and a month.
_FRAMEWORKS = re.compile(r"nvcr\.io/nvidia/(pytorch|tensorflow|jax|tritonserver)")
_MONTHLY = re.compile(r"[0-9]{2}\.(0[1-9]|1[0-2])(\.[0-9]+)?-\S*py[23](-\S+)?")
# NVIDIA, README of the CUDA images on Docker Hub and NGC: the "latest" tag is deprecated.
_CUDA = re.compile(r"(nvcr\.io/|docker\.io/)?nvidia/cuda")


def of_nvidia(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a tag that NVIDIA's registry does not have: ErrImagePull.

    NVIDIA, release notes of the containers, "Pulling a Container"; README of the CUDA images.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            image = text(container.body.get("image")) or ""
            example = missing_tag(image)
            if example is not None:
                found = f"{shown(image)}: NVIDIA has no such tag, and the pull fails"
                path = (*container.path, "image")
                yield Finding(Code.IMAGE_TAG, path, found, f"name a release: {example}")


def missing_tag(image: str) -> str | None:
    """Return a tag as there are some, where the one of an image is none of NVIDIA's."""
    if not image or "@" in image or is_placeholder(image):
        return None
    name, _, tag = image.partition(":")
    if _FRAMEWORKS.fullmatch(name) and not _MONTHLY.fullmatch(tag):
        return "25.03-py3"
    return "12.8.1-devel-ubuntu24.04" if _CUDA.fullmatch(name) and tag in {"", "latest"} else None
