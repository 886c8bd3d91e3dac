"""The steps that a program writes to TensorBoard's event files, as they come.

They are read by TensorBoard's own loader, which an image that writes them has: torch's
SummaryWriter asks for it. Scalars are told whose names stand in _TAGS.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from megatron_eks.programs import program
from megatron_eks.programs.run_log import Step

VARIABLE = "TENSORBOARD_LOGGING_DIR"
"""Names the folder; transformers reads it (integration_utils.py of 5.23)."""
FLUSH_SECONDS = 120.0
"""How long the usual writer keeps events to itself (torch's SummaryWriter, flush_secs)."""

# What transformers, torchtitan (components/metrics.py), NeMo and Megatron-LM (training_log) write,
# and Lightning's examples; what each value is, and in how many of these it is told.
_TAGS = {
    tag: (name, scale)
    for name, scale, tags in (
        ("loss", 1.0, "loss|train/loss|train_loss|train_loss_step|loss/train|lm loss"),
        ("loss", 1.0, "reduced_train_loss|loss_metrics/global_avg_loss"),
        ("grad_norm", 1.0, "grad_norm|train/grad_norm|grad-norm"),
        ("tokens_per_second", 1.0, "tokens_per_second|train/tokens_per_second"),
        ("gpu_tokens", 1.0, "throughput(tps)"),
        ("mfu", 0.01, "mfu(%)"),
        ("seconds", 1.0, "time_metrics/end_to_end(s)|iteration-time|train_step_timing in s"),
        ("data_seconds", 1.0, "time_metrics/data_loading(s)"),
    )
    for tag in tags.split("|")
}
# Some programs write a file for each rank, or one for evaluations; none deeper than this.
_FILES, _DEPTH, _ROUNDS = 4, 4, 6


@dataclass
class _File:
    """What was read of one, and its newest step."""

    path: Path
    step: int = -1
    at: float = 0.0
    values: dict[str, float] = field(default_factory=dict)

    @cached_property
    def loader(self) -> Any:  # noqa: ANN401 -- TensorBoard ships no types
        """TensorBoard's own."""
        from tensorboard.backend.event_processing import event_file_loader  # noqa: PLC0415 -- takes seconds

        return event_file_loader.LegacyEventFileLoader(str(self.path))


def of(folder: str | None, since: float, gpus: int) -> "EventFiles | None":
    """Return the files of a folder; None without one, or where the image has no TensorBoard."""
    if not folder:
        return None
    if find_spec("tensorboard") is None:
        found = "not read, as this Python has no package tensorboard"
        remedy = "pip install tensorboard in the image; until then the log alone tells of steps"
        program.say(str(program.warning(f"event files below {folder}", found, remedy)))
        return None
    return EventFiles(Path(folder), since, gpus)


class EventFiles:
    """Files below a folder that were begun since a time; the newest that tells a loss counts."""

    def __init__(self, folder: Path, since: float, gpus: int) -> None:
        self._folder, self._since, self._gpus = folder, str(int(since)), gpus
        self._files: dict[Path, _File] = {}
        self._rounds = 0

    def new(self) -> Iterator[tuple[Step, float | None, float]]:
        """Yield new steps: what is told of each, its wait for data, its time. Raises OSError."""
        if self._rounds % _ROUNDS == 0:
            self._files = {path: self._files.get(path) or _File(path) for path in self._newest()}
        self._rounds += 1
        for path, file in tuple(self._files.items()):
            try:
                yield from self._steps(file)
            except Exception:  # noqa: BLE001 -- TensorBoard's errors, of a file that is gone for one
                del self._files[path]
            if "loss" in file.values:
                return

    def _steps(self, file: _File) -> Iterator[tuple[Step, float | None, float]]:
        for _ in _read(file):
            told = dict[str, Any](file.values)
            waited, rate = told.pop("data_seconds", None), told.pop("gpu_tokens", None)
            told |= {} if rate is None else {"tokens_per_second": rate * self._gpus}
            if "loss" in told:
                yield Step(file.step, 0, **told), waited, file.at

    def _newest(self) -> list[Path]:
        """Return the files, the newest first: their names say in which second they began."""
        patterns = (f"{'*/' * depth}events.out.tfevents.*" for depth in range(_DEPTH))
        every = chain.from_iterable(map(self._folder.glob, patterns))
        found = [(each.name, each) for each in every if each.name.split(".")[3] >= self._since]
        return [path for _, path in sorted(found, reverse=True)[:_FILES]]


def _read(file: _File) -> Iterator[None]:
    """Read on, and stop at each step when all of it is known."""
    is_new = False
    for event in file.loader.Load():
        values = _values(event)
        if values and event.step != file.step:
            if is_new:
                yield
            if event.step > file.step >= 0 and (took := event.wall_time - file.at) > 0:
                values = {"seconds": took / (event.step - file.step), **values}
            file.step, file.at, file.values = event.step, event.wall_time, {}
        file.values |= values
        is_new = is_new or bool(values)
    if is_new:
        yield


def _values(event: Any) -> dict[str, float]:  # noqa: ANN401 -- TensorBoard ships no types
    """Return the scalars of an event that are known."""
    from tensorboard.util.tensor_util import make_ndarray  # noqa: PLC0415 -- as above

    found = {}
    for each in event.summary.value:
        name, scale = _TAGS.get(each.tag.lower(), ("", 0.0))
        if name and each.HasField("tensor"):
            # TensorFlow 2 and torch's new style: a tensor of one number.
            found[name] = float(make_ndarray(each.tensor).item()) * scale
        elif name:
            found[name] = each.simple_value * scale
    return found
