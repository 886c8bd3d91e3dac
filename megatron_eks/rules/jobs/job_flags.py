"""Rules over Megatron-LM's options that do not fit each other."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.megatron_layouts import known_options
from megatron_eks.rules.jobs.training_flags import megatron_flags
from megatron_eks.rules.values import is_placeholder, number
from megatron_eks.rules.workloads import Container, Manifest

_EVENLY = (
    ("--num-attention-heads", "--tensor-model-parallel-size", "attention heads"),
    ("--hidden-size", "--num-attention-heads", "hidden size"),
    ("--num-attention-heads", "--num-query-groups", "attention heads"),
    ("--num-experts", "--expert-model-parallel-size", "experts"),
    ("--train-samples", "--global-batch-size", ""),
)
_NOT_ABOVE = (
    ("--seq-length", "--max-position-embeddings", "Megatron stops at once"),
    ("--save-interval", "--train-iters", "no checkpoint before the end"),
    ("--micro-batch-size", "--global-batch-size", "Megatron stops at once"),
    ("--moe-router-topk", "--num-experts", "Megatron stops at once"),
)

Options = dict[str, tuple[Path, str]]


def numbers(manifest: Manifest) -> Iterator[Finding]:
    """Require numbers that Megatron-LM takes together.

    Megatron-LM, megatron/training/arguments.py, validate_args, and
    megatron/core/transformer/transformer_config.py (core_v0.19).
    """
    for pod in manifest.pods:
        for container in pod.containers:
            options = _options(container)
            for flag, other, what in _EVENLY if options else ():
                value, by = _number(options, flag), _number(options, other)
                if value and by and what and value % by and not _is_free(options, flag, other):
                    found = f"{value} {what}, which {other} {by} does not divide: Megatron stops"
                    path = options[flag][0]
                    yield Finding(Code.TRAINING_FLAG, path, found, f"use a multiple of {by}")
            for flag, other, why in _NOT_ABOVE if options else ():
                value, most = _number(options, flag), _number(options, other)
                if value and most and value > most:
                    found = f"{flag} {value} above {other} {most}: {why}"
                    stops = "stops" in why
                    level = Level.ERROR if stops else Level.WARNING
                    path = options[flag][0]
                    yield Finding(Code.TRAINING_FLAG, path, found, f"use {most} or less", level)
            yield from _warm_up(options)
            saves = "--save" in options and "--save-interval" not in options
            if saves and known_options(container) and "--config-file" not in options:
                found = "--save without --save-interval: Megatron stops at once"
                path = options["--save"][0]
                yield Finding(Code.TRAINING_FLAG, path, found, "add --save-interval")
            unsaved = "--save-interval" in options and "--save" not in options
            if unsaved and known_options(container) and "--config-file" not in options:
                found = "--save-interval without --save: no checkpoint is ever written"
                path = options["--save-interval"][0]
                remedy = "add --save with a directory on the shared file system"
                yield Finding(Code.TRAINING_FLAG, path, found, remedy, Level.WARNING)
            yield from _rates(options)


def _rates(options: Options) -> Iterator[Finding]:
    """Require a learning rate that falls.

    Megatron-LM, megatron/core/optimizer_param_scheduler.py: assert self.max_lr >= self.min_lr.
    """
    try:
        most, least = (float(options[each][1]) for each in ("--lr", "--min-lr"))
    except (KeyError, ValueError):
        return
    if least > most:
        found = f"--min-lr {options['--min-lr'][1]} above --lr {options['--lr'][1]}: Megatron stops"
        path, remedy = options["--min-lr"][0], f"use {options['--lr'][1]} or less"
        yield Finding(Code.TRAINING_FLAG, path, found, remedy)


def _warm_up(options: Options) -> Iterator[Finding]:
    """Require a warm-up that ends before the decay of the learning rate does.

    Megatron-LM, megatron/core/optimizer_param_scheduler.py: assert lr_warmup_steps <
    lr_decay_steps; without --lr-decay-iters the decay lasts as long as the training.
    """
    other = "--lr-decay-iters" if "--lr-decay-iters" in options else "--train-iters"
    first, last = _number(options, "--lr-warmup-iters"), _number(options, other)
    if first and last and first >= last:
        found = f"--lr-warmup-iters {first}, and {other} is {last}: Megatron stops at once"
        path = options["--lr-warmup-iters"][0]
        yield Finding(Code.TRAINING_FLAG, path, found, f"use less than {last}")


def _is_free(options: Options, flag: str, other: str) -> bool:
    """Tell whether another option takes the relation away."""
    return flag == "--hidden-size" and "--kv-channels" in options and other != ""


def _options(container: Container) -> Options:
    """Return the options of Megatron; none where one is given twice, or by a shell."""
    found: Options = {}
    for path, flag, value in megatron_flags(container):
        if flag in found or is_placeholder(value):
            return {}
        found[flag] = (path, value)
    return found


def _number(options: Options, flag: str) -> int | None:
    return number(options[flag][1]) if flag in options else None
