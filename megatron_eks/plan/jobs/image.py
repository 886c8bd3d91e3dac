"""Checks of the image of a job, and of the torchrun in it."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from megatron_eks.catalog.images import is_ours
from megatron_eks.catalog.pins import POD_UID
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, choices, warning
from megatron_eks.config.job import Job
from megatron_eks.config.outputs import is_digest
from megatron_eks.plan.cluster.egress import has_no_way_out
from megatron_eks.plan.cluster.images import REPOSITORIES

# What takes other arguments than torchrun, with which the plan calls it.
_OTHER_LAUNCHERS = frozenset(
    ("accelerate", "bash", "deepspeed", "mpirun", "python", "python3", "sh", "srun")
)
# Where older Deep Learning Containers had their Python.
_CONDA = "/opt/conda/"


def check_image(job: Job, cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield what is wrong with an image, and with how it starts ranks."""
    known = [*REPOSITORIES, *(image.name for image in cluster.images.own)]
    if job.image not in known and not is_digest(job.image):
        found = f"{job.image!r} is neither an image of this cluster nor a URI with a digest"
        remedy = f"{choices(job.image, known)}; or REGISTRY/NAME@sha256:..."
        yield Finding(Code.UNKNOWN_IMAGE, ("image",), found, remedy)
    elif job.image not in known and has_no_way_out(cluster):
        registry = job.image.split("/")[0]
        if not registry.endswith((f".{cluster.region}.amazonaws.com", ".amazonaws.com.cn")):
            found = f"no node reaches {registry}: the cluster has neither NAT nor proxy"
            remedy = f"copy the image to an ECR repository in {cluster.region}"
            yield Finding(Code.NO_WAY_OUT, ("image",), found, remedy)
    if is_digest(job.image):
        found = f"an image of yours, in which this project's programs are started as user {POD_UID}"
        remedy = "see that it holds what docs/images.md names under 'An image of yours'"
        yield warning(Code.OWN_IMAGE, ("image",), found, remedy)
    yield from _launcher(job, cluster)


def _launcher(job: Job, cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield a torchrun that is another program, or is not in the image.

    AWS Deep Learning Containers, release notes of PyTorch Training 2.6: Conda is removed. NVIDIA's
    images have none either.
    """
    torchrun, path = job.runtime.torchrun_path, ("runtime", "torchrun_path")
    if torchrun.endswith("/"):
        found = f"{torchrun} is a folder, and a program is started"
        yield Finding(Code.BAD_FORMAT, path, found, f"use {torchrun}torchrun")
    build = getattr(cluster.images, job.image) if is_ours(job.image) else None
    if PurePosixPath(torchrun).name in _OTHER_LAUNCHERS:
        found = f"{torchrun} does not start a process for each GPU as torchrun does"
        remedy = "name a torchrun, such as /opt/venv/bin/torchrun"
        yield Finding(Code.LAUNCHER, path, found, remedy)
    elif torchrun.startswith(_CONDA) and build and "BASE_IMAGE" not in build.build_args:
        found = f"the {job.image} image has no Conda, so no rank starts"
        remedy = "leave it out: the image's own torchrun is found without a path"
        yield Finding(Code.LAUNCHER, path, found, remedy)
