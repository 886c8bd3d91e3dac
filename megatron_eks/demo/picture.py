"""The loss curve as a picture."""

import io
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure


def draw(parts: Sequence[Mapping[int, float]], names: Sequence[str]) -> bytes:
    """Return a PNG with a line for each start, the first one wide, so that both are seen."""
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot(xlabel="iteration", ylabel="loss")
    for number, (part, name) in enumerate(zip(parts, names, strict=True)):
        points = sorted(part.items())
        size = 2 if number else 6
        axes.plot(*zip(*points, strict=True), marker="o", markersize=size, linewidth=1, label=name)
    axes.grid(color="0.9")
    axes.legend()
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()
