"""Rules over tags that a registry does not have, and over the processors that a tag is for."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.image_stages import Instruction
from megatron_eks.rules.values import is_placeholder, shown, text
from megatron_eks.rules.workloads import Manifest

# NVIDIA, release notes of the containers, "Pulling a Container": xx.yy-py3, a year and a month.
_FRAMEWORKS = re.compile(r"nvcr\.io/nvidia/(pytorch|tensorflow|jax|tritonserver)")
_NEARLY_MONTHLY = re.compile(r"([0-9]{2})\.([1-9]|0[1-9]|1[0-2])(\.[0-9]+)?(-py3)?")
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
_OF_HUB = re.compile(r"(docker\.io/)?nvidia/cuda")
# Docker Hub, nvidia/cuda: since CUDA 12 every tag names a patch release; the last of each.
_CUDA_MINOR = re.compile(r"(?P<release>1[2-9]\.[0-9]+)(?P<rest>-[a-z][\w.-]*)")
_CUDA_PATCHES = dict(
    each.rsplit(".", 1)
    for each in (
        "12.0.1",
        "12.1.1",
        "12.2.2",
        "12.3.2",
        "12.4.1",
        "12.5.1",
        "12.6.3",
        "12.8.1",
        "12.9.1",
        "13.0.2",
    )
)
# AWS's types with ARM processors and NVIDIA's GPUs; what is written for them says so.
_ON_ARM = re.compile(
    r"gb200|gb300|gh200|p6e|g5g|grace|sbsa|aarch64|TARGETARCH|linux/amd64", re.IGNORECASE
)
_OF_GPUS = re.compile(r"nvidia|cuda|torch|megatron|nemo|deep-learning-containers", re.IGNORECASE)
_ARM = re.compile(r"--platform=[\"']?linux/(arm64|aarch64)")


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
        near = _NEARLY_MONTHLY.fullmatch(tag)
        return f"{near[1]}.{near[2]:0>2}{near[3] or ''}-py3" if near else "25.03-py3"
    if _WITH_V.fullmatch(name) and _RELEASE.fullmatch(tag):
        return f"v{tag}"
    short = _CUDA_MINOR.fullmatch(tag) if _OF_HUB.fullmatch(name) else None
    if short is not None:
        last = _CUDA_PATCHES.get(short["release"])
        return f"{short['release']}.{last}{short['rest']}" if last else "12.8.1-devel-ubuntu24.04"
    return "12.8.1-devel-ubuntu24.04" if _CUDA.fullmatch(name) and tag in {"", "latest"} else None


def on_arm(listed: list[Instruction], content: str) -> Iterator[tuple[Finding, int]]:
    """Yield an image for ARM in a file that names no node with such processors.

    Docker, Dockerfile reference, FROM --platform; EC2, "Accelerated computing instances": of the
    types with NVIDIA's GPUs, G5g and P6e-GB200 alone have ARM processors. On the others each
    program ends with exec format error.
    """
    last = next((each for each in reversed(listed) if each.name == "FROM"), None)
    if last is None or _ON_ARM.search(content) or not _OF_GPUS.search(last.rest):
        return
    if _ARM.search(last.rest):
        found = "an image for ARM, and of AWS's GPU nodes only g5g and p6e-gb200 have such "
        found += "processors: on others it ends with exec format error"
        remedy = "write --platform=linux/amd64, or say in a comment which of the two it is for"
        yield Finding(Code.IMAGE_BUILD, ("FROM",), found, remedy, Level.WARNING), last.line
