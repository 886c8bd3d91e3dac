"""Rules over what an image's own name says of its contents: EFA's libraries, and CUDA's version."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.cuda import FIRST_CUDA, is_older
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.hardware import instance_types
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, Container, Manifest

# Images of Docker Hub whose Dockerfiles install neither libfabric nor NCCL's plugin for it.
_WITHOUT_EFA = re.compile(
    r"(docker\.io/)?(pytorch/pytorch|huggingface/transformers-pytorch-gpu|nvidia/cuda"
    r"|nvcr\.io/nvidia/cuda|tensorflow/tensorflow|python|ubuntu)"
)
_BRINGS_EFA = re.compile(r"(?<![a-z])efa|libfabric|ofi-nccl|install|\.sh\b", re.IGNORECASE)


def without_efa(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an image without EFA's libraries in a pod that asks for EFA.

    EKS User Guide, "Run machine learning training on Amazon EKS with EFA": the image has libfabric
    and aws-ofi-nccl; without the plugin NCCL takes TCP, without an error.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            image = text(container.body.get("image")) or ""
            name = image.partition("@")[0].partition(":")[0]
            asks = container.names(EFA) and container.names(GPU) and not container.is_init
            if not asks or not _WITHOUT_EFA.fullmatch(name) or _brought(container):
                continue
            found = f"{shown(image)} has neither libfabric nor NCCL's plugin for EFA: NCCL takes "
            found += "TCP, without an error"
            remedy = "take an AWS Deep Learning Container, or install the EFA installer in it"
            path = (*container.path, "image")
            yield Finding(Code.IMAGE_CONTENTS, path, found, remedy, Level.WARNING)


def _brought(container: Container) -> bool:
    """Tell whether a script or a mount may bring the libraries."""
    mounts = items(container.body.get("volumeMounts"))
    places = [text((mapping(each) or {}).get("mountPath")) or "" for each in mounts or []]
    by_mount = mounts is None or any(each.startswith(("/opt", "/usr")) for each in places)
    # A program of the image may be of one's own under the same name; its script may install.
    by_script = not container.words or _BRINGS_EFA.search(container.line) is not None
    return by_mount or by_script or any(each.name == "LD_PRELOAD" for each in container.variables)


def too_old(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an image whose CUDA knows no code for the GPU.

    NVIDIA, CUDA Toolkit release notes (Blackwell from 12.8, Hopper from 11.8): PyTorch ends with
    "no kernel image is available for execution on the device".
    """
    for pod in manifest.pods:
        types = instance_types(pod)
        for container in pod.containers if types else ():
            image = text(container.body.get("image")) or ""
            if is_placeholder(image) or not container.names(GPU):
                continue
            missing = [each for each in types if is_older(image, FIRST_CUDA[each.gpu.cuda_major])]
            if missing:
                gpu = missing[0].gpu
                first = ".".join(str(each) for each in FIRST_CUDA[gpu.cuda_major])
                found = f"{shown(image)} is of a CUDA before {first}, the first one for {gpu.name}"
                found += ": no kernel image is available"
                level = Level.ERROR if len(missing) == len(types) else Level.WARNING
                path = (*container.path, "image")
                remedy = f"take an image with CUDA {first} or later"
                yield Finding(Code.IMAGE_CONTENTS, path, found, remedy, level)
