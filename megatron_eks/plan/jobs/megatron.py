"""Plans of `kind: megatron` and `kind: megatron_bridge`: their own programs behind our checks."""

from collections.abc import Sequence

from megatron_eks.config.job import MegatronBridgeJob, MegatronJob, MegatronRun
from megatron_eks.plan.cluster import ClusterPlan
from megatron_eks.plan.job import JobPlan, Training
from megatron_eks.plan.jobs import environment
from megatron_eks.plan.jobs.arguments import megatron_arguments
from megatron_eks.plan.jobs.common import (
    Images,
    Program,
    config_file,
    gpus_per_node,
    guard_args,
    job_goodput,
    log_directory,
    ranks,
)
from megatron_eks.plan.jobs.layout import job_layout, job_memory, job_speed, model_shape
from megatron_eks.predict.memory import CHECKPOINT_BYTES_PER_PARAMETER
from megatron_eks.predict.parameters import parameters


def plan(job: MegatronJob, cluster: ClusterPlan, images: Images) -> JobPlan:
    """Plan a job that has passed the checks."""
    instance = cluster.pool(job.pool).instance
    training = plan_training(job, cluster)
    logs = log_directory(job, cluster)
    program = Program(
        name="train_megatron",
        args=(
            "--keep-last",
            str(job.checkpoint.keep_last),
            *(("--s3-uri", job.checkpoint.s3_uri) if job.checkpoint.s3_uri else ()),
            *guard_args(job, cluster),
            "--",
            *megatron_arguments(job, training.model, training.layout, logs),
        ),
        env=environment.environment(
            job,
            environment.collectives(logs),
            environment.megatron(training.layout, instance),
        ),
        files={},
    )
    return ranks(job, cluster, images, program, training=training)


def epochs(tokens: int, corpus: int | None, split: Sequence[float]) -> float | None:
    """Return how often a run sees the training part of its corpus."""
    return tokens / (corpus * split[0] / sum(split)) if corpus and split[0] else None


def plan_training(job: MegatronRun, cluster: ClusterPlan) -> Training:
    """Return what a run makes of its model on the GPUs that it takes."""
    instance = cluster.pool(job.pool).instance
    model = model_shape(job.model)
    layout = job_layout(job, job.nodes * gpus_per_node(job, instance))
    training = job.training
    speed = job_speed(job, model, layout, instance)
    size = parameters(model) * CHECKPOINT_BYTES_PER_PARAMETER
    tokens = training.train_iters * training.global_batch_size * training.sequence_length
    return Training(
        model=model,
        layout=layout,
        memory=job_memory(job, model, layout, instance),
        speed=speed,
        goodput=job_goodput(job, cluster, layout.gpus, size, speed) if speed else None,
        checkpoint_bytes=size,
        tokens=tokens,
        epochs=epochs(tokens, job.data.corpus_tokens, job.data.split),
    )


def plan_bridge(job: MegatronBridgeJob, cluster: ClusterPlan, images: Images) -> JobPlan:
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
