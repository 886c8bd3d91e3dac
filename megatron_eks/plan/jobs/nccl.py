"""Plan and checks of `kind: nccl_test`: all-reduce between nodes, with a pass mark."""

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, warning
from megatron_eks.config.job import NcclTestJob
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs import environment
from megatron_eks.plan.jobs.arguments import options
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.pods import Images, Program, log_directory, ranks
from megatron_eks.plan.jobs.resources import gpu_instance, gpus_per_node, job_gpus
from megatron_eks.plan.jobs.runtime import check_gpus, no_meaning
from megatron_eks.plan.jobs.training import capacity_bytes
from megatron_eks.predict.memory import GIB

_BITS = 8
_HOPPER = 9
# From here on the catalogue's marks hold: `InstanceType.allreduce_min_busbw_gb_s`.
_MARK_BYTES = 1 << 30


def check(job: NcclTestJob, cluster: ClusterConfig) -> Findings:
    """Yield what keeps the test from measuring anything."""
    yield from check_gpus(job, cluster)
    # A number that is too low is not better the second time.
    names = ("gang_restarts", "distributed_timeout_minutes", "rendezvous", "elastic")
    yield from no_meaning(job, names)
    if job.min_bytes > job.max_bytes:
        found = f"{job.min_bytes} is above max_bytes {job.max_bytes}"
        yield Finding(Code.MESSAGE_SIZES, ("min_bytes",), found, "use at most max_bytes")
    instance = gpu_instance(job, cluster)
    if instance is None:
        return
    mark = _pass_mark(job, instance)
    if job.nodes > 1 and mark is None:
        found = f"no published all-reduce of {instance.name} to take a pass mark from"
        remedy = "give one of your own, or the test passes whatever it measures"
        yield warning(Code.UNKNOWN_FACT, ("pass_busbw_gb_s",), found, remedy)
    if job_gpus(job, instance) == 1:
        found = "one GPU has no other to reduce with, and nothing is measured"
        yield Finding(Code.MESSAGE_SIZES, ("nodes",), found, "use two nodes or more")
    catalogued = mark is not None and job.pass_busbw_gb_s is None
    if catalogued and job.min_bytes <= job.max_bytes < _MARK_BYTES:
        found = f"the mark of {mark:g} GB/s is for messages of {_MARK_BYTES} bytes or more"
        remedy = f"use at least {_MARK_BYTES}, or give pass_busbw_gb_s"
        yield Finding(Code.MESSAGE_SIZES, ("max_bytes",), found, remedy)
    yield from _reachable(job, instance)
    room = capacity_bytes(instance)
    if job.max_bytes > room:
        found = f"{job.max_bytes / GIB:.1f} GiB do not fit {instance.gpu.name}"
        yield Finding(Code.MESSAGE_SIZES, ("max_bytes",), found, f"use at most {room}")


def _reachable(job: NcclTestJob, instance: InstanceType) -> Findings:
    """Yield a mark that no all-reduce can reach, whatever algorithm NCCL chooses.

    Each byte goes to other nodes 2 (n-1)/n times at least, and is counted 2 (r-1)/r times for r
    ranks (nccl-tests, doc/PERFORMANCE.md). Inside a node NVLink SHARP, since Hopper, sends once.
    """
    mark, ranks = job.pass_busbw_gb_s, job_gpus(job, instance)
    if mark is None or ranks == 1:
        return
    counted = 2 * (ranks - 1) / ranks
    if job.nodes > 1:
        if not instance.efa_interfaces:
            return  # Small types have bursts above what is written of them.
        name, speed = "network", instance.network_gbps / _BITS
        limit = speed * counted / (2 * (job.nodes - 1) / job.nodes)
    else:
        name, speed = "NVLink", instance.nvlink_gb_s / 2
        limit = speed * (counted if instance.gpu.cuda_major >= _HOPPER else 1)
    if 0 < limit < mark:
        of = f"{speed:g} GB/s of {name} of {instance.name}"
        found = f"{mark:g} GB/s, and {of} make {limit:.0f} at most"
        remedy = "use about three quarters of that, or leave it out"
        yield Finding(Code.OUT_OF_RANGE, ("pass_busbw_gb_s",), found, remedy)


def plan(job: NcclTestJob, cluster: ClusterPlan, images: Images) -> JobPlan:
    """Plan a job that has passed the checks."""
    logs = log_directory(job, cluster)
    mark = _pass_mark(job, cluster.pool(job.pool).instance)
    program = Program(
        name="allreduce_bench",
        args=options(
            min_bytes=job.min_bytes,
            max_bytes=job.max_bytes,
            pass_busbw_gb_s=f"{mark:g}" if mark else None,
        ),
        env=environment.environment(job, environment.collectives(logs)),
    )
    return ranks(job, cluster, images, program, restarts=0)


def _pass_mark(job: NcclTestJob, instance: InstanceType) -> float | None:
    """Return the mark; the catalogue's is for the network between whole nodes."""
    whole = job.nodes > 1 and gpus_per_node(job, instance) == instance.gpus
    return job.pass_busbw_gb_s or (instance.allreduce_min_busbw_gb_s if whole else None)
