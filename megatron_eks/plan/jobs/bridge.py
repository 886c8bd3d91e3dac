"""Plan of `kind: megatron_bridge`: a Megatron-Bridge recipe with the job file's values on top."""

from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.cluster import ClusterPlan
from megatron_eks.plan.job import JobPlan
from megatron_eks.plan.jobs import environment
from megatron_eks.plan.jobs.common import (
    Images,
    Program,
    config_file,
    guard_args,
    log_directory,
    ranks,
)
from megatron_eks.plan.jobs.megatron import plan_training


def plan(job: MegatronBridgeJob, cluster: ClusterPlan, images: Images) -> JobPlan:
    """Plan a job that has passed the checks."""
    training = plan_training(job, cluster)
    logs = log_directory(job, cluster)
    blocks = ("model", "parallelism", "training", "data", "checkpoint", "overrides")
    path, files = config_file("train_bridge", job, blocks)
    instance = cluster.pool(job.pool).instance
    program = Program(
        name="train_bridge",
        args=("--recipe", job.recipe, "--config", path, *guard_args(job, cluster)),
        env=environment.environment(
            job,
            environment.collectives(logs),
            environment.megatron(training.layout, instance),
        ),
        files=files,
    )
    return ranks(job, cluster, images, program, training=training)
