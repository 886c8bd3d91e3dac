"""What a job file can get wrong although every value in it has the right type."""

import re
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING

from megatron_eks.catalog.environment import IMAGE_VARIABLES, POLICIES, Policy, Verdict, judge
from megatron_eks.catalog.instances import INSTANCES, MIB_PER_GIB
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.errors import Code, Finding, Level, choices, has_errors
from megatron_eks.config.outputs import is_digest
from megatron_eks.plan.cluster import REPOSITORIES
from megatron_eks.plan.hardware_checks import check_hardware
from megatron_eks.plan.job import memory_limit_mib, model_shape
from megatron_eks.plan.layout_checks import check_layout, check_memory
from megatron_eks.plan.quotas import PRIORITY_CLASSES, SYSTEM_PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.config.architecture import ModelSpec
    from megatron_eks.config.cluster import ClusterConfig, GpuPool
    from megatron_eks.config.errors import Path
    from megatron_eks.config.job import MegatronJob

# Presets whose arguments and memory are complete.
DENSE = sorted(name for name, model in PRESETS.items() if model.num_experts is None)

_SHARES = 3

# Names that differ by a slip, not by a meaning.
_CLOSE = 0.9
_DNS_LABEL_LENGTH = 63
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_job(job: "MegatronJob", cluster: "ClusterConfig") -> "Iterator[Finding]":
    """Yield everything wrong with a job on its cluster, errors and warnings."""
    pool = next((pool for pool in cluster.gpu_pools if pool.name == job.pool), None)
    yield from _names(job)
    yield from _model(job.model)
    yield from _training(job)
    yield from _data(job)
    yield from _paths(job, cluster.storage.lustre.mount_path)
    yield from _runtime(job, cluster)
    if pool is None:
        names = [known.name for known in cluster.gpu_pools]
        yield Finding(
            Code.UNKNOWN_POOL, ("pool",), f"no pool named {job.pool!r}", choices(job.pool, names)
        )
    elif pool.instance_type in INSTANCES:
        yield from _nodes(job, pool)
        yield from check_hardware(pool, nodes=job.nodes, tensor=job.parallelism.tensor)
        if not has_errors(_model(job.model)):
            yield from _placement(job, pool, cluster)


def _names(job: "MegatronJob") -> "Iterator[Finding]":
    longest = f"{job.name}-worker-{max(0, job.nodes - 2)}"
    if len(longest) > _DNS_LABEL_LENGTH:
        found = f"the Service {longest!r} would have {len(longest)} characters, and 63 are allowed"
        remedy = f"shorten the name by {len(longest) - _DNS_LABEL_LENGTH} characters"
        yield Finding(Code.NAME_TOO_LONG, ("name",), found, remedy)
    if job.image == "fsdp":
        found = "this image has no Megatron-LM"
        yield Finding(Code.UNKNOWN_IMAGE, ("image",), found, "use megatron")
    elif job.image not in REPOSITORIES and not is_digest(job.image):
        found = f"{job.image!r} is neither a repository of this cluster nor a URI with a digest"
        remedy = f"{choices(job.image, REPOSITORIES)}; or REGISTRY/NAME@sha256:..."
        yield Finding(Code.UNKNOWN_IMAGE, ("image",), found, remedy)


def _model(model: "str | ModelSpec") -> "Iterator[Finding]":
    name = model if isinstance(model, str) else model.preset
    if name is not None:
        path: Path = ("model",) if isinstance(model, str) else ("model", "preset")
        if name not in PRESETS:
            yield Finding(
                Code.UNKNOWN_MODEL, path, f"unknown preset {name!r}", choices(name, DENSE)
            )
        elif name not in DENSE:
            found = f"{name} has experts, and mixtures of experts are not supported yet"
            yield Finding(Code.NOT_SUPPORTED_YET, path, found, f"use one of {', '.join(DENSE)}")
        return
    given = set() if isinstance(model, str) else set(model.model_dump(exclude_none=True))
    required = [field.name for field in fields(ModelShape) if field.default is MISSING]
    missing = [name for name in required if name not in given]
    if missing:
        remedy = "add them, or name a preset"
        yield Finding(
            Code.UNKNOWN_MODEL,
            ("model",),
            f"without preset, {', '.join(missing)} are missing",
            remedy,
        )


