"""Writes the tables and figures of docs/predictions.md; run by `make generate` and `make bench`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import errors, measured
from benchmarks.plot import scatter
from benchmarks.predictions import predicted_bytes, predicted_tokens
from megatron_eks.predict.memory import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.measured import Measured

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "predictions.md"
_FIGURES = DOCS / "predictions"
# Small test runs hold a billion bytes or three, and are no model that anybody trains.
_SMALL = 10e9


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    for name, lines in (("errors", _errors()), ("families", _families())):
        region = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
        table = "\n".join(lines)
        text = re.sub(region, rf"\g<1>{table}\n\g<2>", text, flags=re.DOTALL)
    return text


def _errors() -> "Iterator[str]":
    yield "| what | median, 90th percentile, rows | bar | |"
    yield "|---|---|---|---|"
    for name, found, bar, holds in errors.rows():
        indent = "&nbsp;&nbsp;" if name.startswith(" ") else ""
        yield f"| {indent}{name.strip()} | {found} | {bar} | {holds} |"


def _families() -> "Iterator[str]":
    yield "| family | part | rows | error | constant | best constant | in range | tau | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for cells in errors.families():
        yield f"| {' | '.join(cells)} |"


def figures() -> dict[str, bytes]:
    """Return each figure by its file name."""
    groups = {
        "Megatron, GPT and Mixtral": [row for row in _peaks("megatron") if row.value > _SMALL],
        "FSDP, torchtitan": _peaks("fsdp"),
    }
    memory = {
        name: _points(rows, lambda row: predicted_bytes(row) / GIB, 1 / GIB)
        for name, rows in groups.items()
    }
    speeds = measured.throughput()
    families = {
        "FSDP on A100": ("mpt a100",),
        "FSDP on Hopper and Blackwell": ("mpt h100", "fsdp"),
        "Megatron on A100": ("gpt a100",),
        "Megatron on H100": ("gpt h100", "nemo", "llama-2", "llama-3 h100", "nemotron-4 h100"),
        "Megatron on Blackwell": ("llama-3 b", "llama-3 gb", "nemotron-4 gb"),
        "mixtures of experts": ("qwen3", "deepseek", "gpt-oss", "grok", "llama-4"),
    }
    speed = {
        name: _points([row for row in speeds if row.family.startswith(starts)], predicted_tokens)
        for name, starts in families.items()
    }
    return {
        "memory.png": scatter(("measured GiB", "predicted GiB"), (20, 300), memory, 0.05),
        "speed.png": scatter(
            ("measured tokens/s/GPU", "predicted tokens/s/GPU"), (10, 300_000), speed, 0.2
        ),
    }


def _peaks(framework: str) -> "list[Measured]":
    return [row for row in measured.memory() if row.framework == framework]


def _points(
    rows: "Sequence[Measured]", predictor: "Callable[[Measured], float]", unit: float = 1.0
) -> list[tuple[float, float]]:
    return [(row.value * unit, predictor(row)) for row in rows]


def main() -> None:
    """Write page and figures."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    _FIGURES.mkdir(exist_ok=True)
    for name, data in figures().items():
        (_FIGURES / name).write_bytes(data)


if __name__ == "__main__":
    main()
