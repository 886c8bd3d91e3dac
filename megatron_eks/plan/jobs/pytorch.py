"""Plans of `kind: fsdp` and `kind: ddp`: PyTorch's own ways to train on many GPUs."""

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.job import DdpJob, FsdpJob, TorchRun
from megatron_eks.plan.cluster import ClusterPlan
from megatron_eks.plan.job import JobPlan, Training
from megatron_eks.plan.jobs import environment
from megatron_eks.plan.jobs.common import (
    Images,
    Program,
    config_file,
    gpus_per_node,
    guard_args,
    job_goodput,
    log_directory,
    ranks,
    token_file,
)
from megatron_eks.plan.jobs.layout import capacity_bytes, hardware, model_shape
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.memory import MemoryEstimate
from megatron_eks.predict.parameters import parameters
from megatron_eks.predict.replicas import (
    CHECKPOINT_BYTES_PER_PARAMETER,
    estimate_copied,
    estimate_sharded,
)
from megatron_eks.predict.throughput import Speed, fsdp_speed


def plan_fsdp(job: FsdpJob, cluster: ClusterPlan, images: Images) -> JobPlan:
    """Plan a job that has passed the checks."""
    instance = cluster.pool(job.pool).instance
    training = _training(job, cluster, fsdp_memory(job, model_shape(job.model), instance))
    program = _program("train_fsdp", job, cluster)
    return ranks(job, cluster, images, program, training=training)


def plan_ddp(job: DdpJob, cluster: ClusterPlan, images: Images) -> JobPlan:
    """Plan a job that has passed the checks; it needs no operator."""
    instance = cluster.pool(job.pool).instance
    training = _training(job, cluster, ddp_memory(job, model_shape(job.model), instance))
    program = _program("train_ddp", job, cluster)
    return ranks(job, cluster, images, program, training=training, workload="indexed_job")


def fsdp_memory(job: TorchRun, model: ModelShape, instance: InstanceType) -> MemoryEstimate:
    """Estimate the memory of a rank that holds a share of the model."""
    per_node = gpus_per_node(job, instance)
    shards = per_node if job.training.sharding == "hybrid" else per_node * job.nodes
    return estimate_sharded(
        model, _batch(job), capacity_bytes(instance), shards=shards, loss="pieces"
    )


def ddp_memory(job: TorchRun, model: ModelShape, instance: InstanceType) -> MemoryEstimate:
    """Estimate the memory of a rank that holds the whole model."""
    return estimate_copied(model, _batch(job), capacity_bytes(instance), loss="pieces")


def _batch(job: TorchRun) -> Batch:
    training = job.training
    return Batch(
        micro_batch_size=training.train_batch_size,
        sequence_length=training.sequence_length,
        microbatches=1,
        recompute="full" if training.activation_checkpointing else "none",
    )


def _training(job: TorchRun, cluster: ClusterPlan, memory: MemoryEstimate) -> Training:
    instance = cluster.pool(job.pool).instance
    model, training = model_shape(job.model), job.training
    gpus = job.nodes * gpus_per_node(job, instance)
    layout = _layout(gpus)
    speed = torch_speed(job, model, instance)
    size = parameters(model) * CHECKPOINT_BYTES_PER_PARAMETER
    tokens = training.max_steps * training.train_batch_size * gpus * training.sequence_length
    corpus = job.data.corpus_tokens
    return Training(
        model=model,
        layout=layout,
        memory=memory,
        speed=speed,
        goodput=job_goodput(job, cluster, gpus, size, speed) if speed else None,
        checkpoint_bytes=size,
        tokens=tokens,
        epochs=tokens / corpus if corpus else None,
    )


def torch_speed(job: TorchRun, model: ModelShape, instance: InstanceType) -> Speed | None:
    """Predict the steps of a run; None where the GPU's peak is unknown."""
    layout, found = _layout(job.nodes * gpus_per_node(job, instance)), hardware(instance)
    # DDP reduces fp32 gradients once, which travels as far as what FSDP gathers and reduces.
    return fsdp_speed(model, layout, _batch(job), found) if found else None


def _layout(gpus: int) -> Layout:
    return Layout(tensor=1, pipeline=1, context=1, data=gpus, sequence_parallel=False)


def _program(name: str, job: TorchRun, cluster: ClusterPlan) -> Program:
    logs = log_directory(job, cluster)
    path, files = config_file(name, job, ("model", "training", "data", "checkpoint"))
    token = token_file(job.token_secret)
    return Program(
        name=name,
        args=("--config", path, *guard_args(job, cluster)),
        env=environment.environment(
            job, environment.collectives(logs), environment.hugging_face(token)
        ),
        files=files,
        secrets=(token,) if token else (),
    )