def _nodes(job: "MegatronJob", pool: "GpuPool") -> "Iterator[Finding]":
    gpus = INSTANCES[pool.instance_type].gpus
    if job.nodes > pool.max_nodes:
        found = f"{job.nodes} nodes, and pool {pool.name!r} may have {pool.max_nodes}"
        remedy = f"use at most {pool.max_nodes}, or raise the pool's max_nodes"
        yield Finding(Code.TOO_MANY_NODES, ("nodes",), found, remedy)
    if job.gpus_per_node is not None and job.gpus_per_node > gpus:
        found = f"{job.gpus_per_node} GPUs, and a {pool.instance_type} has {gpus}"
        yield Finding(Code.GPUS_PER_NODE, ("gpus_per_node",), found, f"use {gpus}, or leave it out")
    elif job.gpus_per_node is not None and job.gpus_per_node < gpus:
        found = f"a part of a node's GPUs ({job.gpus_per_node} of {gpus}) is not supported yet"
        yield Finding(
            Code.NOT_SUPPORTED_YET, ("gpus_per_node",), found, f"use {gpus}, or leave it out"
        )


def _placement(
    job: "MegatronJob", pool: "GpuPool", cluster: "ClusterConfig"
) -> "Iterator[Finding]":
    """Check what depends on model and GPU together."""
    instance = INSTANCES[pool.instance_type]
    model = model_shape(job.model)
    layout_findings = list(check_layout(job, model, instance))
    yield from layout_findings
    if not has_errors(layout_findings):
        yield from check_memory(job, model, instance, cluster)
    if job.training.precision == "fp8" and not instance.gpu.has_fp8:
        path: Path = ("training", "precision")
        yield Finding(Code.PRECISION, path, f"{instance.gpu.name} has no FP8", "use bf16")
    if job.training.sequence_length > model.max_position_embeddings:
        most = model.max_position_embeddings
        found = f"{job.training.sequence_length} positions, and the model has {most}"
        remedy = "shorten the sequence, or raise model.max_position_embeddings"
        yield Finding(Code.LAYOUT_SEQUENCE, ("training", "sequence_length"), found, remedy)
    limit_gib = memory_limit_mib(instance) // MIB_PER_GIB
    if job.runtime.shm_gib > limit_gib // 2:
        found = f"{job.runtime.shm_gib} GiB of /dev/shm count against {limit_gib} GiB of pod memory"
        yield Finding(Code.SHM, ("runtime", "shm_gib"), found, f"use at most {limit_gib // 2}")


def _training(job: "MegatronJob") -> "Iterator[Finding]":
    training = job.training
    if training.min_learning_rate > training.learning_rate:
        found = f"{training.min_learning_rate} is above learning_rate {training.learning_rate}"
        path: Path = ("training", "min_learning_rate")
        yield Finding(Code.SCHEDULE, path, found, "use a value between 0 and learning_rate")
    decay = training.decay_iters or training.train_iters
    if training.warmup_iters >= decay:
        found = f"{training.warmup_iters} warm-up iterations, and the rate decays until {decay}"
        yield Finding(Code.SCHEDULE, ("training", "warmup_iters"), found, f"use fewer than {decay}")
    if job.checkpoint.interval > training.train_iters:
        found = f"the run ends after {training.train_iters} iterations, before the first checkpoint"
        remedy = f"use at most {training.train_iters}"
        yield Finding(Code.SCHEDULE, ("checkpoint", "interval"), found, remedy, Level.WARNING)
    if training.recompute != "full":
        for name in ("recompute_method", "recompute_layers"):
            if getattr(training, name) is not None:
                found = f"{name} has a meaning with recompute: full only"
                yield Finding(
                    Code.RECOMPUTE, ("training", name), found, "remove it, or set recompute: full"
                )
    if job.checkpoint.format == "torch" and job.checkpoint.async_save:
        found = "Megatron saves asynchronously in the torch_dist format only"
        yield Finding(
            Code.SCHEDULE, ("checkpoint", "async_save"), found, "set it to false, or use torch_dist"
        )


def _data(job: "MegatronJob") -> "Iterator[Finding]":
    data = job.data
    if (data.prefix is None) == (data.blend is None):
        found = "neither prefix nor blend" if data.prefix is None else "both prefix and blend"
        yield Finding(Code.DATA_SOURCE, ("data",), found, "give one of them")
    for path, prefix in _prefixes(job):
        if prefix.endswith((".bin", ".idx")):
            found = f"{prefix!r} is a file, not a prefix"
            yield Finding(Code.DATA_SOURCE, path, found, f"write {prefix[:-4]}")
    if len(data.split) != _SHARES or sum(data.split) <= 0:
        found = f"{len(data.split)} shares" if len(data.split) != _SHARES else "no share is above 0"
        yield Finding(
            Code.DATA_SPLIT, ("data", "split"), found, "give three: training, validation, test"
        )
    elif data.split[0] <= 0:
        yield Finding(
            Code.DATA_SPLIT, ("data", "split"), "nothing is left for training", "use [98, 2, 0]"
        )
    elif data.split[1] <= 0 and job.training.eval_iters:
        found = f"eval_iters is {job.training.eval_iters}, and no data is left for validation"
        remedy = "give the second share a value, or set training.eval_iters: 0"
        yield Finding(Code.DATA_SPLIT, ("data", "split"), found, remedy)


