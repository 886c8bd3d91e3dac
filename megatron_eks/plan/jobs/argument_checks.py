"""Whether Megatron's parser would take the arguments that a job file adds."""

from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING

from megatron_eks.catalog.megatron_conflicts import OF_PLAN
from megatron_eks.catalog.megatron_options import FLAGS, NUMBERS, OPTIONS, SINGLE, WHOLE, WORDS
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, choices
from megatron_eks.plan.jobs.arguments import megatron_arguments
from megatron_eks.plan.jobs.environment_folders import mounts
from megatron_eks.plan.jobs.foreign_options import of_other_program
from megatron_eks.plan.jobs.idle_option_checks import check_places
from megatron_eks.plan.jobs.layout import job_layout, model_shape
from megatron_eks.plan.jobs.option_checks import Option, check_combinations
from megatron_eks.plan.jobs.relation_checks import check_relations
from megatron_eks.plan.jobs.stage_checks import check_stages
from megatron_eks.plan.jobs.value_checks import form

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from megatron_eks.config.cluster import ClusterConfig
    from megatron_eks.config.job import MegatronJob


# Names that differ by a slip: most of Megatron's have words in common.
_CLOSE = 0.8

# The keys of a job file that options follow from, whatever else it says; all other options of the
# plan have no key.
KEYS: dict[str, str] = {
    f"--{option}": key
    for key, options in {
        "model": (
            "num-layers hidden-size ffn-hidden-size num-attention-heads group-query-attention "
            "num-query-groups kv-channels max-position-embeddings position-embedding-type "
            "rotary-base use-rope-scaling rope-scaling-factor normalization norm-epsilon swiglu "
            "disable-bias-linear untie-embeddings-and-output-weights attention-dropout "
            "hidden-dropout init-method-std num-experts moe-router-topk "
            "moe-ffn-hidden-size moe-shared-expert-intermediate-size moe-layer-freq "
            "multi-latent-attention q-lora-rank kv-lora-rank v-head-dim qk-head-dim "
            "qk-pos-emb-head-dim"
        ),
        "parallelism.tensor": "tensor-model-parallel-size",
        "parallelism.pipeline": "pipeline-model-parallel-size",
        "parallelism.virtual_pipeline": (
            "num-virtual-stages-per-pipeline-rank num-layers-per-virtual-pipeline-stage"
        ),
        "parallelism.context": "context-parallel-size",
        "parallelism.expert": "expert-model-parallel-size",
        "parallelism.expert_tensor": "expert-tensor-parallel-size",
        "parallelism.sequence_parallel": "sequence-parallel",
        "parallelism.distributed_optimizer": "use-distributed-optimizer",
        "training.micro_batch_size": "micro-batch-size",
        "training.global_batch_size": "global-batch-size",
        "training.sequence_length": "seq-length",
        "training.train_iters": "train-iters",
        "training.learning_rate": "lr",
        "training.min_learning_rate": "min-lr",
        "training.lr_schedule": "lr-decay-style",
        "training.warmup_iters": "lr-warmup-iters",
        "training.decay_iters": "lr-decay-iters lr-wsd-decay-iters",
        "training.weight_decay": "weight-decay",
        "training.adam_beta1": "adam-beta1",
        "training.adam_beta2": "adam-beta2",
        "training.clip_grad": "clip-grad",
        "training.precision": "bf16 fp8-format",
        "training.recompute": "recompute-granularity",
        "training.recompute_method": "recompute-method",
        "training.recompute_layers": "recompute-num-layers",
        "training.seed": "seed",
        "training.eval_interval": "eval-interval",
        "training.eval_iters": "eval-iters",
        "training.log_interval": "log-interval",
        "data.prefix or data.blend": "data-path",
        "data.split": "split",
        "data.tokenizer": "tokenizer-model",
        "data.cache_dir": "data-cache-path",
        "data.num_workers": "num-workers",
        "checkpoint.directory": "save load",
        "checkpoint.pretrained": "pretrained-checkpoint",
        "checkpoint.interval": "save-interval",
        "checkpoint.format": "ckpt-format",
        "checkpoint.async_save": "async-save",
        "runtime.distributed_timeout_minutes": "distributed-timeout-minutes",
    }.items()
    for option in options.split()
}


def check_extra_arguments(
    job: "MegatronJob", copies: int | None, cluster: "ClusterConfig"
) -> "Iterator[Finding]":
    """Yield what the parser would refuse, or take instead of what the plan says.

    So many copies of the model learn together, if that is known.
    """
    words = job.extra_args
    planned = {OPTIONS[name] for name in (*_planned(job), *KEYS)}
    starts = [index for index, word in enumerate(words) if word.startswith("--")]
    if starts[:1] != [0]:
        found = f"{words[0]!r} follows no option"
        yield Finding(Code.EXTRA_ARGUMENT, ("extra_args", 0), found, "start with --OPTION")
    given: dict[int, Option] = {}
    for start, end in pairwise([*starts, len(words)]):
        name, equals, value = words[start].partition("=")
        values = [value] if equals else words[start + 1 : end]
        path = ("extra_args", start)
        if name not in OPTIONS and " " in words[start] and name.split()[0] in OPTIONS:
            found = f"{words[start]!r} is one word, and Megatron has no option of that name"
            apart = ", ".join(words[start].split())
            yield Finding(Code.EXTRA_ARGUMENT, path, found, f"write each word apart: [{apart}]")
        elif name not in OPTIONS:
            found = f"Megatron has no option {name}"
            remedy = of_other_program(name) or _similar(name)
            yield Finding(Code.EXTRA_ARGUMENT, path, found, remedy)
        elif OPTIONS[name] in planned:
            yield Finding(Code.EXTRA_ARGUMENT, path, *_of_plan(name, values))
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
    model = model_shape(job.model)
    yield from check_combinations(job, model, given)
    yield from check_stages(job, model, given)
    yield from check_relations(job, model, given, copies)
    yield from check_places(given, cluster.storage.lustre.mount_path, mounts(cluster))


def _of_plan(name: str, values: "Sequence[str]") -> tuple[str, str]:
    """Say what an option of the plan follows from; it may be written in another way here."""
    keys = {OPTIONS[option]: key for option, key in KEYS.items()}
    key = keys.get(OPTIONS[name])
    if key is not None:
        field = f"model.{OPTIONS[name]}" if OPTIONS[name] in ModelSpec.model_fields else "model"
        where = field if key == "model" else key
        return f"{name} follows from the job file", f"remove it, and set {where}"
    against = next(
        (OF_PLAN[OPTIONS[name], each] for each in values if (OPTIONS[name], each) in OF_PLAN), ""
    )
    found = f"{name} is set by the plan for every run"
    return f"{found}; {against}" if against else found, "remove it"


def _value(name: str, values: "Sequence[str]") -> tuple[str, str] | None:
    """Say what the parser does not convert: the types and choices of its options."""
    for value in values:
        if name in WORDS and value not in WORDS[name]:
            return f"{name} does not take {value!r}", choices(value, WORDS[name])
        if (name in WHOLE and not _is(int, value)) or (name in NUMBERS and not _is(float, value)):
            kind = "whole number" if name in WHOLE else "number"
            return f"{name} takes a {kind}, and {value!r} is none", f"write {name} NUMBER"
        if what := form(name, value):
            return f"{name} does not take {value!r}", f"write {what}"
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
