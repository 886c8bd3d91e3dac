"""Whether a model has a row for every token of its tokenizer, where the tokenizer is a known one.

Sources: Megatron-LM, megatron/core/tokenizers/utils/build_tokenizer.py (core_v0.19), which makes
the vocabulary from the tokenizer and not from the model; torch, `nn.Embedding`, whose look-up ends
in a device-side assert outside of it.
"""

from typing import TYPE_CHECKING

from megatron_eks.catalog.tokenizers import tokens
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, has_errors
from megatron_eks.config.job import FetchJob, MegatronRun, TorchRun
from megatron_eks.plan.jobs.layout import model_shape
from megatron_eks.plan.jobs.model_checks import check_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from megatron_eks.config.job import AnyJob


def check_vocabulary(
    job: MegatronRun | TorchRun, others: "Sequence[AnyJob]"
) -> "Iterator[Finding]":
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
        yield Finding(Code.VOCABULARY, path, found, remedy, Level.WARNING)


def tokens_of(tokenizer: str, others: "Sequence[AnyJob]") -> int | None:
    """Return the number of tokens of a tokenizer, by what a job fetches or by its name."""
    for other in others:
        if isinstance(other, FetchJob) and other.directory == tokenizer:
            name = other.tokenizer or other.model
            return tokens(name) if name else tokens(tokenizer)
    return tokens(tokenizer)
