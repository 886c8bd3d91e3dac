"""Whether the options that a job file adds are Megatron's, and none that the plan sets itself.

Their values are Megatron's own parser's to judge: `ops/planning/megatron.py` asks it.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from megatron_eks.catalog.images import is_ours
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.job_keys import OF_OPTIONS
from megatron_eks.catalog.megatron_conflicts import CHOSEN, OF_PLAN
from megatron_eks.catalog.megatron_options import FLAGS, OPTIONS
from megatron_eks.config.aliases import of_option
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.job import MegatronJob
from megatron_eks.config.scalars import as_text, odd_sign
from megatron_eks.plan.jobs.arguments import megatron_arguments, options_among
from megatron_eks.plan.jobs.environment import mounts
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.options.option_checks import (
    Asked,
    Option,
    check_combinations,
    check_places,
)
from megatron_eks.plan.jobs.resources import gpu_pool
from megatron_eks.plan.jobs.training import job_layout

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
# What editors make of two hyphens.
_DASHES = "\u2012\u2013\u2014\u2015\u2212"


def check_extra_arguments(
    job: MegatronJob, copies: int | None, cluster: ClusterConfig
) -> Iterator[Finding]:
    """Yield what is no option, or would be taken instead of what the plan says.

    So many copies of the model learn together, if that is known.
    """
    words, plan = job.extra_args, _planned(job)
    if not words[0].startswith("--"):
        found, remedy = f"{words[0]!r} follows no option", _stray(words[0]) or "start with --OPTION"
        yield Finding(Code.EXTRA_ARGUMENT, ("extra_args", 0), found, remedy)
    given: dict[int, Option] = {}
    for start, (word, *rest) in options_among(words):
        name, equals, value = word.partition("=")
        values = [value] if equals else rest
        settings = {setting for _, setting, _ in given.values()}
        problem = unknown_option(word, name) or _without_fp8(name, job, cluster)
        problem = problem or _of_plan(name, values, plan)
        if problem is None and OPTIONS[name] in settings:
            problem = f"{name} stands above too, and the last one wins", "keep one of the two"
        if problem is not None:
            (found, remedy), level = problem, Level.ERROR
            unknown = remedy == _UNKNOWN or (OPTIONS.get(name), [*values]) == _FLEX
            if unknown and not is_ours(job.image):
                # A fork's Megatron, or a DeepEP that speaks EFA.
                remedy, level = "see that your image has it", Level.WARNING
            yield Finding(Code.EXTRA_ARGUMENT, ("extra_args", start), found, remedy, level)
        elif OPTIONS[name] not in plan or OPTIONS[name] in CHOSEN:
            given[start] = (name, OPTIONS[name], values)
    set_by = {setting: tuple(values) for _, setting, values in given.values()}
    asked = Asked(job, model_shape(job.model), set_by, copies)
    yield from check_combinations(asked, given)
    yield from check_places(given, cluster.storage.lustre.mount_path, mounts(cluster))


def unknown_option(word: str, name: str) -> tuple[str, str] | None:
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


def _without_fp8(name: str, job: MegatronJob, cluster: ClusterConfig) -> tuple[str, str] | None:
    """Say that a job's GPUs compute nothing in FP8 (Transformer Engine: compute capability 8.9)."""
    pool = gpu_pool(job, cluster)
    gpu = INSTANCES[pool.instance_type].gpu if pool is not None else None
    if gpu is None or gpu.has_fp8 or OPTIONS[name] != OPTIONS["--fp8-format"]:
        return None
    # A precision that the GPU does not have is a finding of its own.
    if job.training.precision != "bf16":
        return None
    return f"{name}, and {gpu.name} has no FP8", "remove it, and keep training.precision: bf16"


def _of_plan(
    name: str, values: Sequence[str], plan: Mapping[str, tuple[str, ...]]
) -> tuple[str, str] | None:
    """Say what an option of the plan follows from.

    Of some options the plan has a default alone, and what it says itself, word for word, changes
    nothing.
    """
    key, setting = _key(name), OPTIONS[name]
    if key is not None:
        return f"{name} follows from the job file", f"remove it, and set {key}"
    spoken = (OF_PLAN.get(f"{setting}={each}") for each in values)
    against = next(filter(None, spoken), "")
    # What a flag is given is the mistake, and not the flag; `=false` would be to take it back.
    given = name in FLAGS and [each.lower() for each in values] == ["true"]
    same = setting not in plan or plan[setting] == tuple(values) or (given and not plan[setting])
    if same or (setting in CHOSEN and not against):
        return None
    found = f"{name} is set by the plan for every run"
    return f"{found}; {against}" if against else found, "remove it"


def _stray(word: str) -> str | None:
    """Say what a word was that stands where an option does, and begins as none."""
    if not word.strip("\\ "):
        return "remove it: a backslash continues a line for a shell, and no shell reads this"
    name = word.lstrip(_DASHES)
    return f"write --{name}, with two plain hyphens" if name != word else odd_sign(word)


def _planned(job: MegatronJob) -> dict[str, tuple[str, ...]]:
    """Return the settings of the plan alone, with their values."""
    alone = job.model_copy(update={"extra_args": ()})
    words = megatron_arguments(alone, model_shape(job.model), job_layout(job, 1), "")
    return {OPTIONS[word]: tuple(rest) for _, (word, *rest) in options_among(words)}


def _similar(name: str) -> str:
    """Name the option that was meant, or the key of the job file that says it."""
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
