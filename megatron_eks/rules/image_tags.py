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
# NVIDIA/k8s-device-plugin, aws/eks-charts and the releases of Kubernetes' own projects: the tags
# are those of git, with a v before the number.
_WITH_V = re.compile(
    r"(nvcr\.io/)?nvidia/k8s-device-plugin|\S+\.amazonaws\.com/eks/aws-efa-k8s-device-plugin"
    r"|registry\.k8s\.io/(autoscaling/cluster-autoscaler|jobset/jobset|kueue/kueue"
    r"|node-problem-detector/node-problem-detector)"
)
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
# NVIDIA, README of the CUDA images on Docker Hub and NGC: the "latest" tag is deprecated.
_CUDA = re.compile(r"(nvcr\.io/|docker\.io/)?nvidia/cuda")


def of_nvidia(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a tag that the image's registry does not have: ErrImagePull.

    NVIDIA, release notes of the containers, "Pulling a Container"; README of the CUDA images; tags
    of NVIDIA/k8s-device-plugin, aws/eks-charts and kubernetes-sigs/kueue.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            image = text(container.body.get("image")) or ""
            example = missing_tag(image)
            if example is not None:
                who = "NVIDIA" if "nvidia/" in image else "the registry"
                found = f"{shown(image)}: {who} has no such tag, and the pull fails"
                path = (*container.path, "image")
                yield Finding(Code.IMAGE_TAG, path, found, f"name a release: {example}")


def missing_tag(image: str) -> str | None:
    """Return a tag as there are some, where its registry does not have that of an image."""
    if not image or "@" in image or is_placeholder(image):
        return None
    name, _, tag = image.partition(":")
    if _FRAMEWORKS.fullmatch(name) and not _MONTHLY.fullmatch(tag):
        return "25.03-py3"
    if _WITH_V.fullmatch(name) and _RELEASE.fullmatch(tag):
        return f"v{tag}"
    return "12.8.1-devel-ubuntu24.04" if _CUDA.fullmatch(name) and tag in {"", "latest"} else None
