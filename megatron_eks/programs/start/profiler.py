"""Traces of some steps, for whoever asks while the training runs (see profile_request.py).

Requests are looked for by a thread, so a file system that hangs costs the trace and no step. A
trace is PyTorch's own, of CPU and GPU: START/profile/rank-00000.steps-10-12.json.gz.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from megatron_eks.programs import program, record_files
from megatron_eks.programs.profile_request import FILE, FOLDER, Wish

_LOOK_SECONDS = 5.0


class Profiler:
    """One rank's traces."""

    def __init__(self, directory: Path, start: Path, rank: int, ranks: int) -> None:
        self._directory, self._start, self._rank, self._ranks = directory, start, rank, ranks
        self._wish: Wish | None = None
        self._given: Wish | None = None
        self._trace: Any = None
        self._first = self._last = self._step = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def after_step(self, step: int) -> None:
        """Begin, go on or end between a step and the next; nothing is raised."""
        if step == self._step:
            return
        self._step = step
        try:
            self._between(step)
        except Exception as problem:  # noqa: BLE001 -- a training is worth more than its profile
            self._trace, self._given = None, self._wish
            found, remedy = f"{type(problem).__name__}: {problem}", "training goes on without it"
            program.say(str(program.warning("profile", found, remedy)))

    def _between(self, step: int) -> None:
        if self._trace is not None:
            if step < self._last:
                self._trace.step()
            else:
                self._end()
        elif (wish := self._wish) and wish != self._given:
            # One step warms the profiler up, and is thrown away.
            if wish.first - 2 <= step <= wish.last - 2:
                self._begin(step + 2, wish.last)
            elif step > wish.last - 2:
                self._given = wish
                found = f"steps {wish.first} to {wish.last} are over"
                remedy = "ask for later ones: meks profile"
                program.say(str(program.warning("profile", found, remedy)))

    def _begin(self, first: int, last: int) -> None:
        import torch  # noqa: PLC0415 -- programs that start without it stay quick
        from torch.profiler import profile, schedule  # noqa: PLC0415 -- as above

        self._first, self._last = first, last
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        plan = schedule(wait=0, warmup=1, active=last - first + 1, repeat=1)
        self._trace = profile(activities=kinds, schedule=plan)
        self._trace.start()

    def _end(self) -> None:
        trace, self._trace, self._given = self._trace, None, self._wish
        trace.stop()
        name = f"rank-{self._rank:05}.steps-{self._first}-{self._last}.json.gz"
        folder = self._start / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        # Its ending says that it is to be packed.
        trace.export_chrome_trace(str(folder / f".{name}"))
        (folder / f".{name}").replace(folder / name)
        program.say(f"profile of steps {self._first} to {self._last} is in {folder / name}")

    def _watch(self) -> None:
        while True:
            with suppress(OSError, ValueError, TypeError, KeyError):
                self._wish = self._asked()
            time.sleep(_LOOK_SECONDS)

    def _asked(self) -> Wish | None:
        file = self._directory / FILE
        wish, since = Wish.read(file), file.stat().st_mtime
        mine = self._directory.glob(f"*/{FOLDER}/rank-{self._rank:05}.*")
        asked = self._rank in (wish.ranks or (0, self._ranks - 1))
        return wish if asked and all(each.stat().st_mtime < since for each in mine) else None


def of_rank(environment: Mapping[str, str]) -> Profiler | None:
    """Return what traces this rank; None where nobody keeps a record of it."""
    directory, start = environment.get(record_files.VARIABLE), record_files.start_of_pod()
    if not directory or not start:
        return None
    rank, ranks = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    return Profiler(Path(directory), Path(directory, start), rank, ranks)


def beside_megatron(environment: Mapping[str, str]) -> None:
    """Trace Megatron's own loop, by PyTorch's hook on the step of every optimizer.

    Megatron's `--profile` wants a restart, and counts its steps from where a run went on.
    """
    if (profiler := of_rank(environment)) is None:
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: PLC0415 -- as above

    register_optimizer_step_post_hook(lambda *_: profiler.after_step(_iteration()))


def _iteration() -> int:
    """Return the iteration that Megatron is at, counted from 1; 0 before the first."""
    module = sys.modules.get("megatron.training.global_vars")
    args: Callable[[], Any] | None = getattr(module, "get_args", None)
    return int(getattr(args(), "curr_iteration", -1)) + 1 if args else 0
