"""What the exporter in a job's pods is told of the job, where somebody is to be told by it."""

from dataclasses import replace

from megatron_eks.config.job import Job, MegatronJob, MegatronRun, TorchRun, TorchrunJob
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.observability import METRICS_PORT
from megatron_eks.plan.jobs.job import Training
from megatron_eks.plan.jobs.resources import job_gpus
from megatron_eks.plan.jobs.tracking import trackers
from megatron_eks.plan.jobs.training import step_tokens, steps
from megatron_eks.programs.exporter.event_files import VARIABLE
from megatron_eks.programs.exporter.plan import Plan

_STARTS = 2


def plan_metrics(job: Job, cluster: ClusterPlan, training: Training | None) -> Plan | None:
    """Return it for a run that makes steps; None for others, and where nobody is to be told."""
    sends = isinstance(job, MegatronJob) and "mlflow" in trackers(job)
    is_watched = cluster.observability is not None
    if not isinstance(job, MegatronRun | TorchRun | TorchrunJob) or not (is_watched or sends):
        return None
    plan = Plan(job.name, job.kind, METRICS_PORT if is_watched else 0, nodes=job.nodes)
    plan = replace(plan, mlflow=True) if sends else plan
    if isinstance(job, TorchrunJob):
        saved = job.checkpoint.directory if job.checkpoint else None
        gpus = job_gpus(job, cluster.pool(job.pool).instance)
        plan = replace(plan, event_files=job.runtime.env.get(VARIABLE, saved), gpus=gpus)
    if training and isinstance(job, MegatronRun | TorchRun):
        plan = replace(
            plan,
            steps=steps(job)[1],
            tokens=step_tokens(job, training.layout.gpus),
            log_interval=job.training.log_interval,
            save_interval=job.checkpoint.interval,
        )
    if isinstance(job, TorchRun):
        plan = replace(plan, metrics_file=f"{job.checkpoint.directory}/metrics.jsonl")
    if training and (speed := training.speed) and (goodput := training.goodput):
        seconds, rate = speed.step_seconds, speed.tokens_per_second_per_gpu
        plan = replace(
            plan,
            peak_seconds=speed.mfu * seconds,
            step_seconds=seconds,
            step_seconds_low=seconds * rate / speed.high,
            step_seconds_high=seconds * rate / speed.low,
            goodput=goodput.expected,
            start_seconds=_STARTS * goodput.restart_seconds,
        )
    return plan
