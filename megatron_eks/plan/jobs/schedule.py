"""When a run learns, evaluates, logs and saves: what contradicts itself, or comes to nothing.

Sources: `validate_args` and `OptimizerParamScheduler` of Megatron-LM (core_v0.19).
"""

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, warning
from megatron_eks.config.job import MegatronRun, Run
from megatron_eks.config.training import FsdpTraining, MegatronTraining
from megatron_eks.plan.jobs.arguments import decay_iters

# Published runs of Adam peak between 1e-5 and 6e-3; a slip of the exponent lands far above.
_HIGHEST_RATE, _IMPOSSIBLE_RATE = 0.02, 1.0
_LOWEST_RATE = 1e-8
_HIGHEST_DECAY = 0.9
# Runs clip at 1, a few at 0.1 to 5: norms of gradients are about 1 once the loss has begun to fall.
_HIGHEST_CLIP = 10.0
# The highest of published runs of such a size: 3e-4 for Llama 3.1 8B, 1e-3 for small ones (Brown et
# al. 2020, table 2.1; Grattafiori et al. 2024, table 3).
_LARGE_MODEL, _HIGHEST_OF_LARGE = 1e9, 2e-3
_HIGHEST_OF_TRAINED = 1e-3
# Below it Adam's first steps, which its averages do not steady yet, move weights little.
_NEEDS_WARM_UP = 1e-4
# Llama 3 405B had 16 million, DeepSeek V3 63 (Grattafiori et al. 2024, section 3.4; DeepSeek-AI
# 2024, section 4.2).
_MOST_BATCH_TOKENS = 128 << 20
_SHORT_TIMEOUT_MINUTES = 5


def check_schedule(job: MegatronRun) -> Findings:
    """Yield what is wrong with learning rate, evaluation, logging, recomputing and saving."""
    yield from check_optimizer(job.training)
    sequences, length = job.training.global_batch_size, job.training.sequence_length
    if sequences * length > _MOST_BATCH_TOKENS:
        found = f"{sequences} sequences of {length} tokens are {sequences * length} for one step"
        remedy = "count sequences, and not tokens: 4 to 16 million tokens are common"
        yield warning(Code.TAKES_YEARS, ("training", "global_batch_size"), found, remedy)
    yield from _warm_up(job.training)
    yield from _decay(job.training)
    yield from _intervals(job)
    yield from _recompute(job.training)
    if job.runtime.distributed_timeout_minutes < _SHORT_TIMEOUT_MINUTES:
        # The first rank builds the index while all others wait in a barrier (core_v0.19,
        # core/datasets/blended_megatron_dataset_builder.py); Megatron's default is 10 minutes.
        found = "ranks wait for the first of them to index the data, which takes minutes"
        remedy = f"use {_SHORT_TIMEOUT_MINUTES} or more"
        yield warning(Code.SCHEDULE, ("runtime", "distributed_timeout_minutes"), found, remedy)
    if job.checkpoint.format == "torch" and job.checkpoint.async_save:
        found = "Megatron saves asynchronously in the torch_dist format only"
        remedy = "use false, or torch_dist"
        yield Finding(Code.SCHEDULE, ("checkpoint", "async_save"), found, remedy)


