"""How fast data is prepared, against Megatron's own tool where MEGATRON_LM names a checkout."""

import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.timing import ROOT, Row, interleaved, verdict

PYTHON = ROOT / ".venv-programs" / "bin" / "python"
RUNS = 3
WORKERS = 2

MEGATRON_RATIOS = {150: 20.0, 600: 29.0}
"""Megabytes of JSON lines, and how many times faster than Megatron's tool."""
LOOP_MEGABYTES = 50
LOOP_RATIO = 10.0

# What a script of a few lines does.
LOOP = """
import json, sys
from pathlib import Path
import numpy
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[2] + "/tokenizer.json")
with open(sys.argv[3], "wb") as out:
    for line in open(sys.argv[1], encoding="utf-8"):
        tokens = tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids
        out.write(numpy.array([*tokens, 1], numpy.uint16).tobytes())
"""


def rows() -> list[Row]:
    """Measure, and return what, how much, the bar, and whether it holds."""
    megatron = os.environ.get("MEGATRON_LM")
    sizes = [*MEGATRON_RATIOS] if megatron else [LOOP_MEGABYTES]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(  # noqa: S603 -- this project's own script
            [PYTHON, ROOT / "benchmarks" / "prepare_corpus.py", folder, *map(str, sizes)],
            check=True,
        )
        return [_row(Path(folder), size, megatron) for size in sizes]


def _row(folder: Path, size: int, megatron: str | None) -> Row:
    corpus = str(folder / f"{size}.jsonl")
    ours = [
        *(str(PYTHON), "-m", "megatron_eks.programs.prepare_data", "--input", corpus),
        *("--output-prefix", f"{folder}/ours", "--tokenizer", str(folder), "--append-eod"),
        *("--workers", str(WORKERS)),
    ]
    loop = [str(PYTHON), "-c", LOOP, corpus, str(folder), f"{folder}/theirs_text_document.bin"]
    theirs = _tool(megatron, corpus, folder) if megatron else loop
    medians = interleaved({"ours": ours, "theirs": theirs}, RUNS, {})
    written = [folder / f"{name}_text_document.bin" for name in ("ours", "theirs")]
    same = written[0].read_bytes() == written[1].read_bytes()
    ratio = medians["theirs"] / medians["ours"]
    bar = MEGATRON_RATIOS[size] if megatron else LOOP_RATIO
    name = "Megatron's tool" if megatron else "a loop over `tokenizers`"
    found = f"{medians['ours']:.2f} s ({name} {medians['theirs']:.1f} s)"
    text = f"{ratio:.1f} times as fast, at least {bar:.0f}; {'the same' if same else 'OTHER'} bytes"
    return (f"prepare {size} MB", found, text, verdict(holds=same and ratio >= bar))


def _tool(megatron: str, corpus: str, folder: Path) -> list[str]:
    return [
        *(str(PYTHON), f"{megatron}/tools/preprocess_data.py", "--input", corpus),
        *("--output-prefix", f"{folder}/theirs", "--tokenizer-type", "HuggingFaceTokenizer"),
        *("--tokenizer-model", str(folder), "--append-eod", "--workers", str(WORKERS)),
    ]