def _prefixes(job: "MegatronJob") -> "Iterator[tuple[Path, str]]":
    if job.data.prefix is not None:
        yield ("data", "prefix"), job.data.prefix
    for index, blend in enumerate(job.data.blend or ()):
        yield ("data", "blend", index, "prefix"), blend.prefix


def _paths(job: "MegatronJob", mount_path: str) -> "Iterator[Finding]":
    """Demand the shared file system for what several nodes read or what outlives a pod."""
    places: list[tuple[Path, str | None]] = [
        *_prefixes(job),
        (("data", "tokenizer"), job.data.tokenizer),
        (("data", "cache_dir"), job.data.cache_dir),
        (("checkpoint", "directory"), job.checkpoint.directory),
        (("checkpoint", "pretrained"), job.checkpoint.pretrained),
    ]
    for path, place in places:
        if place is not None and not place.startswith(f"{mount_path}/"):
            found = f"{place} is not on the shared file system, so other nodes do not see it"
            yield Finding(Code.SHARED_PATH, path, found, f"use a path below {mount_path}/")
    if job.checkpoint.pretrained == job.checkpoint.directory:
        found = "base weights and checkpoints stand in the same directory"
        remedy = "save elsewhere: retention would delete the base weights"
        yield Finding(Code.SHARED_PATH, ("checkpoint", "directory"), found, remedy)


def _runtime(job: "MegatronJob", cluster: "ClusterConfig") -> "Iterator[Finding]":
    runtime = job.runtime
    for name in ("host_network", "ipc_lock"):
        if getattr(runtime, name) and cluster.platform.pod_security == "restricted":
            found = f"{name} breaks the restricted Pod Security of {cluster.platform.namespace!r}"
            remedy = "remove it (EFA needs neither), or set platform.pod_security: privileged"
            yield Finding(Code.POD_SECURITY, ("runtime", name), found, remedy)
    if runtime.ipc_lock and cluster.platform.pod_security == "privileged":
        found = "pods do not run as root, and an added capability reaches no other user"
        remedy = "remove it: the EKS AMI lifts the limit on locked memory for every container"
        yield Finding(Code.POD_SECURITY, ("runtime", "ipc_lock"), found, remedy, Level.WARNING)
    yield from _priority(runtime.priority_class, cluster.platform.namespace)
    for name, value in runtime.env.items():
        path: Path = ("runtime", "env", name)
        if not _VARIABLE.fullmatch(name):
            remedy = "use letters, digits and '_', not starting with a digit"
            yield Finding(Code.ENVIRONMENT_REFUSED, path, f"{name!r} is no variable name", remedy)
            continue
        policy = _judge(name, value, host_network=runtime.host_network)
        if policy.verdict in _VERDICTS:
            code, level = _VERDICTS[policy.verdict]
            yield Finding(code, path, f"{name}: {policy.reason}", policy.instead, level)


def _priority(name: str | None, namespace: str) -> "Iterator[Finding]":
    known = [each.name for each in PRIORITY_CLASSES]
    path: Path = ("runtime", "priority_class")
    if name in SYSTEM_PRIORITIES:
        found = f"{name} would push device plugins off their nodes: {namespace!r} refuses its pods"
        yield Finding(Code.PRIORITY_CLASS, path, found, f"use one of {', '.join(known)}")
    elif name is not None and name not in known:
        found = f"{name!r} is no class of this project, and without it no pod is made"
        remedy = f"make the PriorityClass before the job; {choices(name, known)}"
        yield Finding(Code.PRIORITY_CLASS, path, found, remedy, Level.WARNING)


def _judge(name: str, value: str, *, host_network: bool) -> Policy:
    """Judge a variable of a job file: stricter than for manifests of any origin."""
    if name in IMAGE_VARIABLES:
        return Policy(Verdict.REFUSED, IMAGE_VARIABLES[name], "remove it")
    policy = judge(name, value, host_network=host_network)
    known = {*POLICIES, *IMAGE_VARIABLES}
    if name in known or policy.verdict is not Verdict.ALLOWED:
        return policy
    upper = name.upper()
    close = [upper] if upper in known else get_close_matches(name, known, 1, _CLOSE)
    remedy = f"did you mean {close[0]}?" if close else ""
    wrong = Policy(Verdict.ADVISED_AGAINST, "no library reads this name", remedy)
    return wrong if close else policy


_VERDICTS = {
    Verdict.SET: (Code.ENVIRONMENT_REFUSED, Level.ERROR),
    Verdict.REFUSED: (Code.ENVIRONMENT_REFUSED, Level.ERROR),
    Verdict.NO_EFFECT: (Code.ENVIRONMENT_NO_EFFECT, Level.ERROR),
    Verdict.ADVISED_AGAINST: (Code.ENVIRONMENT_ADVISED_AGAINST, Level.WARNING),
}
