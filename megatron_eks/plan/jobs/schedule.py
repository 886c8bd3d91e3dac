"""When a run learns, evaluates, logs and saves: what contradicts itself, or comes to nothing.

Sources: `validate_args` and `OptimizerParamScheduler` of Megatron-LM (core_v0.19).
"""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.config.job import MegatronRun, TorchRun
from megatron_eks.config.training import FsdpTraining, MegatronTraining
from megatron_eks.plan.jobs.arguments import decay_iters

# Published runs of Adam peak between 1e-5 and 6e-3; a slip of the exponent lands far above.
_HIGHEST_RATE, _IMPOSSIBLE_RATE = 0.02, 1.0
_LOWEST_RATE = 1e-8
_SHORT_TIMEOUT_MINUTES = 5
# The highest of published runs of such a size: 3e-4 for Llama 3.1 8B, 1e-3 for small ones (Brown et
# al. 2020, table 2.1; Grattafiori et al. 2024, table 3).
_LARGE_MODEL, _HIGHEST_OF_LARGE = 1e9, 2e-3
_HIGHEST_OF_TRAINED = 1e-3
# Below it Adam's first steps, which its averages do not steady yet, move weights little.
_NEEDS_WARM_UP = 1e-4


def check_schedule(job: MegatronRun) -> Iterator[Finding]:
    """Yield what is wrong with learning rate, evaluation, logging, recomputing and saving."""
    yield from check_optimizer(job.training)
    yield from _warm_up(job.training)
    evaluated = ["training.eval_interval"] * bool(job.training.eval_iters)
    keys = ("training.log_interval", *evaluated)
    yield from check_intervals(job, job.training.train_iters, *keys)
    yield from _evaluation(job.training)
    yield from _recompute(job.training)
    if job.runtime.distributed_timeout_minutes < _SHORT_TIMEOUT_MINUTES:
        # The first rank builds the index while all others wait in a barrier (core_v0.19,
        # core/datasets/blended_megatron_dataset_builder.py); Megatron's default is 10 minutes.
        found = "ranks wait for the first of them to index the data, which takes minutes"
        remedy = f"use {_SHORT_TIMEOUT_MINUTES} or more"
        yield warning(Code.SCHEDULE, ("runtime", "distributed_timeout_minutes"), found, remedy)
    if job.checkpoint.format == "torch" and job.checkpoint.async_save:
        found = "Megatron saves asynchronously in the torch_dist format only"
        remedy = "set it to false, or use torch_dist"
        yield Finding(Code.SCHEDULE, ("checkpoint", "async_save"), found, remedy)


def check_optimizer(training: MegatronTraining | FsdpTraining) -> Iterator[Finding]:
    """Yield rates that no run of Adam survives, and those that look like slips."""
    rate = training.learning_rate
    path: Path = ("training", "learning_rate")
    if rate >= _IMPOSSIBLE_RATE:
        found = f"{rate:g}: every step would overwrite the weights"
        yield Finding(Code.OPTIMIZER, path, found, "mind the sign of the exponent: 1e-5")
    elif rate < _LOWEST_RATE:
        found = f"{rate:g}: bf16 weights stay what they are at such steps"
        remedy = "mind the exponent: 1e-5"
        yield warning(Code.OPTIMIZER, path, found, remedy)
    elif rate > _HIGHEST_RATE:
        found = f"{rate:g} is above what Adam trains transformers with"
        yield warning(Code.OPTIMIZER, path, found, "use 1e-5 to 6e-3")
    if training.min_learning_rate > rate:
        found = f"{training.min_learning_rate} is above learning_rate {rate}"
        path = ("training", "min_learning_rate")
        yield Finding(Code.SCHEDULE, path, found, "use a value between 0 and learning_rate")
    idle = {"decay_iters"} & training.model_fields_set
    idle |= {"min_learning_rate"} if 0 < training.min_learning_rate < rate else set()
    for name in sorted(idle) if training.lr_schedule == "constant" else ():
        found, remedy = "a constant rate never falls", "remove it, or use another lr_schedule"
        yield warning(Code.NO_MEANING, ("training", name), found, remedy)


