"""Writes what the preparation of data is timed on: real text as JSON lines, and a tokenizer.

Runs in .venv-programs: python prepare_corpus.py OUT MEGABYTES...
"""

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 32_000
TRAINED_ON = 20_000_000
LONGEST = 1_000_000
BOS, EOD = "<|begin_of_text|>", "<|end_of_text|>"
# Llama 3's way to split text, as its tokenizer.json gives it.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def texts() -> Iterator[str]:
    """Yield the sources of the interpreter and of every package beside it, each once."""
    seen = set()
    roots = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "/usr/share", "/usr/lib"]
    for root in roots:
        for path in sorted(Path(root).rglob("*")):
            if path.suffix not in {".py", ".pyi", ".md", ".rst", ".txt", ".h", ".hpp", ".html"}:
                continue
            try:
                text = path.read_text()
            except (OSError, ValueError):
                continue
            if text and len(text) < LONGEST and hash(text) not in seen:
                seen.add(hash(text))
                yield text


def main(out: Path, sizes: list[int]) -> None:
    """Write a corpus of each size, the texts again from the first where they do not suffice."""
    every = list(texts())
    for size in sizes:
        with (out / f"{size}.jsonl").open("w") as file:
            left, number = size * 1_000_000, 0
            while left > 0:
                # A number in front keeps repeated texts apart.
                text = f"{number // len(every)} {every[number % len(every)]}"
                left -= file.write(json.dumps({"text": text}) + "\n")
                number += 1
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_some(every), trainer)
    tokenizer.save(str(out / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOD}
    (out / "tokenizer_config.json").write_text(json.dumps(names))


def _some(every: list[str]) -> Iterator[str]:
    left = TRAINED_ON
    for text in every[::7]:
        left -= len(text)
        if left < 0:
            return
        yield text


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(word) for word in sys.argv[2:]])
