"""Values that Megatron reads itself: layers one by one, tuples, and numbers that are not 0.

Source: Megatron-LM, `moe_freq_type`, `no_rope_freq_type`, `tuple_type` and `validate_args` in
megatron/training/arguments.py (core_v0.19).
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.job import MegatronRun

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

    def number(self, setting: str) -> int | None:
        """Return the value of a setting that is a whole number, not below 0."""
        word = self.first(setting) or ""
        return int(word) if word.isdecimal() else None

    def amount(self, setting: str) -> float | None:
        """Return the value of a setting that is a number; the parser has judged its form."""
        word = self.first(setting)
        return None if word is None else float(word)


Check = Callable[[Asked], Problem | None]
"""What is judged of one setting."""

_LAYERS = frozenset({"--linear-attention-freq", "--no-rope-freq", "--window-attn-skip-freq"})
"""Options of every so many layers, or of a list with a number for each."""
_NOT_OF_LISTS = re.compile(r"[^,\d\[\]()+*]")
"""What `_eval_pattern` stops at, before it reads the list."""

# CudaGraphModule in megatron/core/transformer/enums.py, and two words of before.
_MODULES = (
    *("attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"),
    *("full", "full_iteration_inference"),
)
_OF_GRAPHS = (re.compile("|".join(_MODULES)), f"some of {', '.join(_MODULES)}")
_OTHERS = {
    "--cuda-graph-modules": _OF_GRAPHS,
    "--cuda-graph-scope": _OF_GRAPHS,
    "--window-size": (re.compile(r"\(?-?\d+(,-?\d+)*\)?"), "numbers with commas, 4096,0"),
    "--phase-transition-iterations": (
        re.compile(r" *\d+ *(, *\d+ *)*"),
        "iterations with commas, 1000,2000",
    ),
}


def form(name: str, value: str) -> str | None:
    """Return what an option takes where a value has another form."""
    wrong = _NOT_OF_LISTS.search(value) or layers(value) is None
    if name in _LAYERS and not value.isdecimal() and wrong:
        return "a whole number or a list for all layers without blanks, ([0]*3+[1])*8"
    pattern, what = _OTHERS.get(name, (None, ""))
    return what if pattern and not pattern.fullmatch(value) else None


def layers(value: str) -> int | None:
    """Return how many layers a list expression speaks of; None if it is none."""
    try:
        found = _evaluated(ast.parse(value, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return found if "[" in value else None


def _evaluated(node: ast.expr) -> int:
    """Return the length of a list, or a number: sums and products need no more of them."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.List(elts=items):
            return len([_evaluated(each) for each in items])
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _evaluated(left) + _evaluated(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _evaluated(left) * _evaluated(right)
    raise ValueError(ast.dump(node))


def when(applies: Callable[[Asked], bool], reason: str, remedy: str) -> Check:
    """Return a check that has one problem to tell, where it applies."""
    return lambda asked: (reason, remedy) if applies(asked) else None


def _one_or_more(setting: str) -> Check:
    def check(asked: Asked) -> Problem | None:
        if (asked.amount(setting) or 0) >= 1:
            return None
        return "it takes one or more", "use 1 or more"

    return check


def each_layer(setting: str) -> Check:
    """Judge a list that has a number for each layer."""

    def check(asked: Asked) -> Problem | None:
        listed, wanted = layers(asked.first(setting) or ""), asked.model.num_layers
        if listed in {None, wanted}:
            return None
        return f"the list is of {listed} layers, and the model has {wanted}", "name each layer"

    return check


def _weight_shards(setting: str, *, experts: bool) -> Check:
    """Judge over how many GPUs weights are divided: those of a tensor, and whole groups more."""

    def check(asked: Asked) -> Problem | None:
        parallelism = asked.job.parallelism
        size = (experts and parallelism.expert_tensor) or parallelism.tensor
        shards = int(asked.first(setting) or size)
        if shards < size or shards % size:
            found = f"{shards} shards are no multiple of the {size} GPUs of a tensor"
            return found, f"use {2 * size}"
        ranks = size * (asked.copies or shards)
        if not experts and ranks % shards:
            return f"{shards} shards do not divide {ranks} ranks", "use a divisor of them"
        return _gathered(asked) if shards > size else None

    return check


def _gathered(asked: Asked) -> Problem | None:
    """Judge what goes with weights that are brought together before each use."""
    whole = {
        "dist_ckpt_optim_fully_reshardable",
        "distrib_optim_fully_reshardable_mem_efficient",
    }
    if whole <= asked.values.keys():
        other = "--distrib-optim-fully-reshardable-mem-efficient"
        return f"its checkpoints are not made as {other} makes them", f"remove {other}"
    small = {"fp8_param_gather", "reuse_grad_buf_for_mxfp8_param_ag"}
    if asked.first("fp8_recipe") == "mxfp8" and not small <= asked.values.keys():
        both = "add --fp8-param-gather and --reuse-grad-buf-for-mxfp8-param-ag"
        return "with mxfp8 it gathers weights in FP8 alone", both
    if "fp4" in asked.values and "fp4_param_gather" not in asked.values:
        return "with FP4 it gathers weights in FP4 alone", "add --fp4-param-gather"
    if "ddp_average_in_collective" in asked.values:
        other = "--ddp-average-in-collective"
        return f"{other} would average over too many", f"remove {other}"
    return None


def _bf16_layers(setting: str) -> Check:
    """Judge how many layers stay in bf16, at one end of the model (TransformerConfig)."""

    def check(asked: Asked) -> Problem | None:
        layers = asked.model.num_layers // asked.job.parallelism.pipeline
        count = asked.number(setting)
        if "first_last_layers_bf16" not in asked.values or count is None or count <= layers:
            return None
        return f"{count} layers, and a pipeline stage has {layers}", f"use at most {layers}"

    return check


def _profiled(asked: Asked) -> Problem | None:
    """Judge from which step to which one is profiled: 10 to 12 unless told otherwise."""
    start, end = asked.number("profile_step_start"), asked.number("profile_step_end")
    first, last = _PROFILE_START if start is None else start, _PROFILE_END if end is None else end
    if first < last:
        return None
    return f"from step {first} to {last} nothing is profiled", f"use --profile-step-end {first + 2}"


_PROFILE_START, _PROFILE_END = 10, 12
# What validate_args, vocab_utils.py, or a division by zero in training.py of megatron/training ends
# at.
_NOT_ZERO = (
    *("check_weight_hash_across_dp_replicas_interval", "gpu_sniff_test_interval"),
    *("log_memory_interval", "make_vocab_size_divisible_by", "moe_latent_size"),
    "mup_base_hidden_size",
    *("num_dataset_builder_threads", "save_activations_interval", "save_dgrads_interval"),
    *("save_params_interval", "save_retain_interval", "save_tokens_per_expert_interval"),
    *("save_wgrads_interval", "tensorboard_log_interval"),
)
OF_VALUES: dict[str, Check] = {
    **{each: _one_or_more(each) for each in _NOT_ZERO},
    **{each: each_layer(each) for each in ("linear_attention_freq", "window_attn_skip_freq")},
    **{
        each: _bf16_layers(each)
        for each in ("num_layers_at_end_in_bf16", "num_layers_at_start_in_bf16")
    },
    "profile_step_end": _profiled,
    "profile_step_start": _profiled,
    **{
        each: _weight_shards(each, experts=each.startswith("expert"))
        for each in (
            "expert_tensor_parallel_num_weight_shards",
            "tensor_parallel_num_weight_shards",
        )
    },
}
"""Checks by setting."""
