"""What a job file of any kind can get wrong although every value in it has the right type."""

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from megatron_eks.catalog.instances import INSTANCES, MIB_PER_GIB
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, choices
from megatron_eks.config.outputs import is_digest
from megatron_eks.plan.egress import has_no_way_out
from megatron_eks.plan.hardware_checks import check_capacity
from megatron_eks.plan.images import REPOSITORIES
from megatron_eks.plan.jobs.environment_checks import check_variables
from megatron_eks.plan.jobs.environment_folders import shared_mounts
from megatron_eks.plan.quotas import PRIORITY_CLASSES, SYSTEM_PRIORITIES
from megatron_eks.plan.resources import memory_limit_mib
from megatron_eks.plan.storage import EFS_MOUNT_PATH
from megatron_eks.plan.storage_checks import check_mount_path, not_shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from megatron_eks.config.cluster import ClusterConfig, GpuPool
    from megatron_eks.config.errors import Path
    from megatron_eks.config.job import GpuJob, Job

_DNS_LABEL_LENGTH = 63

# huggingface_hub 1.x, constants.py; datasets 4.x, config.py.
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_TRUE = frozenset(("1", "ON", "TRUE", "YES"))

# Owners on Hugging Face who let people in one by one.
_GATED = ("meta-llama/", "google/gemma-")
# Gemma is under the Apache licence from 4 on, as is Gemma Scope.
_OPEN = ("google/gemma-4-", "google/gemma-scope-")

# Megatron and torch wait 10 minutes by default. Indexing a large corpus takes an hour at most, and
# people write seconds, as torch does, where minutes are asked for.
_LONG_TIMEOUT_MINUTES = 120
# A program that ends at once does so every time.
_MANY_RESTARTS = 50

# What takes other arguments than torchrun, with which the plan calls it.
_OTHER_LAUNCHERS = frozenset(
    ("accelerate", "bash", "deepspeed", "mpirun", "python", "python3", "sh", "srun")
)
# No address, and nothing that a shell would fill in.
_RELATIVE = re.compile(r"(\./)?\w[\w.-]*(/[\w.-]+)*")

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


def check_task(job: "Job", cluster: "ClusterConfig") -> "Iterator[Finding]":
    """Yield what is wrong with a job of programs that need no GPU."""
    yield from check_runtime(job, cluster)
    yield from no_meaning(job, _FOR_RANKS)
    if job.pool is not None:
        yield from _pool(job, cluster)


def check_runtime(job: "Job", cluster: "ClusterConfig") -> "Iterator[Finding]":
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
        yield Finding(Code.ANOTHER_REGION, ("image",), found, remedy, Level.WARNING)
    for name in ("host_network", "ipc_lock"):
        if getattr(runtime, name) and cluster.platform.pod_security == "restricted":
            found = f"{name} breaks the restricted Pod Security of {cluster.platform.namespace!r}"
            remedy = "remove it (EFA needs neither), or set platform.pod_security: privileged"
            yield Finding(Code.POD_SECURITY, ("runtime", name), found, remedy)
    if runtime.ipc_lock and cluster.platform.pod_security == "privileged":
        found = "pods do not run as root, and an added capability reaches no other user"
        remedy = "remove it: the EKS AMI lifts the limit on locked memory for every container"
        yield Finding(Code.POD_SECURITY, ("runtime", "ipc_lock"), found, remedy, Level.WARNING)
    yield from _launcher(job, cluster)
    yield from _priority(runtime.priority_class, cluster.platform.namespace)
    pool = gpu_pool(job, cluster)
    instance = INSTANCES[pool.instance_type] if pool is not None else None
    yield from check_variables(job, cluster, instance)


def _launcher(job: "Job", cluster: "ClusterConfig") -> "Iterator[Finding]":
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


def _has_own_base(image: str, cluster: "ClusterConfig") -> bool:
    images = {"megatron": cluster.images.megatron, "fsdp": cluster.images.fsdp}
    return image not in images or "BASE_IMAGE" in images[image].build_args


def _priority(name: str | None, namespace: str) -> "Iterator[Finding]":
    known = [each.name for each in PRIORITY_CLASSES]
    path: Path = ("runtime", "priority_class")
    if name in SYSTEM_PRIORITIES:
        found = f"{name} would push device plugins off their nodes: {namespace!r} refuses its pods"
        yield Finding(Code.PRIORITY_CLASS, path, found, f"use one of {', '.join(known)}")
    elif name is not None and name not in known:
        found = f"{name!r} is no class of this project, and without it no pod is made"
        remedy = f"make the PriorityClass before the job; {choices(name, known)}"
        yield Finding(Code.PRIORITY_CLASS, path, found, remedy, Level.WARNING)


