"""Which files of this machine stand in for the images of a cluster."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from megatron_eks.catalog.pins import POD_UID
from megatron_eks.catalog.program_places import UNPACKED
from megatron_eks.localcloud.kubernetes.kubelet.images import Image, interpreter
from megatron_eks.localcloud.kubernetes.kubelet.rootfs import Mount
from megatron_eks.plan.cluster.images import ImagePlan
from megatron_eks.project import GET_PROGRAMS, IN_CHECKOUT, ROOT

_MEGATRON = Path(__file__).with_name("megatron")
_STAND_INS = Path(__file__).with_name("standins")
_OURS = "/opt/megatron-eks"
_START = ROOT / "megatron_eks" / "programs" / "zip_start.py"
_PATH = f"{_OURS}/standins:{_OURS}/python/bin:/usr/local/bin:/usr/bin:/bin"


def torch(repository: str, package: Path = ROOT / "megatron_eks") -> Image:
    """Return the layout of an image with PyTorch and our programs."""
    # At a path of its own, whatever the checkout's is: a pod's volume at /tmp would hide one there.
    # An extra of the installed package has what `make programs` installs for a checkout.
    python = (ROOT / ".venv-programs").resolve() if IN_CHECKOUT else Path(sys.prefix)
    return Image(
        repository,
        mounts=(
            *interpreter(python / "bin" / "python"),
            Mount(str(python), f"{_OURS}/python", read_only=True),
            Mount(str(package), f"{UNPACKED}/{package.name}", read_only=True),
            Mount(str(_START), f"{UNPACKED}/__main__.py", read_only=True),
            _stand_ins("torch"),
        ),
        # As the Dockerfiles of assets/images have it, but for the threads: those that wait for work
        # would take the processors from the other ranks.
        environment={
            "PATH": _PATH,
            "HOME": "/tmp",  # noqa: S108 -- the container's own
            "PYTHONPATH": UNPACKED,
            "OMP_NUM_THREADS": "1",
        },
        directory=_OURS,
        user=POD_UID,
        remedy=f"run: {GET_PROGRAMS}",
    )


def megatron(repository: str) -> Image:
    """Return the same with Megatron, which runs on CPUs, where the image has Megatron-LM."""
    image = torch(repository)
    checkout = Mount(str(_MEGATRON), "/opt/megatron-lm", read_only=True)
    return replace(image, mounts=(*image.mounts, checkout))


def stand_in_images(own: Iterable[ImagePlan] = ()) -> tuple[Image, ...]:
    """Return the layouts of all images that the platform and the jobs name, the user's too."""
    return (
        megatron("megatron-training"),
        torch("fsdp"),
        torch("pytorch/pytorch"),
        _small("busybox", "busybox"),
        # What others' examples name (kubernetes-sigs/jobset, kubeflow/trainer).
        *(_small(each, "busybox") for each in ("bash", "debian", "ubuntu")),
        _small("python", "python"),
        _small("nvcr.io/nvidia/cuda", "cuda"),
        # What these would find out is in the node's description already.
        _small("nvidia/k8s-device-plugin", "idle", "nvidia-device-plugin"),
        _small("eks/aws-efa-k8s-device-plugin", "idle", "idle"),
        _small("nvidia/k8s/dcgm-exporter", "dcgm-exporter", "dcgm-exporter"),
        *((megatron if each.base == "megatron" else torch)(each.repository) for each in own),
    )


def _small(repository: str, stand_ins: str, *entrypoint: str) -> Image:
    # The interpreter behind any virtual environment, for the stand-ins that are Python.
    python = Path(sys.executable).resolve()
    return Image(
        repository,
        mounts=(*interpreter(python), _stand_ins(stand_ins)),
        entrypoint=entrypoint,
        environment={"PATH": _PATH, "PYTHON": str(python)},
    )


def _stand_ins(name: str) -> Mount:
    return Mount(str(_STAND_INS / name), f"{_OURS}/standins", read_only=True)
