"""The jobs that prove a pool: EFA, all-reduce, the file system, and twenty steps of training."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

from megatron_eks.catalog.instances import MIB_PER_GIB, InstanceType
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.job import FsdpJob, Job, NcclTestJob
from megatron_eks.config.runtime import Runtime
from megatron_eks.config.training import Checkpoint, FsdpData, FsdpTraining
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.platform import CHECKED_NODES, VALIDATION_PRIORITY
from megatron_eks.plan.cluster.pools import PoolPlan
from megatron_eks.plan.jobs import nccl, pytorch
from megatron_eks.plan.jobs.job import CONFIG_DIRECTORY, JobPlan
from megatron_eks.plan.jobs.pods import Images, Program, task
from megatron_eks.plan.jobs.resources import Resources, gpu_resources, whole_node

# A finished job goes, so that it can run again; until then its log can be read. One that gets no
# node gives up, instead of taking GPUs from others days later; images of 20 GB come within that.
_KEPT_SECONDS = 3600
_DEADLINE_SECONDS = 3600

_CPU_MILLIS, _MEMORY_MIB = 8000, 16 * MIB_PER_GIB

_ONCE = Runtime(gang_restarts=0)

_STEPS = 20
_LENGTH = 64
_DOCUMENTS, _DOCUMENT_TOKENS = 64, 65
_VOCABULARY = 256
_SAMPLE = "sample"


def plan_validation(cluster: ClusterPlan, images: Images) -> tuple[JobPlan, ...]:
    """Plan what each pool is tested with; none of it is part of the platform."""
    return tuple(
        replace(
            job,
            ttl_seconds=_KEPT_SECONDS,
            deadline_seconds=_DEADLINE_SECONDS,
            priority_class=VALIDATION_PRIORITY,
        )
        for pool in cluster.pools
        for job in _jobs(pool, cluster, images)
    )


def _jobs(pool: PoolPlan, cluster: ClusterPlan, images: Images) -> Iterator[JobPlan]:
    if pool.instance.efa_interfaces:
        yield _efa(pool, cluster, images)
    yield _all_reduce(pool, cluster, images)
    yield _storage(pool, cluster, images)
    yield _sample_training(pool, cluster, images)


def _efa(pool: PoolPlan, cluster: ClusterPlan, images: Images) -> JobPlan:
    node = gpu_resources(pool.instance, pool.instance.gpus, nodes=1, shm_gib=None)
    resources = replace(_small(pool.instance), efa=node.efa, hugepages_mib=node.hugepages_mib)
    program = Program("efa_check", ("--expect", str(node.efa)), {})
    return task(_job("efa-check", pool), cluster, images, program, resources=resources)


def _all_reduce(pool: PoolPlan, cluster: ClusterPlan, images: Images) -> JobPlan:
    job = NcclTestJob(
        schema_version=1,
        kind="nccl_test",
        name=f"all-reduce-{pool.name}",
        pool=pool.name,
        nodes=min(CHECKED_NODES, pool.max_nodes),
    )
    return nccl.plan(job, cluster, images)


def _storage(pool: PoolPlan, cluster: ClusterPlan, images: Images) -> JobPlan:
    lustre = cluster.storage.lustre
    mark = int(lustre.write_mb_s)
    args = ("--directory", f"{lustre.settings.mount_path}/cache", "--pass-mb-s", str(mark))
    program = Program("storage_bench", args, {})
    return task(_job("storage", pool), cluster, images, program, resources=_small(pool.instance))


def _sample_training(pool: PoolPlan, cluster: ClusterPlan, images: Images) -> JobPlan:
    job = FsdpJob(
        schema_version=1,
        kind="fsdp",
        name=f"sample-training-{pool.name}",
        pool=pool.name,
        # One node: two jobs that each hold one of two nodes would wait for each other.
        nodes=1,
        model=ModelSpec(
            num_layers=4,
            hidden_size=256,
            ffn_hidden_size=1024,
            num_attention_heads=4,
            num_query_groups=4,
            kv_channels=64,
            vocab_size=_VOCABULARY,
            max_position_embeddings=_LENGTH,
        ),
        training=FsdpTraining(
            max_steps=_STEPS,
            sequence_length=_LENGTH,
            learning_rate=1e-3,
            validation_interval=_STEPS // 2,
        ),
        data=FsdpData(dataset=f"{CONFIG_DIRECTORY}/{_SAMPLE}", tokenizer=CONFIG_DIRECTORY),
        # On the node's own disk: a second run has to train, not to resume at its end.
        checkpoint=Checkpoint(directory="/tmp/checkpoints", async_save=False),  # noqa: S108 -- in the pod
        runtime=_ONCE,
    )
    plan = pytorch.plan(job, cluster, images)
    return replace(plan, files={**plan.files, **_sample_data()})


def _job(name: str, pool: PoolPlan) -> Job:
    return Job(
        schema_version=1,
        kind=name.replace("-", "_"),
        name=f"{name}-{pool.name}",
        pool=pool.name,
        runtime=_ONCE,
    )


def _small(instance: InstanceType) -> Resources:
    cpu = min(_CPU_MILLIS, whole_node(instance).cpu_millis)
    return Resources(cpu, min(_MEMORY_MIB, instance.memory_mib // 2))


def _sample_data() -> dict[str, bytes]:
    """Return an indexed data set in which each token follows from the one before it.

    Layout: megatron/core/datasets/indexed_dataset.py at core_v0.19.0.
    """
    tokens = list(
        accumulate(range(_DOCUMENTS * _DOCUMENT_TOKENS), lambda token, _: (5 * token + 3) % 256)
    )
    step = 2 * _DOCUMENT_TOKENS
    sixteen_bit = 8
    index = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, sixteen_bit, _DOCUMENTS, _DOCUMENTS + 1)
    index += struct.pack(f"<{_DOCUMENTS}i", *[_DOCUMENT_TOKENS] * _DOCUMENTS)
    index += struct.pack(f"<{_DOCUMENTS}q", *range(0, step * _DOCUMENTS, step))
    index += struct.pack(f"<{_DOCUMENTS + 1}q", *range(_DOCUMENTS + 1))
    return {f"{_SAMPLE}.bin": struct.pack(f"<{len(tokens)}H", *tokens), f"{_SAMPLE}.idx": index}
