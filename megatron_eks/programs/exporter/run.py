"""Tells a Prometheus how the run in this pod goes.

It lives in `record`, which sees all that the ranks print, so it costs a rank nothing. It reads the
lines as `meks status` does; the wait for data from the metrics.jsonl of our own trainers, and event
files of TensorBoard say what the lines do not. What outlives a container is in
START/metrics-NODE.json beside the record: by it a start knows the last.
"""

import json
import os
import shutil
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from megatron_eks.programs import program, run_log
from megatron_eks.programs.checks.efa_system import System
from megatron_eks.programs.exporter import event_files
from megatron_eks.programs.exporter.plan import VARIABLE, Plan
from megatron_eks.programs.exporter.series import EFA_COUNTERS, text_of
from megatron_eks.programs.exporter.server import serve
from megatron_eks.programs.run_log import FIGURES, Step
from megatron_eks.programs.trainer.tracking import Sender

_ROUND_SECONDS = 10.0
# What starts later than this after the last sign of life is another submission.
_RESTART_SECONDS = 600.0
# One scrape of AWS's collector, every 30 s at most ("Scraper limitations"), and the way there.
_LINGER_SECONDS = 31.0
# Until a checkpoint that is due is whole.
_SAVE_SECONDS = 600.0
# More than a line of metrics.jsonl has.
_MOST_BYTES = 4096


@dataclass
class _Memory:
    """What one start leaves to the next."""

    begun: float
    """When the first of them began."""
    step: int = 0
    """The highest that any has reached."""
    counted: float = 0.0
    """Seconds of steps, each counted once."""
    restarts: int = 0
    saved_step: int | None = None
    saved_at: float | None = None