def check_rate(job: MegatronRun | TorchRun, size: int) -> Iterator[Finding]:
    """Yield a rate that a model of this size, or one that is trained already, does not survive."""
    rate, path = job.training.learning_rate, ("training", "learning_rate")
    trained = job.checkpoint.pretrained is not None
    limit = _HIGHEST_OF_TRAINED if trained else _HIGHEST_OF_LARGE
    if size < _LARGE_MODEL:
        return
    cold = isinstance(job, MegatronRun) and not (trained or job.training.warmup_iters)
    if cold and rate >= _NEEDS_WARM_UP:
        found = f"random weights take {rate:g} from the first step, and the loss may diverge"
        remedy = "use a hundredth to a tenth of the run's steps"
        yield warning(Code.OPTIMIZER, ("training", "warmup_iters"), found, remedy)
    if not limit < rate <= _HIGHEST_RATE:
        return
    of = "weights that are trained already" if trained else f"a model of {size / 1e9:.1f} billion"
    found = f"{rate:g} is above what {of} took in any published run: {limit:g}"
    remedy = "use 1e-5 to 1e-4" if trained else "use 6e-5 to 1e-3"
    yield warning(Code.OPTIMIZER, path, found, remedy)


def _warm_up(training: MegatronTraining) -> Iterator[Finding]:
    decay = decay_iters(training)
    if training.lr_schedule == "WSD":
        left = training.train_iters - decay
        found = f"{training.warmup_iters} warm-up iterations, and the last {decay} are the decay"
    else:
        left = decay
        found = f"{training.warmup_iters} warm-up iterations, and the rate decays until {decay}"
    if training.lr_schedule == "WSD" and training.warmup_iters >= left and training.decay_iters:
        most = training.train_iters - training.warmup_iters - 1
        if decay >= training.train_iters and most > 0:
            found = f"{decay} iterations of decay, and the run has {training.train_iters}"
            remedy = f"use at most {most}, which leaves room for the warm-up"
            yield Finding(Code.SCHEDULE, ("training", "decay_iters"), found, remedy)
            return
    if training.warmup_iters >= left:
        remedy = f"use fewer than {left}" if left > 0 else "shorten training.decay_iters"
        yield Finding(Code.SCHEDULE, ("training", "warmup_iters"), found, remedy)


def check_intervals(job: MegatronRun | TorchRun, most: int, *keys: str) -> Iterator[Finding]:
    """Yield intervals that the file names and that are longer than the run."""
    for key, what in (("checkpoint.interval", "checkpoint"), *((each, "one") for each in keys)):
        block, _, name = key.partition(".")
        part = getattr(job, block)
        if getattr(part, name) > most and name in part.model_fields_set:
            found = f"the run ends after {most} steps, before the first {what}"
            yield warning(Code.SCHEDULE, (block, name), found, f"use at most {most}")


def _evaluation(training: MegatronTraining) -> Iterator[Finding]:
    if training.eval_iters > training.eval_interval / 2:
        found = (
            f"{training.eval_iters} iterations of validation for every "
            f"{training.eval_interval} of training"
        )
        most, least = training.eval_interval // 2, 2 * training.eval_iters
        remedy = f"use at most {most}, or training.eval_interval: {least}"
        yield warning(Code.EVALUATION, ("training", "eval_iters"), found, remedy)


def _recompute(training: MegatronTraining) -> Iterator[Finding]:
    if training.recompute == "full":
        return
    for name in ("recompute_method", "recompute_layers"):
        if getattr(training, name) is not None:
            found = f"{name} has a meaning with recompute: full only"
            remedy = "remove it, or set recompute: full"
            yield Finding(Code.RECOMPUTE, ("training", name), found, remedy)
