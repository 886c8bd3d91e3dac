"""Whether the queue of a job can ever hold it."""

from collections.abc import Mapping
from math import lcm
from typing import NamedTuple

from megatron_eks.catalog import kueue
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path
from megatron_eks.config.job import GpuJob
from megatron_eks.plan.cluster.pools import plan_pools
from megatron_eks.plan.cluster.queues import plan_queues, topology_levels
from megatron_eks.plan.cluster.teams import plan_teams
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.resources import gpu_pool, job_gpus

_PIPELINE_INSIDE = "--use-tp-pp-dp-mapping"
_APART = "; a PyTorchJob cannot keep groups of nodes together, runtime.workload: jobset can"


def check_queue(job: GpuJob, cluster: ClusterConfig) -> Findings:
    """Yield a queue that is not there, and a job that is larger than its own can get."""
    path: Path = ("runtime", "queue")
    queue = job.runtime.queue
    if not cluster.platform.kueue:
        if queue is not None:
            found = f"the cluster has no queues, so none named {queue!r}"
            yield Finding(Code.QUEUE, path, found, "remove it, or set platform.kueue: true")
        return
    teams = plan_teams(cluster, ())
    team = next((each for each in teams if job.team in {None, each.name}), None)
    if team is None or (job.team is None and cluster.teams):
        return
    if queue not in {None, team.name}:
        found = f"{queue!r} is not the queue of team {team.name}, and no other takes its jobs"
        yield Finding(Code.QUEUE, path, found, f"leave it out, or use {team.name}")
    pool = gpu_pool(job, cluster)
    if pool is None or any(each.instance_type not in INSTANCES for each in cluster.gpu_pools):
        return
    shares = [
        (each.team, share.gpus)
        for each in plan_queues(plan_pools(cluster), teams)
        for share in each.shares
        if share.pool == pool.name
    ]
    own = next(gpus for owner, gpus in shares if owner == team)
    most = sum(gpus for _, gpus in shares) if team.may_borrow else own
    wanted = job_gpus(job, INSTANCES[pool.instance_type])
    # More than its whole share is its team's to refuse.
    if most < wanted <= team.gpus:
        found = f"{wanted} GPUs, and of pool {pool.name!r} team {team.name} has {own}"
        remedy = "use fewer nodes or another pool, or change the team's gpus or may_borrow"
        yield Finding(Code.QUEUE_SHARE, ("nodes",), f"{found} and may not borrow", remedy)


class Placement(NamedTuple):
    """What Kueue is asked for, of all pods of a job."""

    annotations: Mapping[str, str]
    """Of the pods."""
    why: str


def group_nodes(job: JobPlan) -> int:
    """Return on how many nodes in a row those ranks lie that wait for each other in each layer.

    Megatron numbers ranks by tensor, context, expert, data and pipeline parallel place, in that
    order, or with an option by pipeline before data (Megatron-LM core_v0.19.2,
    megatron/training/initialize.py). Stages of a pipeline are far from each other, and exchange
    little.
    """
    layout = job.training.layout if job.training else None
    if layout is None or not job.resources.gpus:
        return 1
    experts = layout.expert * layout.expert_tensor if layout.expert > 1 else 1
    gpus = lcm(layout.tensor * layout.context, experts)
    if _PIPELINE_INSIDE in job.args:
        gpus *= layout.pipeline
    return -(-min(gpus, job.gpus) // job.resources.gpus)


def placement(job: JobPlan) -> Placement | None:
    """Return where its pods are wanted; None for one, without a queue, or if EC2 tells nothing.

    A whole job is wanted below one network node, and never required to be: AWS does not tell how
    many nodes are below one, and a job that waits for ever stands still. Groups that exchange data
    within each layer are required to be, unless `meks submit` sees that the nodes cannot do it.
    """
    if not (job.gang and job.nodes > 1 and job.pool and job.queue_labels):
        return None
    *layers, _ = topology_levels(job.pool)
    if not layers:
        return None
    wanted = {kueue.PREFERRED_ANNOTATION: layers[-1]}
    whole = f"{job.nodes} nodes below one network node if there is room (preferred)"
    size = group_nodes(job)
    if job.workload == "pytorchjob" and not job.rendezvous:
        # A master is counted apart from its workers; a group has one place, and no slices.
        why = f"{whole}{_APART if size > 1 else ''}"
        return Placement({**wanted, kueue.GROUP_ANNOTATION: job.name}, why)
    if size == 1 or job.nodes % size:
        return Placement(wanted, whole)
    slices = {kueue.SLICE_ANNOTATION: layers[-1], kueue.SLICE_SIZE_ANNOTATION: str(size)}
    why = f"every {size} nodes in a row below one network node (slice), because their ranks "
    why += f"wait for each other in each layer; all {whole}"
    return Placement({**wanted, **slices}, why)
