"""The figures of `meks plan --search`: memory against step time, as text and as a PNG."""

import math
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from megatron_eks.plan.jobs.search import Candidate
from megatron_eks.predict.memory import GIB

_COLUMNS, _ROWS = 66, 12


def drawn(found: Sequence[Candidate], own: Candidate | None) -> Iterator[str]:
    """Yield a figure of text: `.` a layout, `:` several, `1` the fastest, `y` the job's own."""
    shown = [*found, *([own] if own else [])]
    seconds = [each.speed.step_seconds for each in shown]
    memory = [each.memory.per_gpu_bytes / GIB for each in shown]
    low, span = min(seconds), math.log(max(seconds) / min(seconds)) or 1.0
    top = max(memory)
    grid = [[" "] * _COLUMNS for _ in range(_ROWS)]
    for index, (time, size) in enumerate(zip(seconds, memory, strict=True)):
        column = round(math.log(time / low) / span * (_COLUMNS - 1))
        row = min(_ROWS - 1, int((1 - size / top) * _ROWS))
        free = grid[row][column] == " "
        mark = "." if free else ":"
        if index == 0 or (own and index == len(found)):
            mark = "y" if index == len(found) else "1"
        elif grid[row][column] in "1y":
            continue
        grid[row][column] = mark
    for row, cells in enumerate(grid):
        label = f"{top * (1 - row / _ROWS):.0f}" if row % 4 == 0 else ""
        yield f"{label:>6} |{''.join(cells).rstrip()}"
    yield f"   GiB +{'-' * _COLUMNS}"
    right = f"{max(seconds):.3g} s a step"
    yield f"        {f'{low:.3g} s':<{_COLUMNS - len(right)}}{right}"


def can_draw() -> bool:
    """Tell whether a PNG can be made here."""
    return find_spec("matplotlib") is not None


def png(found: Sequence[Candidate], own: Candidate | None, file: Path) -> None:
    """Write the figure as a PNG, with what a GPU has for tensors."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 -- who asks has it
    from matplotlib.figure import Figure  # noqa: PLC0415 -- likewise
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415 -- likewise

    figure = Figure(figsize=(6.4, 4.2), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(*_places(found), s=10, linewidths=0, label="layouts that fit")
    axes.scatter(*_places(found[:1]), s=120, marker="*", linewidths=0, label="the fastest")
    if own is not None:
        axes.scatter(*_places([own]), s=50, marker="D", linewidths=0, label="the job's own")
    capacity = found[0].memory.capacity_bytes / GIB
    axes.axhline(capacity, color="0.4", linewidth=0.8, linestyle="--", label="a GPU has")
    axes.set(xscale="log", xlabel="seconds a step", ylabel="GiB a GPU", ylim=(0, None))
    axes.xaxis.set_major_formatter(FuncFormatter(_shown))
    axes.xaxis.set_minor_formatter(FuncFormatter(_shown))
    axes.tick_params(axis="x", which="minor", labelsize=7)
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8)
    FigureCanvasAgg(figure)
    # No version in it: the same figure is the same file.
    figure.savefig(file, format="png", metadata={"Software": None})


def _shown(value: float, _: int | None) -> str:
    return f"{value:g}"


def _places(found: Sequence[Candidate]) -> tuple[list[float], list[float]]:
    return (
        [each.speed.step_seconds for each in found],
        [each.memory.per_gpu_bytes / GIB for each in found],
    )
