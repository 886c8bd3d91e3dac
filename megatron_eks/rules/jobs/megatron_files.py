"""Rules over the files that Megatron-LM's options name: data by prefixes, and tokenizers."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.megatron_layouts import ELSEWHERE, known_options
from megatron_eks.rules.jobs.training_flags import megatron_words
from megatron_eks.rules.values import is_placeholder, shown
from megatron_eks.rules.workloads import Container, Manifest

_DATA = frozenset({"--data-path", "--train-data-path", "--valid-data-path", "--test-data-path"})
# With these the data are texts, or none.
_NO_INDEX = frozenset({"--sft", "--mock-data", "--fim-data", "--use-energon-dataloader"})
_INDEXED = re.compile(r"(?P<prefix>.+)\.(bin|idx)")
_TEXTS = re.compile(r".+\.(jsonl?|txt|parquet|arrow)(\.gz|\.zst)?")
_WEIGHT = re.compile(r"[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?")
# pretrain_gpt.py gives its parser args_defaults={'tokenizer_type': 'GPT2BPETokenizer'}.
_OF_GPT = re.compile(r"\bpretrain_gpt\.py\b")
_OF_A_RUN = frozenset({"--data-path", "--lr", "--num-layers", "--train-iters"})
_TOKENIZER_FILE = re.compile(r"/.+/[^/]+\.(model|json)")
_MODELS = frozenset(
    {
        *("HuggingFaceTokenizer", "SentencePieceTokenizer", "GPTSentencePieceTokenizer"),
        *("Llama2Tokenizer", "TikTokenizer", "MultimodalTokenizer"),
    }
)


def prefixes(manifest: Manifest) -> Iterator[Finding]:
    """Require prefixes of indexed data, and with weights one for each.

    Megatron-LM, megatron/core/datasets/indexed_dataset.py (get_idx_path, get_bin_path) and utils.py
    (get_blend_from_list): the endings are added, and an odd list is one of prefixes alone.
    """
    for container, written in _programs(manifest):
        if any(word.partition("=")[0] in _NO_INDEX for _, word in written):
            continue
        for path, flag, values in _data(written):
            if any(is_placeholder(each) for each in values):
                continue
            said = next((said for each in values if (said := _no_prefix(each))), None)
            if said is None:
                said = _uneven(values)
            if said is not None:
                found, remedy = said
                yield Finding(Code.TRAINING_FLAG, path, f"{flag} {found}", remedy)
        yield from _tokenizer(container)
        yield from _split(written)


def _programs(manifest: Manifest) -> Iterator[tuple[Container, list[tuple[Path, str]]]]:
    for pod in manifest.pods:
        for container in pod.containers:
            words = [] if container.is_init else megatron_words(container)
            if words:
                yield container, words


def _data(words: list[tuple[Path, str]]) -> Iterator[tuple[Path, str, list[str]]]:
    """Return the options that name data, each with all its values."""
    for index, (path, word) in enumerate(words):
        flag, equals, first = word.partition("=")
        if flag in _DATA:
            values = [first] if equals else []
            for _, after in words[index + 1 :]:
                if after.startswith("--"):
                    break
                values.append(after)
            yield path, flag, values


def _no_prefix(value: str) -> tuple[str, str] | None:
    indexed = _INDEXED.fullmatch(value)
    if indexed is not None:
        found = f"{shown(value)}: Megatron adds .bin and .idx itself, and finds no such file"
        return found, f"write the prefix: {indexed['prefix']}"
    if _TEXTS.fullmatch(value):
        found = f"{shown(value)} is no prefix of indexed data, which Megatron reads alone"
        return found, "write the prefix that tools/preprocess_data.py made of it"
    return None


def _uneven(values: list[str]) -> tuple[str, str] | None:
    weights = [_WEIGHT.fullmatch(each) is not None for each in values]
    if not any(weights) or weights == [True, False] * (len(values) // 2):
        return None
    count = weights.count(True)
    found = f"has {count} weight{'s' * (count > 1)} and {len(values) - count} prefixes"
    if count * 2 == len(values):
        found += ", not a weight before each prefix"
    weight = values[weights.index(True)]
    found += f": Megatron takes {shown(weight)} for a prefix, and finds no such file"
    return found, "write WEIGHT PREFIX for each, or no weight at all"


def _split(words: list[tuple[Path, str]]) -> Iterator[Finding]:
    """Refuse a split that leaves nothing to train on.

    Megatron-LM, megatron/core/datasets/blended_megatron_dataset_config.py,
    parse_and_normalize_split: parts of training, validation and test, in this order.
    """
    flags = {word.partition("=")[0] for _, word in words}
    for (path, word), (_, after) in zip(words, [*words[1:], ((), "")], strict=True):
        flag, _, value = word.partition("=")
        parts = re.findall(r"[0-9]*[.]?[0-9]+", value or after) if flag == "--split" else []
        if parts and not float(parts[0]) and "--skip-train" not in flags:
            found = f"--split {shown(value or after)} leaves no data for training"
            remedy = "write the part of training first, as 98,2,0"
            yield Finding(Code.TRAINING_FLAG, path, found, remedy)


def _tokenizer(container: Container) -> Iterator[Finding]:
    """Require the files that a tokenizer is made of.

    Megatron-LM, megatron/training/tokenizer/tokenizer.py, build_tokenizer: it asserts them; that of
    Hugging Face calls AutoTokenizer.from_pretrained, which takes what is no directory for the name
    of a repository ("Repo id must be in the form").
    """
    options = known_options(container)
    if not options or not options.keys().isdisjoint(ELSEWHERE):
        return
    path, kind = options.get("--tokenizer-type", ((), ""))
    whole = options.keys() >= _OF_A_RUN and _OF_GPT.search(container.line) is not None
    default = not kind and whole
    if default:
        path, kind = options["--num-layers"][0], "GPT2BPETokenizer"
    needs: tuple[str, ...] = ()
    if kind in _MODELS:
        needs = ("--tokenizer-model",)
    elif kind == "GPT2BPETokenizer":
        needs = ("--vocab-file", "--merge-file")
    elif kind in {"BertWordPieceLowerCase", "BertWordPieceCase"}:
        needs = ("--vocab-file",)
    elif kind == "NullTokenizer":
        needs = ("--vocab-size",)
    lacks = [each for each in needs if each not in options]
    place, model = options.get("--tokenizer-model", ((), ""))
    if kind == "HuggingFaceTokenizer" and _TOKENIZER_FILE.fullmatch(model):
        found = f"--tokenizer-model {shown(model)} is a file, and HuggingFaceTokenizer takes a "
        found += "directory or a name on the hub: it stops"
        remedy = f"write {model.rpartition('/')[0]}"
        yield Finding(Code.TRAINING_FLAG, place, found, remedy)
    if lacks:
        found = f"no --tokenizer-type, so {kind}," if default else f"--tokenizer-type {kind}"
        found += f" without {' and '.join(lacks)}: Megatron stops"
        # Later releases fetch the files of GPT-2 and BERT where they may.
        fetched = "--vocab-file" in needs
        found += ", or fetches one from the internet" if fetched else ""
        level = Level.WARNING if fetched else Level.ERROR
        remedy = f"add {' and '.join(lacks)}"
        remedy = "add --tokenizer-type and --tokenizer-model" if default else remedy
        yield Finding(Code.TRAINING_FLAG, path, found, remedy, level)
