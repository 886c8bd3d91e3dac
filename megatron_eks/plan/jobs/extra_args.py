"""Whether the options that a job file adds are Megatron's, and none that the plan sets itself.

Their values are Megatron's own parser's to judge: `ops/planning/megatron.py` asks it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from megatron_eks.catalog import megatron_conflicts as conflicts
from megatron_eks.catalog.allocator import options
from megatron_eks.catalog.images import is_ours
from megatron_eks.catalog.job_keys import OF_OPTIONS
from megatron_eks.catalog.megatron_options import FLAGS, OPTIONS
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Level, warning
from megatron_eks.config.hints import of_option
from megatron_eks.config.job import MegatronJob, MegatronRun
from megatron_eks.config.scalars import as_text, odd_sign
from megatron_eks.plan.jobs.arguments import megatron_arguments, options_among
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.sources import unwritable
from megatron_eks.plan.jobs.training import job_layout

Option = tuple[str, str, Sequence[str]]
"""As it is written, its setting, and its values."""
Problem = tuple[str, str]
"""What is wrong with an option, and what to do instead."""

# Names that differ by a slip: most of Megatron's have words in common.
_CLOSE = 0.8
_NOT = "--no-"
_UNKNOWN = "see `pretrain_gpt.py --help`"
_FLEX = "moe_token_dispatcher_type", ["flex"]
# Options that say a key of the model in another way.
_OTHERWISE = {
    "disable_bias_linear": "add_bias_linear",
    "group_query_attention": "num_query_groups",
    "use_rope_scaling": "preset",
    "rope_scaling_factor": "preset",
}


def check_extra_arguments(job: MegatronJob, copies: int | None, cluster: ClusterConfig) -> Findings:
    """Yield what is no option, or is the plan's; `copies` of the model learn, if that is known."""
    words, plan = job.extra_args, _planned(job)
    if not words[0].startswith("--"):
        found, remedy = f"{words[0]!r} follows no option", _stray(words[0]) or "start with --OPTION"
        yield Finding(Code.EXTRA_ARGUMENT, ("extra_args", 0), found, remedy)
    given: dict[int, Option] = {}
    for start, (word, *rest) in options_among(words):
        name, equals, value = word.partition("=")
        values = [value] if equals else rest
        settings = {setting for _, setting, _ in given.values()}
        problem = unknown_option(word, name) or _of_plan(name, values, plan)
        if problem is None and OPTIONS[name] in settings:
            problem = f"{name} stands above too, and the last one wins", "keep one of the two"
        if problem is not None:
            (found, remedy), level = problem, Level.ERROR
            unknown = remedy == _UNKNOWN or (OPTIONS.get(name), [*values]) == _FLEX
            if unknown and not is_ours(job.image):
                # A fork's Megatron, or a DeepEP that speaks EFA.
                remedy, level = "see that your image has it", Level.WARNING
            yield Finding(Code.EXTRA_ARGUMENT, ("extra_args", start), found, remedy, level)
        elif OPTIONS[name] not in plan or OPTIONS[name] in conflicts.CHOSEN:
            given[start] = (name, OPTIONS[name], values)
    set_by = {setting: tuple(values) for _, setting, values in given.values()}
    yield from _check_values(Asked(job, model_shape(job.model), set_by, copies), given, cluster)


def _check_values(asked: "Asked", given: Mapping[int, Option], cluster: ClusterConfig) -> Findings:
    for place, (name, setting, values) in given.items():
        path = ("extra_args", place)
        if problem := _conflict(asked, setting):
            found, remedy = problem
            yield Finding(Code.OPTION_COMBINATION, path, f"{name}: {found}", remedy)
        elif doubtful := _warning(asked, setting):
            code, (found, remedy) = doubtful
            yield warning(code, path, f"{name}: {found}", remedy)
        if setting == "record_memory_history" and "memory_snapshot_path" not in asked.values:
            found = f"{name}: the snapshot goes to the working directory, which is read-only"
            remedy = f"add --memory-snapshot-path {cluster.storage.lustre.mount_path}/NAME.pickle"
            yield Finding(Code.SHARED_PATH, path, found, remedy)
        if setting in conflicts.WRITTEN and values:
            shared = setting == "non_persistent_global_ckpt_dir"
            if bad := unwritable(values[0], cluster, shared=shared):
                yield Finding(Code.SHARED_PATH, path, f"{name}: {bad[0]}", bad[1])


