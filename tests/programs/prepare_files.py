"""Corpora, a trained tokenizer, and prepare_data started on them as the image starts it."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-programs" / "bin" / "python"
PROGRAM = "megatron_eks.programs.prepare_data"
BOS, EOD = "<|begin_of_text|>", "<|end_of_text|>"

# A small tokenizer of Llama 3's kind: byte level, a splitting pattern, BOS by post-processor.
TRAIN = """
import json, sys
from pathlib import Path
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
out = Path(sys.argv[1])
bos, eod = sys.argv[2:]
pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" \\
    r" ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
tokenizer = Tokenizer(models.BPE(ignore_merges=True))
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(pattern), "isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
])
tokenizer.decoder = decoders.ByteLevel()
texts = [path.read_text() for path in sorted(Path(json.__file__).parent.glob("*.py"))]
trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=[bos, eod], show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train_from_iterator(texts, trainer)
tokenizer.post_processor = processors.TemplateProcessing(
    single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
tokenizer.save(str(out / "tokenizer.json"))
names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": eod}
(out / "tokenizer_config.json").write_text(json.dumps(names))
"""

# Megatron's own tokenizer class and data set builder, driven as tools/preprocess_data.py does.
ORACLE = """
import json, sys
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
from megatron.core.tokenizers.text.libraries.huggingface_tokenizer import HuggingFaceTokenizer
corpus, tokenizer, out = sys.argv[1:4]
for name, bos in (("plain", False), ("bos", True)):
    library = HuggingFaceTokenizer(tokenizer, include_special_tokens=bos)
    kind = DType.optimal_dtype(library.vocab_size)
    builder = IndexedDatasetBuilder(f"{out}/{name}_text_document.bin", dtype=kind)
    for line in open(corpus, encoding="utf-8"):
        text = json.loads(line)["text"]
        tokens, lengths = [], []
        for sentence in text if isinstance(text, list) else [text]:
            ids = library.text_to_ids(sentence)
            if len(ids) > 0:
                tokens.extend(ids)
                lengths.append(len(ids))
        if tokens:
            tokens.append(library.eod)
            lengths[-1] += 1
        builder.add_document(tokens, lengths)
    builder.finalize(f"{out}/{name}_text_document.idx")
"""


def python(code: str, *words: object) -> str:
    """Run code where the programs' packages are, and return what it prints."""
    done = subprocess.run(  # noqa: S603 -- this file's own code
        [PYTHON, "-W", "ignore", "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Prepared:
    """What one call of the program did."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.code = done.returncode
        self.err = done.stderr
        last = (done.stdout.splitlines() or [""])[-1]
        self.summary: dict[str, Any] = json.loads(last) if last.startswith("{") else {}

    @property
    def findings(self) -> list[str]:
        """Return the findings of the summary."""
        assert "Traceback" not in self.err
        return list(self.summary["findings"])


def command(*words: object) -> list[str]:
    """Return the command line of the program."""
    return [str(PYTHON), "-m", PROGRAM, *map(str, words)]


def run(
    *words: object, environment: Mapping[str, str] | None = None, code: str | None = None
) -> Prepared:
    """Run the program to its end; or code that gets its folder and the words."""
    changed = [str(PYTHON), "-c", str(code), *map(str, words)]
    return Prepared(
        subprocess.run(  # noqa: S603 -- the program under test
            changed if code else command(*words),
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", **(environment or {})},
        )
    )


def document(prefix: Path, key: str = "text") -> str:
    """Return what Megatron calls a data set."""
    return f"{prefix}_{key}_document"


def data(prefix: Path, key: str = "text") -> tuple[bytes, bytes]:
    """Return the bytes of both files of a data set."""
    path = document(prefix, key)
    return Path(f"{path}.bin").read_bytes(), Path(f"{path}.idx").read_bytes()


def write_lines(path: Path, texts: Sequence[object]) -> Path:
    """Write JSON lines, one text each."""
    path.write_bytes(b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts))
    return path


def adversarial() -> bytes:
    """Return lines that Megatron accepts and a hasty reader gets wrong."""
    texts: list[object] = [
        *(
            "hello",
            "",
            f"{BOS} in {EOD} text",
            f"{EOD}{EOD}",
            "\0\x01\x1f\x7f",
            "\u2028\u2029\x85 x",
        ),
        *(
            "a" * 1_000_000,
            " " * 100_000,
            "\n\r\n\t" * 999,
            "caf\u00e9 cafe\u0301 \u4f60\u597d \u0645",
        ),
        *(
            "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600",
            "\ufeffinside",
            "don't DON'T 12345",
        ),
        *(["one", "", "two three"], [], ["", ""]),
    ]
    lines = [json.dumps({"text": text}).encode() + b"\n" for text in texts]
    return b"".join(
        [
            *lines,
            json.dumps({"text": "raw \u00fc \u2028"}, ensure_ascii=False).encode() + b"\r\n",
            b'{"text":"first","text":"last of two"}\r\n',
            b'  {"a": {"text": "nested"}, "text": "outer"} \t\n',
            b'{"text":"old line end"}\r{"text":"\\ud83d\\ude00 a pair"}\n',
            b'{"text":"wide", "a": NaN, "b": -Infinity, "c": 1e999, "d": ' + b"9" * 400 + b"}\n",
            b'{"text":"deep", "x": ' + b"[" * 300 + b"]" * 300 + b"}\n",
            b'{"text":"no line end"}',
        ]
    )
