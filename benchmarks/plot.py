"""Draws the figures of docs/predictions.md."""

from io import BytesIO
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

Point = tuple[float, float]

_THOUSAND = 1000


def scatter(
    words: tuple[str, str], limits: Point, groups: "Mapping[str, Sequence[Point]]", off: float
) -> bytes:
    """Return a PNG of predicted against measured, and a band of so much around the diagonal."""
    figure = Figure(figsize=(6.4, 5.6), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, xlabel=words[0], ylabel=words[1])
    axes.set_aspect("equal")
    axes.fill_between(
        limits,
        [limit / (1 + off) for limit in limits],
        [limit * (1 + off) for limit in limits],
        color="0.9",
        label=f"{off:.0%} off",
    )
    axes.plot(limits, limits, color="0.5", linewidth=0.8)
    for name, points in groups.items():
        across, up = zip(*points, strict=True)
        axes.scatter(across, up, s=14, alpha=0.8, linewidths=0, label=name)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(_shown))
        axis.set_minor_formatter(NullFormatter())
    return _png(figure, axes)


def _shown(value: float, _: int | None) -> str:
    return f"{value:g}" if value < _THOUSAND else f"{value / _THOUSAND:g}k"


def _png(figure: Figure, axes: "Axes") -> bytes:
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, framealpha=0.9)
    FigureCanvasAgg(figure)
    out = BytesIO()
    # No version in it: the same figure is the same file.
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