def check_gpus(job: "GpuJob", cluster: "ClusterConfig") -> "Iterator[Finding]":
    """Yield what is wrong with the nodes and GPUs that a job asks for."""
    longest = f"{job.name}-worker-{max(0, job.nodes - 2)}"
    if len(longest) > _DNS_LABEL_LENGTH:
        found = f"the Service {longest!r} would have {len(longest)} characters, and 63 are allowed"
        remedy = f"shorten the name by {len(longest) - _DNS_LABEL_LENGTH} characters"
        yield Finding(Code.NAME_TOO_LONG, ("name",), found, remedy)
    yield from _pool(job, cluster)
    pool = gpu_pool(job, cluster)
    if pool is not None:
        yield from _nodes(job, pool)
        yield from check_capacity(pool, job.runtime.gang_restarts)
        yield from _shm(job, pool)
        yield from _rendezvous(job, pool, cluster)
    yield from _patience(job)


def _patience(job: "GpuJob") -> "Iterator[Finding]":
    """Yield settings by which nodes are paid for hours after a run has come to its end."""
    minutes, restarts = job.runtime.distributed_timeout_minutes, job.runtime.gang_restarts
    if minutes > _LONG_TIMEOUT_MINUTES:
        found = f"a collective that hangs is noticed after {minutes / 60:.0f} hours: it is minutes"
        path: Path = ("runtime", "distributed_timeout_minutes")
        remedy = "use 10, or up to 60 where indexing the data takes long"
        yield Finding(Code.SLOW_TO_FAIL, path, found, remedy, Level.WARNING)
    if restarts > _MANY_RESTARTS:
        found = f"a mistake that ends every start would be tried {restarts} times on paid nodes"
        path = ("runtime", "gang_restarts")
        yield Finding(Code.SLOW_TO_FAIL, path, found, "use 3 to 20", Level.WARNING)


def gpu_pool(job: "Job", cluster: "ClusterConfig") -> "GpuPool | None":
    """Return the pool of a job, if there is one and its type is known."""
    named = (pool for pool in cluster.gpu_pools if pool.name == job.pool)
    return next((pool for pool in named if pool.instance_type in INSTANCES), None)


def no_meaning(job: "Job", names: "Iterable[str]") -> "Iterator[Finding]":
    """Refuse settings of `runtime` that a kind of job would silently ignore."""
    for name in names:
        if name in job.runtime.model_fields_set:
            found = f"{name} has no meaning for {job.kind}"
            yield Finding(Code.NO_MEANING, ("runtime", name), found, "remove it")


def outside(
    places: "Iterable[tuple[Path, str | None]]", cluster: "ClusterConfig"
) -> "Iterator[Finding]":
    """Demand a shared file system for what several nodes read or what outlives a pod.

    EFS is one too where the cluster has it: `charts/pods.py` mounts it in every pod. While Lustre's
    place itself is wrong, that is the finding, and not every path of every job.
    """
    shared = shared_mounts(cluster)
    if any(check_mount_path(cluster)):
        return
    for path, place in places:
        if place in shared:
            found = f"{place} is the root of the file system, which everything shares"
            remedy = f"use a folder of its own below it: {place}/NAME"
            yield Finding(Code.SHARED_PATH, path, found, remedy)
        elif place is not None and _RELATIVE.fullmatch(place):
            found = f"{place} is relative: it is looked for in the folder of the program"
            remedy = f"write {shared[0]}/{place.removeprefix('./')}"
            yield Finding(Code.SHARED_PATH, path, found, remedy)
        elif place is not None and not place.startswith(tuple(f"{each}/" for each in shared)):
            found = not_shared(place, efs=cluster.storage.efs)
            remedy = f"use a path below {shared[0]}/"
            if f"{place}/".startswith(f"{EFS_MOUNT_PATH}/"):
                remedy += ", or set storage.efs: true"
            yield Finding(Code.SHARED_PATH, path, found, remedy)


def gated(path: "Path", name: str) -> "Iterator[Finding]":
    """Demand a token for what Hugging Face gives to those alone who were let in."""
    if name.startswith(_GATED) and not name.startswith(_OPEN):
        found = f"{name} is gated, and the job has no token"
        remedy = "name a Kubernetes Secret with a key `token`: token_secret: hugging-face"
        yield Finding(Code.GATED, path, found, remedy)


def from_the_hub(
    job: "Job", path: "Path", name: str, cluster: "ClusterConfig"
) -> "Iterator[Finding]":
    """Demand a way out for what comes from Hugging Face."""
    for variable in _OFFLINE:
        if job.runtime.env.get(variable, "").upper() in _TRUE:
            found = f"{variable}: {name} comes from Hugging Face, which nobody asks then"
            remedy = "remove it, or bring the files by a job of kind fetch and name their folder"
            yield Finding(Code.ENVIRONMENT_REFUSED, ("runtime", "env", variable), found, remedy)
    if has_no_way_out(cluster):
        found = f"{name} comes from Hugging Face, and the cluster has neither NAT nor proxy"
        remedy = "bring it to S3 and fetch it from there, or set network.proxy"
        yield Finding(Code.NO_WAY_OUT, path, found, remedy)


