"""Writes the tables and figures of docs/predictions.md; run by `make generate` and `make bench`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import errors, measured
from benchmarks.plot import Axes, scatter
from benchmarks.predictions import predicted_bytes, predicted_tokens
from megatron_eks.predict.memory import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.measured import Measured

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "predictions.md"
_FIGURES = DOCS / "predictions"


def page(text: str) -> str:
    """Return the page with its table made anew."""
    region = r"(<!-- generated: errors -->\n).*?(<!-- end -->)"
    table = "\n".join(_table())
    return re.sub(region, rf"\g<1>{table}\n\g<2>", text, flags=re.DOTALL)


def _table() -> "Iterator[str]":
    yield "| what | median, 90th percentile, rows | bar | |"
    yield "|---|---|---|---|"
    for name, found, bar, holds in errors.rows():
        indent = "&nbsp;&nbsp;" if name.startswith(" ") else ""
        yield f"| {indent}{name.strip()} | {found} | {bar} | {holds} |"


def figures() -> dict[str, bytes]:
    """Return each figure by its file name."""
    peaks = [row for row in measured.memory() if row.framework == "megatron"]
    shards = [row for row in measured.memory() if row.framework == "fsdp"]
    groups = {"megatron gpt and mixtral": peaks, "fsdp torchtitan": shards}
    memory = {
        name: _points(rows, lambda row: predicted_bytes(row) / GIB, 1 / GIB)
        for name, rows in groups.items()
    }
    speeds = measured.throughput()
    families = {
        "fsdp a100": ("mpt a100",),
        "fsdp h100": ("mpt h100",),
        "torchtitan h100 h200": ("torchtitan",),
        "megatron gpt a100": ("gpt a100",),
        "megatron h100": ("gpt h100", "nemo", "llama h100"),
        "megatron blackwell": ("llama b", "llama gb"),
        "mixtures of experts": ("qwen",),
    }
    speed = {
        name: _points([row for row in speeds if row.family.startswith(starts)], predicted_tokens)
        for name, starts in families.items()
    }
    return {
        "memory.png": scatter(Axes(20, 100, "measured gib", "predicted gib"), memory, 0.05),
        "speed.png": scatter(
            Axes(10, 300_000, "measured tokens/s/gpu", "predicted tokens/s/gpu"), speed, 0.2
        ),
    }


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
