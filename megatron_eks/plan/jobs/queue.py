"""Whether the queue of a job can ever hold it."""

from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.job import GpuJob
from megatron_eks.plan.cluster.pools import plan_pool
from megatron_eks.plan.cluster.queues import plan_queues
from megatron_eks.plan.cluster.teams import TeamPlan, plan_teams
from megatron_eks.plan.jobs.resources import gpu_pool, job_gpus


def check_queue(job: GpuJob, cluster: ClusterConfig) -> Iterator[Finding]:
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
    pools = [plan_pool(each, cluster.kubernetes_version) for each in cluster.gpu_pools]
    shares = [
        (each.team, share.gpus)
        for each in plan_queues(pools, teams)
        for share in each.shares
        if share.pool == pool.name
    ]
    own = next(gpus for owner, gpus in shares if owner == team)
    most = sum(gpus for _, gpus in shares) if team.may_borrow else own
    wanted = job_gpus(job, INSTANCES[pool.instance_type])
    # More than its whole share is its team's to refuse.
    if most < wanted <= team.gpus:
        yield from _too_large(team, pool.name, wanted, own)


def _too_large(team: TeamPlan, pool: str, wanted: int, own: int) -> Iterator[Finding]:
    found = f"{wanted} GPUs, and of pool {pool!r} team {team.name} has {own} and may not borrow"
    remedy = "use fewer nodes or another pool, or change the team's gpus or may_borrow"
    yield Finding(Code.QUEUE_SHARE, ("nodes",), found, remedy)
