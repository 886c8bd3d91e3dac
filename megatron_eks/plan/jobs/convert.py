"""Plan and checks of `kind: convert_checkpoint`: weights to Megatron's form and back, on CPUs."""

from dataclasses import replace

from megatron_eks.catalog.bridge_fields import ARCHITECTURES, VERSION
from megatron_eks.catalog.instances import MIB_PER_GIB, SYSTEM_INSTANCE_TYPES
from megatron_eks.catalog.models import ARCHITECTURE_OF, PRESETS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Level, warning
from megatron_eks.config.job import ConvertCheckpointJob
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs import environment
from megatron_eks.plan.jobs.arguments import options
from megatron_eks.plan.jobs.job import MIB, JobPlan
from megatron_eks.plan.jobs.models import unknown_preset
from megatron_eks.plan.jobs.pods import Images, Program, task
from megatron_eks.plan.jobs.resources import (
    Resources,
    gpu_instance,
    system_resources,
    task_node,
    whole_node,
)
from megatron_eks.plan.jobs.runtime import check_task
from megatron_eks.plan.jobs.sources import outside
from megatron_eks.predict.conversion import conversion, memory_bytes

_CPU_MILLIS = 8000


def check(job: ConvertCheckpointJob, cluster: ClusterConfig) -> Findings:
    """Yield what keeps the weights from being converted."""
    yield from check_task(job, cluster)
    yield from outside([(("source",), job.source), (("target",), job.target)], cluster)
    if job.source == job.target:
        found = "source and target are the same directory"
        yield Finding(Code.SHARED_PATH, ("target",), found, "write elsewhere")
    elif job.target.startswith(f"{job.source}/") or job.source.startswith(f"{job.target}/"):
        found = f"{job.target} and {job.source} stand inside each other"
        remedy = "write elsewhere: what reads one of them would find the other's files"
        yield warning(Code.SHARED_PATH, ("target",), found, remedy)
    if job.model not in PRESETS:
        problem = unknown_preset(("model",), job.model)
        yield replace(problem, found=f"{problem.found}: others are not supported yet")
        return
    yield from _architecture(job)
    yield from _memory(job, cluster)


def _architecture(job: ConvertCheckpointJob) -> Findings:
    name = ARCHITECTURE_OF.get(job.model)
    if name in ARCHITECTURES:
        return
    found = f"Megatron-Bridge {VERSION} has no bridge for {name}"
    remedy = "name an image of yours whose Megatron-Bridge has one"
    remedy += ", or train from random weights" * (job.direction == "import")
    if name is None:
        found = f"{job.model} has no counterpart in transformers, so nothing to convert to or from"
        remedy = "train it from random weights, or name a Llama or a Mistral"
    level = Level.ERROR if job.image == "megatron" or name is None else Level.WARNING
    yield Finding(Code.NO_CONVERSION, ("model",), found, remedy, level)


def _memory(job: ConvertCheckpointJob, cluster: ClusterConfig) -> Findings:
    needed = _needed_mib(job.model)
    found = f"reading and writing {job.model} in bf16 takes {needed // MIB_PER_GIB} GiB"
    instance = gpu_instance(job, cluster)
    system = cluster.system_nodes.instance_type
    if job.pool is None and system in SYSTEM_INSTANCE_TYPES:
        offered, place = system_resources(system).memory_mib, f"a pod on {system} gets"
        remedy = f"name a pool, such as {cluster.gpu_pools[0].name}: it takes none of its GPUs"
    elif instance is not None:
        offered = whole_node(instance).memory_mib
        place, remedy = f"a {instance.name} has", "name a pool of a larger type"
    else:
        return
    if needed > offered:
        found = f"{found}, and {place} {offered // MIB_PER_GIB}"
        yield Finding(Code.TASK_MEMORY, ("pool",), found, remedy)


def _needed_mib(model: str) -> int:
    return -(-memory_bytes(PRESETS[model]) // (MIB * MIB_PER_GIB)) * MIB_PER_GIB


def plan(job: ConvertCheckpointJob, cluster: ClusterPlan, images: Images) -> JobPlan:
    """Plan a job that has passed the checks."""
    program = Program(
        name="convert_checkpoint",
        args=options(
            direction=job.direction, source=job.source, target=job.target, model=job.model
        ),
        env=environment.environment(job),
    )
    offered = task_node(job, cluster)
    cpu = min(_CPU_MILLIS, offered.cpu_millis)
    resources = Resources(cpu, _needed_mib(job.model)) if job.pool else offered
    plan = task(job, cluster, images, program, resources=resources)
    expected = conversion(
        PRESETS[job.model],
        capacity_bytes=offered.memory_mib * MIB,
        storage_bytes_per_second=cluster.storage.lustre.write_mb_s * 1e6,
    )
    return replace(plan, conversion=expected)
