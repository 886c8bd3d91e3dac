"""Options that a job file adds and Megatron takes, though the run would not be the planned one.

What Megatron refuses itself is not repeated here: `ops/planning/megatron.py` asks it. Sources: as
in `catalog/megatron_conflicts.txt`, and where a check names another.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from megatron_eks.catalog.allocator import options
from megatron_eks.catalog.megatron_conflicts import (
    ALWAYS,
    BREAKS,
    DIVISORS,
    IDLE,
    NEEDS_EXPERTS,
    OF_FAULTS,
    PARTIAL,
    RANDOM,
    SOMETIMES,
    TRIALS,
    WRITTEN,
)
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning
from megatron_eks.config.job import MegatronRun

Option = tuple[str, str, Sequence[str]]
"""As it is written, its setting, and its values."""

Problem = tuple[str, str]
"""What an option conflicts with, and what to do instead."""


@dataclass(frozen=True)
class Asked:
    """A job, and the settings that its further arguments give."""

    job: MegatronRun
    model: ModelShape
    values: Mapping[str, Sequence[str]]
    copies: int | None
    """Data parallel size; None where the pool's type is unknown or the layout fits no GPUs."""

    def first(self, setting: str) -> str | None:
        """Return the value of a setting that has one."""
        words = self.values.get(setting, ())
        return words[0] if words else None

    def number(self, setting: str, default: int = 0) -> int:
        """Return the value of a setting that is a whole number, not below 0."""
        word = self.first(setting) or ""
        return int(word) if word.isdecimal() else default


def check_combinations(asked: Asked, given: Mapping[int, Option]) -> Iterator[Finding]:
    """Yield what options, by their places among the arguments, conflict with or make of a run."""
    for place, (name, setting, _) in given.items():
        path = ("extra_args", place)
        problem = _conflict(asked, setting)
        if problem is not None:
            found, remedy = problem
            yield Finding(Code.OPTION_COMBINATION, path, f"{name}: {found}", remedy)
            continue
        for code, (found, remedy) in _warnings(asked, setting):
            yield warning(code, path, f"{name}: {found}", remedy)


def _conflict(asked: Asked, setting: str) -> Problem | None:
    if setting in ALWAYS:
        return ALWAYS[setting]
    if setting in DIVISORS and asked.number(setting) == 0:
        return "it takes one or more", "use 1 or more"
    if setting in _APPLIES:
        return SOMETIMES[setting] if _APPLIES[setting](asked) else None
    check = CHECKS.get(setting)
    return check(asked) if check else None


def _warnings(asked: Asked, setting: str) -> Iterator[tuple[Code, Problem]]:
    if setting.startswith(NEEDS_EXPERTS) and asked.model.num_experts is None:
        remedy = "remove it, or name a model with num_experts"
        yield Code.NO_MEANING, ("the model has no experts", remedy)
    elif setting in IDLE and (setting, asked.first(setting)) != _EXIT_AS_PLANNED:
        yield Code.NO_MEANING, IDLE[setting]
    elif setting == "dist_ckpt_strictness" and asked.first(setting) in PARTIAL:
        yield Code.TRIAL_OPTION, RANDOM
    elif setting in TRIALS or setting.startswith(OF_FAULTS):
        yield Code.TRIAL_OPTION, TRIALS.get(setting, BREAKS)


_EXIT_AS_PLANNED = "exit_signal", "SIGTERM"


def _graphs(asked: Asked) -> Problem | None:
    # Megatron asks only for the allocator's old variable, and the plan sets the new one.
    env = asked.job.runtime.env
    chosen = options(env.get("PYTORCH_ALLOC_CONF", "expandable_segments:True"))
    moves = chosen.get("expandable_segments") == "True"
    kind = asked.first("cuda_graph_impl")
    if kind != "transformer_engine" or env.get("NCCL_GRAPH_REGISTER") == "0" or not moves:
        return None
    reason = "NCCL keeps addresses in graphs, and expandable segments, which the plan sets, move"
    return reason, "set runtime.env.NCCL_GRAPH_REGISTER: '0'"


def _instances(asked: Asked) -> Problem | None:
    """Judge what megatron/core/parallel_state.py divides."""
    count = asked.number("num_distributed_optimizer_instances", 1)
    ranks = (asked.copies or 0) * asked.job.parallelism.context
    if count and ranks % count == 0:
        return None
    return f"{count} does not divide {ranks} data parallel ranks", "use a divisor of them"


