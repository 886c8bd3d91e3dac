"""Whether Megatron's parser would take the arguments that a job file adds."""

from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING

from megatron_eks.catalog.megatron_options import FLAGS, NUMBERS, OPTIONS, SINGLE, WHOLE, WORDS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, choices
from megatron_eks.plan.jobs.arguments import megatron_arguments
from megatron_eks.plan.jobs.layout import job_layout, model_shape
from megatron_eks.plan.jobs.option_checks import Option, check_combinations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from megatron_eks.config.job import MegatronJob


# Names that differ by a slip: most of Megatron's have words in common.
_CLOSE = 0.8

# What only some job files lead to, so that it does not stand among the arguments of the others.
BY_KEY = (
    *("--num-virtual-stages-per-pipeline-rank", "--num-layers-per-virtual-pipeline-stage"),
    *("--sequence-parallel", "--use-distributed-optimizer", "--data-cache-path", "--data-path"),
    *("--expert-model-parallel-size", "--expert-tensor-parallel-size", "--num-experts"),
    *("--moe-router-topk", "--recompute-granularity", "--recompute-method"),
    *("--moe-ffn-hidden-size", "--moe-shared-expert-intermediate-size", "--moe-layer-freq"),
    *("--multi-latent-attention", "--q-lora-rank", "--kv-lora-rank", "--v-head-dim"),
    *("--qk-head-dim", "--qk-pos-emb-head-dim"),
    *("--recompute-num-layers", "--fp8-format", "--lr-wsd-decay-iters"),
    *("--pretrained-checkpoint", "--async-save", "--group-query-attention", "--swiglu"),
)


def check_extra_arguments(job: "MegatronJob") -> "Iterator[Finding]":
    """Yield what the parser would refuse, or take instead of what the plan says."""
    words = job.extra_args
    planned = {OPTIONS[name] for name in (*_planned(job), *BY_KEY)}
    starts = [index for index, word in enumerate(words) if word.startswith("--")]
    if starts[:1] != [0]:
        found = f"{words[0]!r} follows no option"
        yield Finding(Code.EXTRA_ARGUMENT, ("extra_args", 0), found, "start with --OPTION")
    given: dict[int, Option] = {}
    for start, end in pairwise([*starts, len(words)]):
        name, equals, value = words[start].partition("=")
        values = [value] if equals else words[start + 1 : end]
        path = ("extra_args", start)
        if name not in OPTIONS:
            found = f"Megatron has no option {name}"
            yield Finding(Code.EXTRA_ARGUMENT, path, found, _similar(name))
        elif OPTIONS[name] in planned:
            found = f"{name} follows from the job file"
            remedy = "remove it, and set it by the file's own key"
            yield Finding(Code.EXTRA_ARGUMENT, path, found, remedy)
        elif name in FLAGS and values:
            found = f"{name} takes no value, and {values[0]!r} follows"
            yield Finding(Code.EXTRA_ARGUMENT, path, found, "remove the value")
        elif name in SINGLE and len(values) != 1:
            found = f"{name} takes one value, and {len(values)} follow"
            yield Finding(Code.EXTRA_ARGUMENT, path, found, f"write {name} VALUE")
        elif problem := _value(name, values):
            yield Finding(Code.EXTRA_ARGUMENT, path, *problem)
        elif OPTIONS[name] in {setting for _, setting, _ in given.values()}:
            found = f"{name} stands above too, and the last one wins"
            yield Finding(Code.EXTRA_ARGUMENT, path, found, "keep one of the two")
        else:
            given[start] = (name, OPTIONS[name], values)
    yield from check_combinations(job, model_shape(job.model), given)


def _value(name: str, values: "Sequence[str]") -> tuple[str, str] | None:
    """Say what the parser does not convert: the types and choices of its options."""
    for value in values:
        if name in WORDS and value not in WORDS[name]:
            return f"{name} does not take {value!r}", choices(value, WORDS[name])
        if (name in WHOLE and not _is(int, value)) or (name in NUMBERS and not _is(float, value)):
            kind = "whole number" if name in WHOLE else "number"
            return f"{name} takes a {kind}, and {value!r} is none", f"write {name} NUMBER"
    return None


def _is(kind: type[int] | type[float], value: str) -> bool:
    try:
        kind(value)
    except ValueError:
        return False
    return True


def _planned(job: "MegatronJob") -> "Iterator[str]":
    alone = job.model_copy(update={"extra_args": ()})
    words = megatron_arguments(alone, model_shape(job.model), job_layout(job, 1), "")
    return (word for word in words if word.startswith("--"))


def _similar(name: str) -> str:
    longer = sorted(option for option in OPTIONS if option.startswith(name))
    close = longer or get_close_matches(name, OPTIONS, 1, _CLOSE)
    return f"did you mean {close[0]!r}?" if close else "see `pretrain_gpt.py --help`"