class Exporter:
    """The series of one pod. `clock` tells the system's time, `folder` that of this start."""

    def __init__(
        self,
        plan: Plan,
        node: int,
        folder: Callable[[], Path | None],
        *,
        clock: Callable[[], float] = time.time,
        system: System | None = None,
    ) -> None:
        self._plan, self._node, self._folder, self._clock = plan, node, folder, clock
        self._file = f"metrics-{node:05}.json"
        self._system = system or System(Path("/"), {})
        # Megatron prints steps on its last rank, and all else on the first.
        self._tells = node == 0 or plan.kind.startswith("megatron")
        self._own = Path(plan.metrics_file) if plan.metrics_file and not node else None
        self._began = self._scraped_at = clock()
        events = plan.event_files if not node else None
        self._events = event_files.of(events, self._began, plan.gpus or 1)
        self._written: Step | None = None
        # Whether the newest step is known from an event file.
        self._is_written = False
        self._sender: Sender | None = None
        self._memory = _Memory(self._began)
        self._remembers = False
        self._step: Step | None = None
        self._data_seconds: float | None = None
        self._seen: deque[float] = deque(maxlen=run_log.NEWEST)
        self._took: deque[float] = deque(maxlen=run_log.NEWEST)
        self._saving: dict[int, float] = {}
        self._save_seconds: float | None = None
        # On a file system that hangs, the round waits, and no scrape.
        self._shared: tuple[int, int, int] | None = None
        self._is_finished = self._says_finished = self._answers = False
        self._asked = threading.Event()

    def start(self) -> None:
        """Answer from now on; the run goes on where that is refused."""
        try:
            if self._plan.port:
                serve(self._plan.port, self.text, self._scraped)
                self._answers = True
        except OSError as problem:
            words = str(problem.strerror), "training goes on, and its alarms know nothing"
            program.say(str(program.warning(f"metrics port {self._plan.port}", *words)))
            return
        threading.Thread(target=self._keep, daemon=True).start()

    def see(self, lines: bytes) -> None:
        """Take whole lines that the program has printed."""
        if not self._tells or not (b"step" in lines or b"iteration" in lines):
            return
        now = self._clock()
        # Numbers may have more digits than Python reads; whoever prints them tells no step.
        with suppress(ValueError):
            log = run_log.read(lines.decode(errors="replace").splitlines())
            self._saving |= dict.fromkeys(log.saving, now)
            for mark in log.saves:
                begun = self._saving.pop(mark.step, None)
                took = None if begun is None else now - begun
                self._save_seconds = took if mark.seconds is None else mark.seconds
                self._memory.saved_step, self._memory.saved_at = mark.step, now
            for step in log.steps:
                self._take(step, now)

    def finish(self, *, well: bool = True) -> None:
        """Say that the program ended well, until whoever scrapes has seen it.

        Of a failure the next start tells, which is not to wait for this one.
        """
        if self._sender is not None:
            self._sender.close(well=well)
        self._is_finished = well
        asked = well and self._node == 0 and self._answers
        if asked and self._clock() - self._scraped_at < 2 * _LINGER_SECONDS:
            self._asked.wait(_LINGER_SECONDS)

    def text(self) -> str:
        """Return all series."""
        self._says_finished = self._is_finished
        labels = f'job="{self._plan.job}",kind="{self._plan.kind}"'
        return text_of(labels, [*self._values(self._clock()), *self._efa()])

    def look(self) -> None:
        """Do a round: read the program's files, and keep what the next start is to know.

        Raises OSError where the file system refuses, and ValueError for what is no file of theirs.
        """
        folder = self._folder()
        if folder is not None:
            self._shared = shutil.disk_usage(folder)
            if not self._remembers:
                self._remember(folder)
            partial = folder / f".{self._file}"
            partial.write_text(json.dumps(asdict(self._memory)))
            partial.replace(folder / self._file)
        for step, waited, at in self._events.new() if self._events else ():
            self._written, self._data_seconds = step, waited
            # They come late, so the log's newest step stays.
            if self._step is None or self._is_written or step.step > self._step.step:
                self._take(step, at)
                self._is_written = True
        if self._own is not None and self._own.exists():
            self._data_seconds = _data_seconds(self._own)

    def _keep(self) -> None:
        while True:
            # A full or lost file system is said elsewhere, and the next round tries again: the
            # next start needs what this thread keeps.
            with suppress(Exception):
                self.look()
            time.sleep(_ROUND_SECONDS)

    def _remember(self, folder: Path) -> None:
        """Go on from what the last start has left, if it has only just ended."""
        self._remembers = True
        every = folder.parent.glob(f"*/{self._file}")
        last = max((each for each in every if each.parent < folder), default=None)
        if last is None or self._began - last.stat().st_mtime > _RESTART_SECONDS:
            return
        own, found = self._memory, _Memory(**json.loads(last.read_text()))
        found.restarts += 1
        if own.step > found.step:
            found.step, found.counted = own.step, found.counted + own.counted
        if own.saved_at is not None:
            found.saved_step, found.saved_at = own.saved_step, own.saved_at
        self._memory = found

    def _take(self, step: Step, now: float) -> None:
        memory, before = self._memory, self._step
        self._is_written = False
        if before and before.step == step.step:
            self._step = step
            return
        since = max(memory.step, before.step if before else step.step - 1)
        if step.seconds:
            self._took.append(step.seconds)
            memory.counted += max(0, step.step - since) * step.seconds
        memory.step = max(memory.step, step.step)
        self._step = step
        self._seen.append(now)
        if self._plan.mlflow:
            self._sender = self._sender or Sender(self._plan.job)
            self._sender.steps.put(self._whole(step))

    def _scraped(self) -> None:
        self._scraped_at = self._clock()
        if self._says_finished:
            self._asked.set()

    def _values(self, now: float) -> Iterator[tuple[str, str, float]]:
        """Yield name, labels of its own and value."""
        memory = self._memory
        known: dict[str, float | None] = {
            "start_timestamp_seconds": self._began,
            "restarts": memory.restarts,
        }
        if self._node == 0:
            known["restart_timestamp_seconds"] = self._began if memory.restarts else None
            known["start_limit_seconds"] = self._plan.start_seconds
            known["finished"] = self._is_finished
            if self._shared is not None:
                known["shared_bytes"], _, known["shared_free_bytes"] = self._shared
        if memory.saved_at is not None:
            known["checkpoint_step"] = memory.saved_step
            known["checkpoint_timestamp_seconds"] = memory.saved_at
            known["checkpoint_seconds"] = self._save_seconds
        if self._step is not None:
            known |= self._of_step(self._step, now)
        yield from ((name, "", value) for name, value in known.items() if value is not None)

    def _of_step(self, step: Step, now: float) -> dict[str, float | None]:
        plan, memory, step = self._plan, self._memory, self._whole(step)
        known: dict[str, float | None] = {
            "step": step.step,
            "steps": plan.steps or step.steps or None,
            "loss": step.loss,
            "grad_norm": step.grad_norm,
            "step_seconds": step.seconds,
            "tokens_per_second": step.tokens_per_second,
            "data_wait_seconds": self._data_seconds,
            "last_step_timestamp_seconds": self._seen[-1],
            "silent_limit_seconds": self._silent_limit(),
            "goodput_ratio": min(1.0, memory.counted / max(now - memory.begun, 1.0)),
        }
        if plan.save_interval and self._took:
            due = plan.save_interval * statistics.median(tuple(self._took))
            known["checkpoint_limit_seconds"] = max(2 * due, due + _SAVE_SECONDS)
        if step.mfu is not None and step.mfu >= run_log.LEAST_MFU:
            known["mfu_ratio"] = step.mfu
            for name in ("step_seconds", "step_seconds_low", "step_seconds_high"):
                known[f"plan_{name}"] = getattr(plan, name)
            known["plan_goodput_ratio"] = plan.goodput
        return known

    def _whole(self, step: Step) -> Step:
        """Return a step with what its line leaves out, from event files and from the plan."""
        plan, found = self._plan, dict[str, Any]()
        for told in filter(None, (self._written, step)):
            found |= {key: each for key in FIGURES if (each := getattr(told, key)) is not None}
        if seconds := found.get("seconds"):
            known = {"tokens_per_second": plan.tokens, "mfu": plan.peak_seconds}
            found = {key: each / seconds for key, each in known.items() if each} | found
        return Step(step.step, step.steps, step.loss, **found)

    def _silent_limit(self) -> float:
        gaps = [after - before for before, after in pairwise(tuple(self._seen))]
        usual = statistics.median(gaps) if gaps else 0.0
        planned = self._plan.log_interval * (self._plan.step_seconds or 0.0)
        late = event_files.FLUSH_SECONDS if self._is_written else 0.0
        return run_log.longest_silence(max(usual, planned)) + late

    def _efa(self) -> Iterator[tuple[str, str, float]]:
        """Yield the counters of the devices that this pod may use, of a job that needs them."""
        for device in self._system.devices() if self._plan.nodes > 1 else ():
            for counter in EFA_COUNTERS if device.usable else ():
                count = self._system.counter(device.name, counter)
                if count is not None:
                    more = f',device="{device.name}",counter="{counter}"'
                    yield "efa_hw_counter_total", more, count


def of_pod(
    environment: "os._Environ[str]", node: int, folder: Callable[[], Path | None]
) -> Exporter | None:
    """Return what tells of this pod, and answers already; None where nobody wants to know."""
    text = environment.pop(VARIABLE, None)
    if text is None:
        return None
    exporter = Exporter(Plan.read(text), node, folder)
    exporter.start()
    return exporter


def _data_seconds(metrics: Path) -> float | None:
    """Return how long the newest step of our trainers waited for its batch."""
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - _MOST_BYTES))
        whole, _, _ = file.read().rpartition(b"\n")
    waited: float | None = json.loads(whole.rpartition(b"\n")[2]).get("data_seconds")
    return waited
