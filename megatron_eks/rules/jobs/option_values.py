"""Rule over the values of Megatron-LM's options on a command line."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from megatron_eks.catalog.megatron_options import FLAGS, NUMBERS, SINGLE, VERSION, WHOLE, WORDS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.training_flags import megatron_flags
from megatron_eks.rules.values import is_placeholder, number, shown
from megatron_eks.rules.workloads import Manifest

_CLOSE = 0.7
_MEANT = 3
_DIGITS = re.compile(r"[0-9]+")
_FILES = (".json", ".model", ".tiktoken", ".txt", ".vocab")
# Every so many layers, or a list with a number for each: `_eval_pattern` takes no blanks in it.
_LISTS = frozenset(
    {"--linear-attention-freq", "--moe-layer-freq", "--no-rope-freq", "--window-attn-skip-freq"}
)
_TRUTHS = frozenset({"0", "1", "False", "True", "false", "no", "true", "yes"})


def values(manifest: Manifest) -> Iterator[Finding]:
    """Require of Megatron-LM's options values that its parser takes.

    Megatron-LM, megatron/training/arguments.py at the version of the catalogue: argparse ends the
    program. Another version may have more words, so only what is nearly one of them is refused.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            flags = list(megatron_flags(container))
            others = {flag: value for _, flag, value in flags}
            for path, flag, value in flags:
                said = None if is_placeholder(value) else _wrong(flag, value, others)
                if said is not None:
                    found, remedy, level = said
                    yield Finding(Code.TRAINING_FLAG, path, found, remedy, level)


def _wrong(flag: str, value: str, others: Mapping[str, str]) -> tuple[str, str, Level] | None:
    written = shown(value)
    if flag in FLAGS:
        return (
            (
                f"{flag} takes no value, and {written} follows: Megatron stops at once",
                "remove the value",
                Level.ERROR,
            )
            if value in _TRUTHS
            else None
        )
    if flag in SINGLE and (not value or value.startswith("--")):
        return f"{flag} without its value: Megatron stops at once", "add it", Level.ERROR
    if flag in WHOLE and number(value) is None:
        return f"{flag} {written} is no whole number", "write one", Level.ERROR
    if flag in NUMBERS and not _is_number(value):
        return f"{flag} {written} is no number", "write one", Level.ERROR
    return _of_lists(flag, value) or _of_words(flag, value, others)


def _of_lists(flag: str, value: str) -> tuple[str, str, Level] | None:
    if flag not in _LISTS or "[" not in value or len(value.split()) == 1:
        return None
    found = f"{flag} {shown(value)} has blanks, which Megatron's lists of layers do not take"
    return found, f"write {''.join(value.split())}", Level.ERROR


def _of_words(flag: str, value: str, others: Mapping[str, str]) -> tuple[str, str, Level] | None:
    words = WORDS.get(flag, ())
    if words and value not in words:
        close = get_close_matches(value, words, _MEANT, _CLOSE)
        # Another number is another model's word, such as forks have, and no slip.
        meant = [each for each in close if _DIGITS.findall(each) == _DIGITS.findall(value)]
        remedy = f"did you mean {meant[0]}?" if meant else f"use {', '.join(words)}"
        model = others.get("--tokenizer-model", "")
        if not meant and flag == "--tokenizer-type" and _is_directory(model):
            remedy = "write HuggingFaceTokenizer, which reads a directory of Transformers"
        level = Level.ERROR if close else Level.WARNING
        return f"Megatron-LM {VERSION} takes no {flag} {shown(value)}", remedy, level
    return None


def _is_directory(model: str) -> bool:
    """Tell a directory, or a model's name on the Hub, from the one file that others read."""
    known = bool(model) and not is_placeholder(model) and "$" not in model
    return known and not model.endswith(_FILES)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