def check_optimizer(training: MegatronTraining | FsdpTraining) -> Findings:
    """Yield rates that no run of Adam survives, and those that look like slips."""
    rate = training.learning_rate
    path: Path = ("training", "learning_rate")
    if rate >= _IMPOSSIBLE_RATE:
        found = f"{rate:g}: every step would overwrite the weights"
        yield Finding(Code.OPTIMIZER, path, found, "mind the sign of the exponent: 1e-5")
    elif rate < _LOWEST_RATE:
        found = f"{rate:g}: bf16 weights stay what they are at such steps"
        yield warning(Code.OPTIMIZER, path, found, "mind the exponent: 1e-5")
    elif rate > _HIGHEST_RATE:
        found = f"{rate:g} is above what Adam trains transformers with"
        yield warning(Code.OPTIMIZER, path, found, "use 1e-5 to 6e-3")
    if training.min_learning_rate > rate:
        found = f"{training.min_learning_rate} is above learning_rate {rate}"
        path = ("training", "min_learning_rate")
        yield Finding(Code.SCHEDULE, path, found, "use a value between 0 and learning_rate")
    elif training.min_learning_rate == rate and training.lr_schedule != "constant":
        found = f"{rate:g} is learning_rate too: the rate never falls"
        remedy = "use a tenth of learning_rate, or lr_schedule: constant"
        yield warning(Code.SCHEDULE, ("training", "min_learning_rate"), found, remedy)
    elif training.lr_schedule == "constant" and 0 < training.min_learning_rate < rate:
        found, remedy = "a constant rate never falls to it", "remove it, or use another lr_schedule"
        yield warning(Code.NO_MEANING, ("training", "min_learning_rate"), found, remedy)
    if training.weight_decay > _HIGHEST_DECAY:
        found = f"{training.weight_decay:g} pulls weights to zero faster than they learn"
        yield warning(Code.OPTIMIZER, ("training", "weight_decay"), found, "use 0 to 0.2")
    if training.clip_grad > _HIGHEST_CLIP:
        found = f"norms of gradients are about 1, so {training.clip_grad:g} clips none"
        yield warning(Code.OPTIMIZER, ("training", "clip_grad"), found, "use 1.0")
    if training.adam_beta2 < training.adam_beta1:
        found = f"{training.adam_beta2:g} is below adam_beta1 {training.adam_beta1:g}"
        remedy = "swap them: the second moment is averaged over longer"
        yield warning(Code.OPTIMIZER, ("training", "adam_beta2"), found, remedy)


def check_rate(job: Run, size: int) -> Findings:
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
    if limit < rate <= _HIGHEST_RATE:
        of = "weights that are trained" if trained else f"a model of {size / 1e9:.1f} billion"
        found = f"{rate:g} is above what {of} took in any published run: {limit:g}"
        remedy = "use 1e-5 to 1e-4" if trained else "use 6e-5 to 1e-3"
        yield warning(Code.OPTIMIZER, path, found, remedy)


def _warm_up(training: MegatronTraining) -> Findings:
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


def _decay(training: MegatronTraining) -> Findings:
    path: Path = ("training", "decay_iters")
    if training.decay_iters is None or training.lr_schedule == "WSD":
        return
    if training.lr_schedule == "constant":
        found, remedy = "a constant rate never falls", "remove it, or use another lr_schedule"
        yield warning(Code.NO_MEANING, path, found, remedy)
    elif training.decay_iters > training.train_iters:
        found = f"the run ends after {training.train_iters}, above its least learning rate"
        remedy = f"use {training.train_iters}, unless a later run goes on from here"
        yield warning(Code.SCHEDULE, path, found, remedy)


def check_reached(job: Run, steps: int, *keys: str) -> Findings:
    """Yield intervals that a run of so many steps ends before."""
    for block, _, name in (key.partition(".") for key in keys):
        part = getattr(job, block)
        if name in part.model_fields_set and getattr(part, name) > steps:
            found = f"the run ends after {steps} steps, before the first one"
            yield warning(Code.SCHEDULE, (block, name), found, f"use at most {steps}")


def _intervals(job: MegatronRun) -> Findings:
    training = job.training
    evaluated = ("training.eval_interval",) if training.eval_iters else ()
    yield from check_reached(job, training.train_iters, "checkpoint.interval", *evaluated)
    if training.eval_iters > training.eval_interval / 2:
        most, least = training.eval_interval // 2, 2 * training.eval_iters
        found = f"{training.eval_iters} iterations validate every {training.eval_interval} trained"
        remedy = f"use at most {most}, or training.eval_interval: {least}"
        yield warning(Code.EVALUATION, ("training", "eval_iters"), found, remedy)


def _recompute(training: MegatronTraining) -> Findings:
    if training.recompute == "full":
        return
    for name in ("recompute_method", "recompute_layers"):
        if getattr(training, name) is not None:
            found = f"{name} has a meaning with recompute: full only"
            yield Finding(Code.RECOMPUTE, ("training", name), found, "remove it, or use full")
