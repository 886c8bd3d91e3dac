"""The loss curve as a picture."""

import itertools
from collections.abc import Mapping, Sequence

from megatron_eks.pixels import BLACK, COLOURS, LIGHT, SIZE, Canvas

_LEFT, _TOP, _INSIDE = 70, 40, SIZE - 110
_TICKS = 5


def draw(parts: Sequence[Mapping[int, float]], names: Sequence[str]) -> bytes:
    """Return a PNG with a line for each start, the first one wide, so that both are seen."""
    canvas = Canvas()
    losses = [loss for part in parts for loss in part.values()]
    low, high = min(losses), max(losses)
    last = max(max(part) for part in parts)

    def place(iteration: float, loss: float) -> tuple[int, int]:
        across = (iteration - 1) / max(last - 1, 1)
        down = (high - loss) / ((high - low) or 1)
        return round(_LEFT + across * _INSIDE), round(_TOP + down * _INSIDE)

    for tick in range(_TICKS + 1):
        loss, iteration = low + (high - low) * tick / _TICKS, 1 + (last - 1) * tick / _TICKS
        canvas.line(place(1, loss), place(last, loss), LIGHT)
        canvas.text(_LEFT - 50, place(1, loss)[1] - 5, f"{loss:.2f}")
        canvas.text(place(iteration, low)[0] - 8, _TOP + _INSIDE + 12, f"{iteration:.0f}")
    for number, (part, name) in enumerate(zip(parts, names, strict=True)):
        points = [place(*each) for each in sorted(part.items())]
        for start, end in itertools.pairwise(points):
            canvas.line(start, end, COLOURS[number])
        for point in points:
            canvas.dot(*point, COLOURS[number], radius=1 if number else 4)
        canvas.dot(SIZE - 250, 60 + number * 18, COLOURS[number], radius=4)
        canvas.text(SIZE - 236, 55 + number * 18, name)
    canvas.text(_LEFT, 12, "loss", BLACK)
    canvas.text(SIZE - 120, SIZE - 30, "iteration", BLACK)
    return canvas.png()