def _groups(asked: Asked) -> Problem | None:
    """Judge how many microbatches a chunk takes at once (core/pipeline_parallel/schedules.py)."""
    size = asked.number("microbatch_group_size_per_vp_stage")
    stages, training = asked.job.parallelism.pipeline, asked.job.training
    batch = training.global_batch_size // training.micro_batch_size
    most = batch // asked.copies if asked.copies else size
    if size > most:
        return f"a step has {most} microbatches", f"use at most {most}"
    if size < stages:
        return f"{size} microbatches do not fill {stages} stages", f"use {stages} or more"
    return None


def _all_to_all(asked: Asked) -> Problem | None:
    """Judge context parallelism that exchanges heads, of which each rank must get some.

    Transformer Engine, transformer_engine/pytorch/attention/dot_product_attention/
    context_parallel.py: heads and query groups of a rank are divided by the context size.
    """
    context, tensor = asked.job.parallelism.context, asked.job.parallelism.tensor
    groups = max(1, asked.model.num_query_groups // tensor)
    if "a2a" not in asked.values["cp_comm_type"] or groups % context == 0:
        return None
    reason = f"a2a gives {groups} query groups of a rank to {context} context parallel ranks"
    return reason, f"use p2p, or a context parallel size that divides {groups}"


def _profiled(asked: Asked) -> Problem | None:
    """Judge from which step to which one is profiled: 10 to 12 unless told otherwise."""
    first, last = asked.number("profile_step_start", 10), asked.number("profile_step_end", 12)
    if first < last:
        return None
    return f"from step {first} to {last} nothing is profiled", f"use --profile-step-end {first + 2}"


# When a setting conflicts whose reason stands in the catalogue.
_APPLIES: dict[str, Callable[[Asked], bool]] = {
    "dataloader_defer_npy_index_mmap": lambda asked: asked.job.data.cache_dir is None,
    "dataloader_type": lambda asked: asked.first("dataloader_type") == "external",
    "exit_on_missing_checkpoint": lambda asked: asked.job.checkpoint.pretrained is None,
    "fp8_recipe": lambda asked: asked.job.training.precision != "fp8",
    "moe_aux_loss_coeff": lambda asked: (
        len(asked.values["moe_aux_loss_coeff"]) > 1
        and "moe_router_load_balancing_type" not in asked.values
    ),
    # The first of them ends the run otherwise (megatron/training/checkpointing.py).
    "non_persistent_save_interval": lambda asked: "non_persistent_ckpt_type" not in asked.values,
    "perform_initialization": lambda asked: asked.job.checkpoint.pretrained is None,
    "use_rotary_position_embeddings": (lambda asked: asked.model.position_embedding_type != "rope"),
}
CHECKS: dict[str, Callable[[Asked], Problem | None]] = {
    "cp_comm_type": _all_to_all,
    "cuda_graph_impl": _graphs,
    "microbatch_group_size_per_vp_stage": _groups,
    "num_distributed_optimizer_instances": _instances,
    "profile_step_end": _profiled,
    "profile_step_start": _profiled,
}
"""What is judged of each setting."""


def check_places(
    given: Mapping[int, Option], mount_path: str, writable: Sequence[str]
) -> Iterator[Finding]:
    """Yield what a run writes where no pod can: all but its mounts is read-only."""
    settings = {setting for _, setting, _ in given.values()}
    for place, (name, setting, values) in given.items():
        path = ("extra_args", place)
        if setting == "record_memory_history" and "memory_snapshot_path" not in settings:
            found = f"{name}: the snapshot goes to the working directory, which is read-only"
            remedy = f"add --memory-snapshot-path {mount_path}/NAME.pickle"
            yield Finding(Code.SHARED_PATH, path, found, remedy)
        if setting not in WRITTEN or not values or "://" in values[0]:
            continue
        # One node's /tmp is not another's.
        mounts = [mount_path] if setting == "non_persistent_global_ckpt_dir" else writable
        if not any(values[0].startswith(f"{mount}/") for mount in mounts):
            found = f"{name}: a pod may not write to {values[0]}: all but its mounts is read-only"
            if values[0].startswith(tuple(writable)):
                found = f"{name}: {values[0]} is not on the shared file system"
            remedy = f"use a path below {mount_path}/"
            yield Finding(Code.SHARED_PATH, path, found, remedy)
