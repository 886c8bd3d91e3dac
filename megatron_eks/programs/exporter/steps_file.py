"""The steps that our own trainers write to metrics.jsonl, as they come."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from megatron_eks.programs.run_log import Step

FIGURES = ("seconds", "tokens_per_second", "mfu", "grad_norm")
"""Of a step, beside its loss."""

_MOST_BYTES = 2**20


class StepsFile:
    """What comes to the file from the first look on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place: int | None = None

    def new(self) -> Iterator[tuple[Step, float | None]]:
        """Yield each new step, and how long it waited for its batch. Raises OSError."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if self._place is None or size < self._place:
            # A trainer cuts off the steps that it does again.
            self._place = size
        if size == self._place:
            return
        with self._path.open("rb") as file:
            begin = max(self._place, size - _MOST_BYTES)
            file.seek(begin)
            text = file.read(size - begin)
        whole = text[: text.rfind(b"\n") + 1]
        self._place = begin + len(whole)
        for line in whole.splitlines():
            with suppress(ValueError, KeyError, TypeError):
                values = json.loads(line)
                yield step_of(values), values.get("data_seconds")


def step_of(told: Mapping[str, float]) -> Step:
    """Return a step from what is told of it, in our trainers' names. Raises KeyError."""
    return Step(
        *(int(told["step"]), 0, told["loss"]),
        seconds=told.get("seconds"),
        tokens_per_second=told.get("tokens_per_second"),
        mfu=told.get("mfu"),
        grad_norm=told.get("grad_norm"),
    )
