"""What the image, the pods and the variables of a job of any kind can get wrong."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.pins import POD_UID
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, choices, warning
from megatron_eks.config.job import Job
from megatron_eks.config.outputs import is_digest
from megatron_eks.plan.egress import has_no_way_out
from megatron_eks.plan.images import REPOSITORIES
from megatron_eks.plan.jobs.environment_checks import check_variables
from megatron_eks.plan.jobs.node_checks import check_pool, gpu_pool
from megatron_eks.plan.platform import PRIORITY_CLASSES, SYSTEM_PRIORITIES

# What takes other arguments than torchrun, with which the plan calls it.
_OTHER_LAUNCHERS = frozenset(
    ("accelerate", "bash", "deepspeed", "mpirun", "python", "python3", "sh", "srun")
)
# Where older Deep Learning Containers had their Python.
_CONDA = "/opt/conda/"
# What only ranks of a training run make use of.
_FOR_RANKS = (
    "shm_gib",
    "distributed_timeout_minutes",
    "rendezvous",
    "elastic",
    "host_network",
    "ipc_lock",
    "torchrun_path",
)


def check_task(job: Job, cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield what is wrong with a job of programs that need no GPU."""
    yield from check_runtime(job, cluster)
    yield from no_meaning(job, _FOR_RANKS)
    if job.pool is not None:
        yield from check_pool(job, cluster)


def check_runtime(job: Job, cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield what is wrong with the image of a job, and with how its pods run."""
    if job.runtime.torchrun_path.endswith("/"):
        found = f"{job.runtime.torchrun_path} is a folder, and a program is started"
        remedy = f"use {job.runtime.torchrun_path}torchrun"
        yield Finding(Code.BAD_FORMAT, ("runtime", "torchrun_path"), found, remedy)
    runtime = job.runtime
    if job.image not in REPOSITORIES and not is_digest(job.image):
        found = f"{job.image!r} is neither a repository of this cluster nor a URI with a digest"
        remedy = f"{choices(job.image, REPOSITORIES)}; or REGISTRY/NAME@sha256:..."
        yield Finding(Code.UNKNOWN_IMAGE, ("image",), found, remedy)
    elif job.image not in REPOSITORIES and has_no_way_out(cluster):
        registry = job.image.split("/")[0]
        if not registry.endswith((f".{cluster.region}.amazonaws.com", ".amazonaws.com.cn")):
            found = f"no node reaches {registry}: the cluster has neither NAT nor proxy"
            remedy = f"copy the image to an ECR repository in {cluster.region}"
            yield Finding(Code.NO_WAY_OUT, ("image",), found, remedy)
    elif ".dkr.ecr." in job.image and f".dkr.ecr.{cluster.region}." not in job.image:
        found = f"an image outside of {cluster.region}: every node pulls gigabytes across regions"
        remedy = f"copy it to an ECR repository in {cluster.region}"
        yield warning(Code.ANOTHER_REGION, ("image",), found, remedy)
    if is_digest(job.image):
        found = f"an image of yours, in which this project's programs are started as user {POD_UID}"
        remedy = "see that it holds what docs/images.md names under 'An image of yours'"
        yield warning(Code.OWN_IMAGE, ("image",), found, remedy)
    for name in ("host_network", "ipc_lock"):
        if getattr(runtime, name) and cluster.platform.pod_security == "restricted":
            found = f"{name} breaks the restricted Pod Security of {cluster.platform.namespace!r}"
            remedy = "remove it (EFA needs neither), or set platform.pod_security: privileged"
            yield Finding(Code.POD_SECURITY, ("runtime", name), found, remedy)
    if runtime.ipc_lock and cluster.platform.pod_security == "privileged":
        found = "pods do not run as root, and an added capability reaches no other user"
        remedy = "remove it: the EKS AMI lifts the limit on locked memory for every container"
        yield warning(Code.POD_SECURITY, ("runtime", "ipc_lock"), found, remedy)
    yield from _launcher(job, cluster)
    yield from _priority(runtime.priority_class, cluster.platform.namespace)
    pool = gpu_pool(job, cluster)
    instance = INSTANCES[pool.instance_type] if pool is not None else None
    yield from check_variables(job, cluster, instance)


def _launcher(job: Job, cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield a torchrun that is another program, or is not in the image.

    AWS Deep Learning Containers, release notes of PyTorch Training 2.6: Conda is removed. NVIDIA's
    images have none either.
    """
    torchrun, path = job.runtime.torchrun_path, ("runtime", "torchrun_path")
    ours = job.image in REPOSITORIES
    if PurePosixPath(torchrun).name in _OTHER_LAUNCHERS:
        found = f"{torchrun} does not start a process for each GPU as torchrun does"
        remedy = "name a torchrun, such as /opt/venv/bin/torchrun"
        yield Finding(Code.LAUNCHER, path, found, remedy)
    elif torchrun.startswith(_CONDA) and ours and not _has_own_base(job.image, cluster):
        found = f"the {job.image} image has no Conda, so no rank starts"
        remedy = "leave it out: the image's own torchrun is found without a path"
        yield Finding(Code.LAUNCHER, path, found, remedy)


def _has_own_base(image: str, cluster: ClusterConfig) -> bool:
    images = {"megatron": cluster.images.megatron, "fsdp": cluster.images.fsdp}
    return image not in images or "BASE_IMAGE" in images[image].build_args


def _priority(name: str | None, namespace: str) -> Iterator[Finding]:
    known = [each.name for each in PRIORITY_CLASSES]
    path: Path = ("runtime", "priority_class")
    if name in SYSTEM_PRIORITIES:
        found = f"{name} would push device plugins off their nodes: {namespace!r} refuses its pods"
        yield Finding(Code.PRIORITY_CLASS, path, found, f"use one of {', '.join(known)}")
    elif name is not None and name not in known:
        found = f"{name!r} is no class of this project, and without it no pod is made"
        remedy = f"make the PriorityClass before the job; {choices(name, known)}"
        yield warning(Code.PRIORITY_CLASS, path, found, remedy)


def no_meaning(job: Job, names: Iterable[str]) -> Iterator[Finding]:
    """Refuse settings of `runtime` that a kind of job would silently ignore."""
    for name in names:
        if name in job.runtime.model_fields_set:
            found = f"{name} has no meaning for {job.kind}"
            yield Finding(Code.NO_MEANING, ("runtime", name), found, "remove it")