def _pool(job: "Job", cluster: "ClusterConfig") -> "Iterator[Finding]":
    names = [known.name for known in cluster.gpu_pools]
    if job.pool not in names:
        found = f"no pool named {job.pool!r}"
        yield Finding(Code.UNKNOWN_POOL, ("pool",), found, choices(str(job.pool), names))


def _nodes(job: "GpuJob", pool: "GpuPool") -> "Iterator[Finding]":
    gpus = INSTANCES[pool.instance_type].gpus
    if job.nodes > pool.max_nodes:
        found = f"{job.nodes} nodes, and pool {pool.name!r} may have {pool.max_nodes}"
        remedy = f"use at most {pool.max_nodes}, or raise the pool's max_nodes"
        yield Finding(Code.TOO_MANY_NODES, ("nodes",), found, remedy)
    if (
        job.nodes > 1
        and job.kind != "nccl_test"
        and not INSTANCES[pool.instance_type].efa_interfaces
    ):
        found = f"{pool.instance_type} has no EFA: {job.nodes} nodes exchange gradients over TCP"
        remedy = "use one node, or a size with EFA"
        yield Finding(Code.NODES_WITHOUT_EFA, ("nodes",), found, remedy, Level.WARNING)
    if job.gpus_per_node is not None and job.gpus_per_node > gpus:
        found = f"{job.gpus_per_node} GPUs, and a {pool.instance_type} has {gpus}"
        yield Finding(Code.GPUS_PER_NODE, ("gpus_per_node",), found, f"use {gpus}, or leave it out")
    elif job.runtime.host_network and job.gpus_per_node not in {None, gpus}:
        found = "on the host network two jobs of a node would want the same port"
        yield Finding(
            Code.GPUS_PER_NODE, ("gpus_per_node",), found, f"use {gpus}, or no host_network"
        )


def _shm(job: "GpuJob", pool: "GpuPool") -> "Iterator[Finding]":
    instance = INSTANCES[pool.instance_type]
    gpus = min(job.gpus_per_node or instance.gpus, instance.gpus)
    limit_gib = memory_limit_mib(instance, gpus) // MIB_PER_GIB
    if (job.runtime.shm_gib or 0) > limit_gib // 2:
        found = f"{job.runtime.shm_gib} GiB of /dev/shm count against {limit_gib} GiB of pod memory"
        yield Finding(Code.SHM, ("runtime", "shm_gib"), found, f"use at most {limit_gib // 2}")
    elif job.runtime.shm_gib is not None and job.runtime.shm_gib < gpus:
        # NCCL User Guide, "Troubleshooting", asks for 1 GiB in containers; data loaders use more.
        found = f"{job.runtime.shm_gib} GiB for {gpus} ranks, NCCL and their data loaders"
        remedy = f"use at least {gpus}, or leave it out"
        yield Finding(Code.SHM, ("runtime", "shm_gib"), found, remedy, Level.WARNING)


def _rendezvous(job: "GpuJob", pool: "GpuPool", cluster: "ClusterConfig") -> "Iterator[Finding]":
    runtime, elastic = job.runtime, job.runtime.elastic
    path: Path = ("runtime", "rendezvous")
    if runtime.rendezvous == "etcd" and not cluster.platform.etcd:
        found = "the cluster has no etcd"
        remedy = "use c10d, which needs none, or set platform.etcd: true"
        yield Finding(Code.RENDEZVOUS, path, found, remedy)
    if runtime.rendezvous == "etcd" and job.image in REPOSITORIES:
        found = f"the {job.image} image has no python-etcd, which torchrun needs for it"
        remedy = "use c10d, or name an image of your own by digest"
        yield Finding(Code.RENDEZVOUS, path, found, remedy)
    if elastic is None:
        return
    path = ("runtime", "elastic")
    if runtime.rendezvous == "static":
        found = "static ranks are as many as there were at the start"
        yield Finding(Code.RENDEZVOUS, path, found, "set runtime.rendezvous: c10d")
    if elastic.min_nodes > elastic.max_nodes:
        found = f"min_nodes {elastic.min_nodes} is above max_nodes {elastic.max_nodes}"
        yield Finding(Code.RENDEZVOUS, path, found, "swap them, or use one number for both")
    elif not elastic.min_nodes <= job.nodes <= elastic.max_nodes:
        found = f"{job.nodes} nodes are not between {elastic.min_nodes} and {elastic.max_nodes}"
        yield Finding(Code.RENDEZVOUS, path, found, "let the bounds hold nodes")
    if elastic.max_nodes > pool.max_nodes:
        found = f"{elastic.max_nodes} nodes, and pool {pool.name!r} may have {pool.max_nodes}"
        remedy = f"use at most {pool.max_nodes}, or raise the pool's max_nodes"
        yield Finding(Code.TOO_MANY_NODES, (*path, "max_nodes"), found, remedy)
