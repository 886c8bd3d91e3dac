"""The data of a run: how much it reads, and whose tokens they are.

Sources: Megatron-LM, megatron/core/tokenizers/utils/build_tokenizer.py (core_v0.19), which makes
the vocabulary from the tokenizer and not from the model; torch, `nn.Embedding`, whose look-up ends
in a device-side assert outside of it.
"""

import re
from collections.abc import Iterator, Sequence

from megatron_eks.catalog.models import tokens
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, has_errors, warning
from megatron_eks.config.job import AnyJob, DataPrepJob, FetchJob, MegatronRun, TorchRun
from megatron_eks.plan.jobs.models import check_model, model_shape
from megatron_eks.plan.jobs.paths import check_tokenizer


def check_vocabulary(job: MegatronRun | TorchRun, others: Sequence[AnyJob]) -> Iterator[Finding]:
    """Yield a tokenizer that is not the model's: by what its name says, or what is fetched."""
    count = tokens_of(job.data.tokenizer, others)
    if count is None or has_errors(check_model(job.model)):
        return
    rows = model_shape(job.model).vocab_size
    path = ("data", "tokenizer")
    if count > rows:
        found = f"{job.data.tokenizer} has {count} tokens, and the model knows {rows}"
        remedy = "use the model's own tokenizer"
        if job.checkpoint.pretrained is None:
            remedy = f"{remedy}, or set model.vocab_size: {count}"
        yield Finding(Code.VOCABULARY, path, found, remedy)
    elif job.checkpoint.pretrained is not None and count < rows // 2:
        found = f"{job.data.tokenizer} has {count} tokens, and the weights were made with {rows}"
        remedy = "use the tokenizer that the base weights were trained with"
        yield warning(Code.VOCABULARY, path, found, remedy)


def tokens_of(tokenizer: str, others: Sequence[AnyJob]) -> int | None:
    """Return the number of tokens of a tokenizer, by what a job fetches or by its name."""
    for other in others:
        if isinstance(other, FetchJob) and other.directory == tokenizer:
            name = other.tokenizer or other.model
            return tokens(name) if name else tokens(tokenizer)
    return tokens(tokenizer)


def check_prepared(
    tokenizer: str, path: Path, prefix: str, preparations: Sequence[DataPrepJob]
) -> Iterator[Finding]:
    """Compare a data set that is read with those that are made."""
    for preparation in preparations:
        written = prepared(preparation)
        clean = not any(check_tokenizer((), preparation.tokenizer))
        if prefix in written and clean and preparation.tokenizer != tokenizer:
            found = f"{preparation.name} makes its tokens with {preparation.tokenizer}"
            remedy = "use the same tokenizer, or the numbers mean other words"
            yield warning(Code.DATA_SOURCE, ("data", "tokenizer"), found, remedy)
    if any(prefix in prepared(each) for each in preparations):
        return
    for preparation in preparations:
        made, base = prepared(preparation), preparation.output_prefix
        if base.endswith("_document"):
            continue  # it has a finding of its own
        if prefix == base:
            found = f"{preparation.name} writes {made[0]}"
            yield Finding(Code.DATA_SOURCE, path, found, f"use {made[0]}")
        elif re.fullmatch(rf"{re.escape(base)}_[^_/]+_document", prefix):
            found = f"{preparation.name} writes {' and '.join(made)}, and no job writes {prefix}"
            remedy = f"use {made[0]}, or name the key in json_keys of {preparation.name}"
            yield warning(Code.DATA_SOURCE, path, found, remedy)


def check_tokens(
    job: MegatronRun | TorchRun, prefix: str, others: Sequence[AnyJob]
) -> Iterator[Finding]:
    """Yield data whose numbers are another tokenizer's for certain: of another size."""
    tokenizer = job.data.tokenizer
    count, vocabulary = tokens_of(tokenizer, others), None
    if not has_errors(check_model(job.model)):
        vocabulary = model_shape(job.model).vocab_size
    for other in others:
        if not isinstance(other, DataPrepJob) or prefix not in prepared(other):
            continue
        theirs = tokens_of(other.tokenizer, others)
        if count is not None and theirs is not None and count != theirs:
            found = f"{count} tokens, and {other.name} made the data with {theirs}"
            again = f"prepare the data again: set tokenizer: {tokenizer} in {other.name}"
            remedy = f"use {other.tokenizer}, or prepare the data with {tokenizer}"
            if vocabulary in {count, theirs}:
                remedy = again if vocabulary == count else f"use {other.tokenizer}"
            yield Finding(Code.VOCABULARY, ("data", "tokenizer"), found, remedy)


def prepared(preparation: DataPrepJob) -> list[str]:
    """Return the prefixes of the data sets that a preparation writes, one a key."""
    return [f"{preparation.output_prefix}_{key}_document" for key in preparation.json_keys]


_SHARES = 3


def check_amount(job: MegatronRun) -> Iterator[Finding]:
    """Yield shares of a corpus in another order, or without a sequence in one of them."""
    corpus, split, training = job.data.corpus_tokens, job.data.shares, job.training
    if len(split) == _SHARES and 0 < split[0] < sum(split) / 2:
        found = f"{split[0] / sum(split):.0%} of the data are for training"
        remedy = "the first share is training's: [98, 2, 0]; all of them in the same unit"
        yield warning(Code.DATA_SPLIT, ("data", "split"), found, remedy)
    if corpus is None or len(split) != _SHARES or split[0] <= 0:
        return
    left = int(corpus * split[1] / sum(split))
    if split[1] > 0 and training.eval_iters and left <= training.sequence_length:
        found = (
            f"{left} tokens of {corpus} are for validation, and a sequence has "
            f"{training.sequence_length}"
        )
        remedy = "give the second share more, or set training.eval_iters: 0"
        yield Finding(Code.DATA_SPLIT, ("data", "split"), found, remedy)
