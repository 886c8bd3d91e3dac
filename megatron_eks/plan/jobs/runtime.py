"""The nodes and pods of a job, and how its ranks find each other."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from megatron_eks.catalog.images import is_ours
from megatron_eks.catalog.instances import (
    INSTANCES,
    MIB_PER_GIB,
    SYSTEM_INSTANCE_TYPES,
    InstanceType,
    system_node_size,
)
from megatron_eks.catalog.pins import POD_UID
from megatron_eks.config.cluster import ClusterConfig, GpuPool
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, choices, warning
from megatron_eks.config.job import ConvertCheckpointJob, GpuJob, Job, MegatronRun
from megatron_eks.config.outputs import is_digest
from megatron_eks.plan.cluster.egress import has_no_way_out
from megatron_eks.plan.cluster.images import REPOSITORIES
from megatron_eks.plan.cluster.platform import (
    PRIORITY_CLASSES,
    SYSTEM_PRIORITIES,
    controlled,
    kind_of,
)
from megatron_eks.plan.jobs.job import workload_of
from megatron_eks.plan.jobs.queue import check_queue
from megatron_eks.plan.jobs.resources import gpu_instance, gpu_pool, job_memory_mib, whole_node
from megatron_eks.plan.jobs.tracking import check_tracking
from megatron_eks.plan.jobs.variables import check_variables

_DNS_LABEL_LENGTH = 63

# Megatron and torch wait 10 minutes by default. Indexing a large corpus takes an hour at most, and
# people write seconds, as torch does, where minutes are asked for.
_LONG_TIMEOUT_MINUTES = 120
# A program that ends at once does so every time.
_MANY_RESTARTS = 50

# What only ranks of a training run make use of.
_FOR_RANKS = (
    *("shm_gib", "distributed_timeout_minutes", "rendezvous", "elastic", "host_network"),
    *("ipc_lock", "torchrun_path", "workload", "queue"),
)

# What takes other arguments than torchrun, with which the plan calls it.
_OTHER_LAUNCHERS = frozenset(
    ("accelerate", "bash", "deepspeed", "mpirun", "python", "python3", "sh", "srun")
)
# Where older Deep Learning Containers had their Python.
_CONDA = "/opt/conda/"


def check_gpus(job: GpuJob, cluster: ClusterConfig) -> Findings:
    """Yield what is wrong with the pods, nodes and GPUs that a job asks for."""
    yield from check_runtime(job, cluster)
    default = cluster.platform.workload
    workload = workload_of(job, default)
    kind = kind_of(workload)
    longest = kind.last_pod.format(name=job.name, index=job.nodes - 1, worker=max(0, job.nodes - 2))
    if (length := len(longest)) > _DNS_LABEL_LENGTH:
        found = f"the name {longest!r} would have {length} characters, and 63 are allowed"
        remedy = f"shorten the name by {length - _DNS_LABEL_LENGTH} characters"
        yield Finding(Code.NAME_TOO_LONG, ("name",), found, remedy)
    if kind.controller and kind not in controlled(default):
        found = f"the cluster has no controller for {kind.kind}s"
        remedy = f"set platform.workload: {workload}; running jobs may then keep {default}"
        yield Finding(Code.WORKLOAD, ("runtime", "workload"), found, remedy)
    if kind.fixed and job.runtime.rendezvous != "static":
        found = f"a {kind.kind} has a fixed number of ranks, and restarts all of them"
        remedy = "remove it, or set runtime.workload: pytorchjob"
        yield Finding(Code.WORKLOAD, ("runtime", "rendezvous"), found, remedy)
    yield from check_pool(job, cluster)
    pool = gpu_pool(job, cluster)
    if pool is not None:
        yield from _nodes(job, pool)
        for key, found, remedy in _rendezvous(job, cluster):
            yield Finding(Code.RENDEZVOUS, ("runtime", key), found, remedy)
        if job.runtime.elastic:
            most = ("runtime", "elastic", "max_nodes")
            yield from _most(most, job.runtime.elastic.max_nodes, pool)
    yield from check_queue(job, cluster)


def _nodes(job: GpuJob, pool: GpuPool) -> Findings:
    instance, runtime = INSTANCES[pool.instance_type], job.runtime
    yield from _most(("nodes",), job.nodes, pool)
    if job.nodes > 1 and job.kind != "nccl_test" and not instance.efa_interfaces:
        found = f"{pool.instance_type} has no EFA: {job.nodes} nodes exchange gradients over TCP"
        yield warning(Code.NODES_WITHOUT_EFA, ("nodes",), found, "use one node, or a size with EFA")
    path: Path = ("gpus_per_node",)
    if job.gpus_per_node is not None and job.gpus_per_node > instance.gpus:
        found = f"{job.gpus_per_node} GPUs, and a {pool.instance_type} has {instance.gpus}"
        yield Finding(Code.GPUS_PER_NODE, path, found, f"use {instance.gpus}, or leave it out")
    elif runtime.host_network and job.gpus_per_node not in {None, instance.gpus}:
        found = "on the host network two pods of a node would want the same port"
        yield Finding(Code.GPUS_PER_NODE, path, found, f"use {instance.gpus}, or no host_network")
    if pool.capacity.type == "spot" and not runtime.gang_restarts:
        found = "EC2 takes nodes of spot back, and the job may not start again"
        yield warning(Code.SPOT_GANG, ("runtime", "gang_restarts"), found, "use 3 or more")
    limit = job_memory_mib(job, instance) // MIB_PER_GIB
    if (runtime.shm_gib or 0) > limit // 2:
        found = f"{runtime.shm_gib} GiB of /dev/shm count against {limit} GiB of pod memory"
        yield Finding(Code.SHM, ("runtime", "shm_gib"), found, f"use at most {limit // 2}")
    gpus = min(job.gpus_per_node or instance.gpus, instance.gpus)
    if runtime.shm_gib is not None and runtime.shm_gib < gpus:
        # NCCL User Guide, "Troubleshooting", asks for 1 GiB in containers; data loaders use more.
        found = f"{runtime.shm_gib} GiB for {gpus} ranks, NCCL and their data loaders"
        yield warning(Code.SHM, ("runtime", "shm_gib"), found, f"use {gpus} or more")
    # Nodes are paid for while a run that has come to its end hangs, or starts again in vain.
    minutes, restarts = runtime.distributed_timeout_minutes, runtime.gang_restarts
    if minutes > _LONG_TIMEOUT_MINUTES:
        found = f"a collective that hangs is noticed after {minutes / 60:.0f} hours: it is minutes"
        remedy = "use 10, or up to 60 where indexing the data takes long"
        yield warning(Code.SLOW_TO_FAIL, ("runtime", "distributed_timeout_minutes"), found, remedy)
    if restarts > _MANY_RESTARTS:
        found = f"a mistake that ends every start would be tried {restarts} times on paid nodes"
        yield warning(Code.SLOW_TO_FAIL, ("runtime", "gang_restarts"), found, "use 3 to 20")


def _most(path: Path, nodes: int, pool: GpuPool) -> Findings:
    if nodes > pool.max_nodes:
        found = f"{nodes} nodes, and pool {pool.name!r} may have {pool.max_nodes}"
        remedy = f"use at most {pool.max_nodes}, or raise the pool's max_nodes"
        yield Finding(Code.TOO_MANY_NODES, path, found, remedy)


def _size(job: Job, cluster: ClusterConfig, instance: InstanceType | None) -> Findings:
    """Yield a pod that asks for more than its node has for pods: it would wait for ever."""
    node = cluster.system_nodes.instance_type if instance is None else instance.name
    if instance is not None:
        whole = whole_node(instance)
        cores, memory = whole.cpu_millis // 1000, whole.memory_mib // MIB_PER_GIB
    elif job.pool is None and node in SYSTEM_INSTANCE_TYPES:
        vcpus, memory_mib = system_node_size(node)
        cores, memory = vcpus - 1, memory_mib // MIB_PER_GIB - 2
    else:
        return
    for name, limit, unit in (("cpu", cores, "cores"), ("memory_gib", memory, "GiB")):
        wish = getattr(job.runtime, name)
        if wish is not None and wish > limit:
            found = f"{wish}, and a {node} has {limit} {unit} for pods"
            yield Finding(Code.POD_SIZE, ("runtime", name), found, f"use at most {limit}")


def check_pool(job: Job, cluster: ClusterConfig) -> Findings:
    """Yield a pool that the cluster does not have."""
    names = [known.name for known in cluster.gpu_pools]
    if job.pool not in names:
        found = f"no pool named {job.pool!r}"
        yield Finding(Code.UNKNOWN_POOL, ("pool",), found, choices(str(job.pool), names))


def _rendezvous(job: GpuJob, cluster: ClusterConfig) -> Iterator[tuple[str, str, str]]:
    runtime, elastic = job.runtime, job.runtime.elastic
    if runtime.rendezvous == "etcd" and not cluster.platform.etcd:
        remedy = "use c10d, which needs none, or set platform.etcd: true"
        yield "rendezvous", "the cluster has no etcd", remedy
    if runtime.rendezvous == "etcd" and runtime.host_network:
        # To a network policy a pod on the host network is its node, whatever its labels.
        found = "etcd answers pods of jobs, and on the host network they have the node's address"
        yield "rendezvous", found, "use c10d, or no host_network"
    if elastic is None:
        return
    least, most = elastic.min_nodes, elastic.max_nodes
    if runtime.rendezvous == "static":
        found = "static ranks are as many as there were at the start"
        yield "elastic", found, "set runtime.rendezvous: c10d"
    if least > most:
        remedy = "swap them, or use one number for both"
        yield "elastic", f"min_nodes {least} is above max_nodes {most}", remedy
    elif not least <= job.nodes <= most:
        found = f"{job.nodes} nodes are not between {least} and {most}"
        yield "elastic", found, "let the bounds hold nodes"


def check_tensor_parallelism(instance: InstanceType, tensor: int) -> Findings:
    """Yield what costs a layout its speed, though it would run."""
    if tensor > 1 and instance.gpus > 1 and not instance.nvlink_gb_s:
        found = f"the GPUs of a {instance.name} share PCIe, and every layer waits for tensor ranks"
        remedy = "prefer pipeline stages where the model fits; docs/parallelism.md"
        yield warning(Code.TENSOR_PARALLEL_OVER_PCIE, ("parallelism", "tensor"), found, remedy)


def check_task(job: Job, cluster: ClusterConfig) -> Findings:
    """Yield what is wrong with a job of programs that need no GPU."""
    yield from check_runtime(job, cluster)
    yield from no_meaning(job, _FOR_RANKS)
    if job.pool is not None:
        yield from check_pool(job, cluster)


def check_runtime(job: Job, cluster: ClusterConfig) -> Findings:
    """Yield what is wrong with the image of a job, and with how its pods run."""
    runtime = job.runtime
    yield from check_image(job, cluster)
    yield from check_tracking(job, cluster)
    for name in ("host_network", "ipc_lock"):
        if getattr(runtime, name) and cluster.platform.pod_security == "restricted":
            found = f"{name} breaks the restricted Pod Security of {cluster.platform.namespace!r}"
            remedy = "remove it (EFA needs neither), or set platform.pod_security: privileged"
            yield Finding(Code.POD_SECURITY, ("runtime", name), found, remedy)
    if runtime.ipc_lock and cluster.platform.pod_security == "privileged":
        found = "pods do not run as root, and an added capability reaches no other user"
        remedy = "remove it: the EKS AMI lifts the limit on locked memory for every container"
        yield warning(Code.POD_SECURITY, ("runtime", "ipc_lock"), found, remedy)
    yield from _priority(runtime.priority_class, cluster.platform.namespace)
    instance = gpu_instance(job, cluster)
    yield from _size(job, cluster, instance)
    yield from check_variables(job, cluster, instance)


def _priority(name: str | None, namespace: str) -> Findings:
    known = [each.name for each in PRIORITY_CLASSES]
    path: Path = ("runtime", "priority_class")
    if name in SYSTEM_PRIORITIES:
        found = f"{name} would push device plugins off their nodes: {namespace!r} refuses its pods"
        yield Finding(Code.PRIORITY_CLASS, path, found, f"use one of {', '.join(known)}")
    elif name is not None and name not in known:
        found = f"{name!r} is no class of this project, and without it no pod is made"
        remedy = f"make the PriorityClass before the job; {choices(name, known)}"
        yield warning(Code.PRIORITY_CLASS, path, found, remedy)


def no_meaning(job: Job, names: Iterable[str]) -> Findings:
    """Refuse settings of `runtime` that a kind of job would silently ignore."""
    for name in names:
        if name in job.runtime.model_fields_set:
            found = f"{name} has no meaning for {job.kind}"
            yield Finding(Code.NO_MEANING, ("runtime", name), found, "remove it")


def check_image(job: Job, cluster: ClusterConfig) -> Findings:
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
    if job.image == "fsdp" and isinstance(job, MegatronRun | ConvertCheckpointJob):
        found = "this image has no Megatron-LM"
        yield Finding(Code.UNKNOWN_IMAGE, ("image",), found, "use megatron")
    if is_digest(job.image):
        found = f"an image of yours, in which this project's programs are started as user {POD_UID}"
        remedy = "see that it holds what docs/images.md names under 'An image of yours'"
        yield warning(Code.OWN_IMAGE, ("image",), found, remedy)
    yield from _launcher(job, cluster)


def _launcher(job: Job, cluster: ClusterConfig) -> Findings:
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
        yield Finding(Code.LAUNCHER, path, found, "name a torchrun, such as /opt/venv/bin/torchrun")
    elif torchrun.startswith(_CONDA) and build and "BASE_IMAGE" not in build.build_args:
        remedy = "leave it out: the image's own torchrun is found without a path"
        yield Finding(Code.LAUNCHER, path, f"image {job.image} has no Conda", remedy)
