"""Whether the data suffice for the run: how often it reads them, and what validation gets.

Source: Muennighoff et al. 2023, "Scaling Data-Constrained Language Models" (arXiv 2305.16264):
up to 4 epochs are nearly as good as new data, and beyond some 16 little is learned from more.
"""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning
from megatron_eks.config.job import MegatronRun

_MOST_EPOCHS = 16
_SHARES = 3
# Llama 3 405B had 16 million, DeepSeek V3 63 (Grattafiori et al. 2024, section 3.4; DeepSeek-AI
# 2024, section 4.2).
_MOST_BATCH_TOKENS = 128 << 20
_PERCENTS = 20


def check_amount(job: MegatronRun) -> Iterator[Finding]:
    """Yield a corpus that is read over and over, or leaves a part without a sequence."""
    corpus, split, training = job.data.corpus_tokens, job.data.shares, job.training
    yield from _batch(training.global_batch_size, training.sequence_length)
    if len(split) == _SHARES and 0 < split[0] < sum(split) / 2:
        found = f"{split[0] / sum(split):.0%} of the data are for training"
        remedy = "the first share is training's: [98, 2, 0]; all of them in the same unit"
        yield warning(Code.DATA_SPLIT, ("data", "split"), found, remedy)
    yield from _weights(job)
    if corpus is None or len(split) != _SHARES or split[0] <= 0:
        return
    share = split[0] / sum(split)
    step = training.global_batch_size * training.sequence_length
    yield from check_epochs(step, training.train_iters, int(corpus * share), "train_iters")
    left = int(corpus * split[1] / sum(split))
    if split[1] > 0 and training.eval_iters and left <= training.sequence_length:
        found = (
            f"{left} tokens of {corpus} are for validation, and a sequence has "
            f"{training.sequence_length}"
        )
        remedy = "give the second share more, or set training.eval_iters: 0"
        yield Finding(Code.DATA_SPLIT, ("data", "split"), found, remedy)


def _batch(sequences: int, length: int) -> Iterator[Finding]:
    """Yield a batch of more tokens than any published run had: most often it counts tokens."""
    if sequences * length > _MOST_BATCH_TOKENS:
        found = f"{sequences} sequences of {length} tokens are {sequences * length} for one step"
        remedy = "count sequences, and not tokens: 4 to 16 million tokens are common"
        yield warning(Code.TAKES_YEARS, ("training", "global_batch_size"), found, remedy)


def _weights(job: MegatronRun) -> Iterator[Finding]:
    """Yield weights of a blend of which some are fractions, and others percents."""
    weights = [blend.weight for blend in job.data.blend or ()]
    for index, weight in enumerate(weights):
        if weight < 1 and max(weights) >= _PERCENTS:
            found = f"{weight:g} beside {max(weights):g}: its corpus would hardly be read"
            remedy = "write all weights as fractions, or all as percents"
            yield warning(Code.DATA_SOURCE, ("data", "blend", index, "weight"), found, remedy)


def check_epochs(step: int, steps: int, corpus: int, key: str) -> Iterator[Finding]:
    """Yield a run that reads its corpus so often that nothing new is in it."""
    tokens = step * steps
    if tokens > _MOST_EPOCHS * corpus:
        most = _MOST_EPOCHS * corpus // step
        found = (
            f"the run reads {tokens} tokens, {tokens / max(corpus, 1):.0f} times the {corpus} "
            "that the corpus has for training"
        )
        fewer = f"use training.{key}: {most} at most, or" if most else "use"
        remedy = (
            f"{fewer} more data: after about {_MOST_EPOCHS} epochs a model learns nothing more "
            "from them"
        )
        yield warning(Code.REPEATED_DATA, ("data", "corpus_tokens"), found, remedy)