def unknown_option(word: str, name: str) -> Problem | None:
    """Say what is wrong with a name that Megatron does not have, and what to do."""
    if name in OPTIONS:
        return None
    if " " in word and name.split(maxsplit=1)[0] in OPTIONS:
        apart = ", ".join(as_text(each) for each in word.split())
        found = f"{word!r} is one word, and Megatron has no option of that name"
        return found, f"write each word apart: [{apart}]"
    return f"the pinned Megatron has no option {name}", of_option(name) or _similar(name)


def _key(name: str) -> str | None:
    """Return the key that an option follows from; it may be written in another way here."""
    keys = {OPTIONS[option]: key for option, key in OF_OPTIONS.items()}
    key = keys.get(OPTIONS[name])
    plain = name.strip("-").replace("-", "_")
    named = (_OTHERWISE.get(plain, plain), OPTIONS[name])
    if key == "model":
        return next((f"model.{each}" for each in named if each in ModelSpec.model_fields), key)
    return key


def _of_plan(
    name: str, values: Sequence[str], plan: Mapping[str, tuple[str, ...]]
) -> Problem | None:
    """Say what an option of the plan follows from; what the plan says itself changes nothing."""
    key, setting = _key(name), OPTIONS[name]
    if key is not None:
        return f"{name} follows from the job file", f"remove it, and set {key}"
    spoken = (conflicts.OF_PLAN.get(f"{setting}={each}") for each in values)
    against = next(filter(None, spoken), "")
    # What a flag is given is the mistake, and not the flag; `=false` would be to take it back.
    given = name in FLAGS and [each.lower() for each in values] == ["true"]
    same = setting not in plan or plan[setting] == tuple(values) or (given and not plan[setting])
    if same or (setting in conflicts.CHOSEN and not against):
        return None
    found = f"{name} is set by the plan for every run"
    return f"{found}; {against}" if against else found, "remove it"


def _stray(word: str) -> str | None:
    if not word.strip("\\ "):
        return "remove it: a backslash continues a line for a shell, and no shell reads this"
    name = word.lstrip("\u2012\u2013\u2014\u2015\u2212")  # what editors make of two hyphens
    return f"write --{name}, with two plain hyphens" if name != word else odd_sign(word)


def _planned(job: MegatronJob) -> dict[str, tuple[str, ...]]:
    alone = job.model_copy(update={"extra_args": ()})
    words = megatron_arguments(alone, model_shape(job.model), job_layout(job, 1), "")
    return {OPTIONS[word]: tuple(rest) for _, (word, *rest) in options_among(words)}


def _similar(name: str) -> str:
    positive = f"--{name.removeprefix(_NOT)}"
    longer = sorted(option for option in OPTIONS if option.startswith(name))
    # None that says the opposite.
    close_to = get_close_matches(name, OPTIONS, 3, _CLOSE)
    near = (each for each in close_to if each.startswith(_NOT) == name.startswith(_NOT))
    known = (each for each in (name.replace("_", "-"), positive) if each in OPTIONS)
    close = next(iter((*known, *longer, *near)), None)
    if close is None:
        return _UNKNOWN
    key = _key(close)
    off = ": false" if close == positive != name else ""
    return f"did you mean {close!r}?{f' Remove it, and set {key}{off}' if key else ''}"


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


def _conflict(asked: Asked, setting: str) -> Problem | None:
    if setting in conflicts.ALWAYS:
        return conflicts.ALWAYS[setting]
    if setting in conflicts.DIVISORS and asked.number(setting) == 0:
        return "it takes one or more", "use 1 or more"
    if setting in _APPLIES:
        return conflicts.SOMETIMES[setting] if _APPLIES[setting](asked) else None
    check = CHECKS.get(setting)
    return check(asked) if check else None


def _warning(asked: Asked, setting: str) -> tuple[Code, Problem] | None:
    first = asked.first(setting)
    if setting in conflicts.IDLE and (setting, first) != ("exit_signal", "SIGTERM"):
        return Code.NO_MEANING, conflicts.IDLE[setting]
    if setting == "dist_ckpt_strictness" and first in conflicts.PARTIAL:
        return Code.TRIAL_OPTION, conflicts.RANDOM
    if setting in conflicts.TRIALS or setting.startswith(conflicts.OF_FAULTS):
        return Code.TRIAL_OPTION, conflicts.TRIALS.get(setting, conflicts.BREAKS)
    return None


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
    # Heads and query groups of a rank are divided by the context size (Transformer Engine,
    # transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py).
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
