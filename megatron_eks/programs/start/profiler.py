"""Traces of some steps, for whoever asks while the training runs (see profile_request.py).

Requests are looked for by a thread, so a file system that hangs costs the trace and no step. A
trace is PyTorch's own, of CPU and GPU: START/profile/rank-00000.steps-10-12.json.gz. Or it is that
of Nsight Systems, .nsys-rep and .sqlite, which has to start the process whose GPU it traces.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from megatron_eks.programs import program, record_files
from megatron_eks.programs.profile_request import FILE, FOLDER, Wish, steps

_LOOK_SECONDS = 5.0
_NO_WISH = (OSError, ValueError, TypeError, KeyError)
_NSYS = "MEGATRON_EKS_NSYS"
"""FIRST:LAST, in a process that nsys has started for these steps."""
# Nsight Systems User Guide, "CLI Profile Command Switch Options"; Megatron-LM names the same
# (megatron/training/config/common_config.py). It collects from cudaProfilerStart to -Stop alone,
# writes its report at once, leaves the process alone, and ends with its exit code.
_OPTIONS = (
    *("--trace=cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none"),
    *("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--wait=primary"),
    *("--export=sqlite", "--force-overwrite=true"),
)


class _Place(NamedTuple):
    """Where a rank looks for requests, and where its traces go."""

    directory: Path
    start: Path
    rank: int
    ranks: int

    def wish(self) -> Wish | None:
        """Return what is asked of this rank, and it has not given since. Raises as Wish.read."""
        file = self.directory / FILE
        wish, since = Wish.read(file), file.stat().st_mtime
        mine = self.directory.glob(f"*/{FOLDER}/rank-{self.rank:05}.*")
        asked = self.rank in (wish.ranks or (0, self.ranks - 1))
        return wish if asked and all(each.stat().st_mtime < since for each in mine) else None

    def trace(self, first: int, last: int) -> Path:
        """Return the name of a trace, without its ending."""
        return self.start / FOLDER / f"rank-{self.rank:05}.steps-{first}-{last}"


class Profiler:
    """One rank's traces."""

    def __init__(self, directory: Path, start: Path, rank: int, ranks: int, nsys: str = "") -> None:
        self._place = _Place(directory, start, rank, ranks)
        self._wish = Wish(*steps(nsys), nsys=True) if nsys else None
        self._given: Wish | None = None
        self._trace: Any = None
        self._first = self._last = self._step = 0
        if not nsys:
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
            _warn(f"{type(problem).__name__}: {problem}", "training goes on without it")

    def _between(self, step: int) -> None:
        if self._trace is not None:
            if step < self._last:
                self._trace.step()
            else:
                self._end()
        elif (wish := self._wish) and wish != self._given:
            # One step warms the profiler up, and is thrown away. nsys has named its file already.
            latest = (wish.first if wish.nsys else wish.last) - 2
            if wish.first - 2 <= step <= latest:
                self._begin(step + 2, wish.last)
            elif step > latest:
                self._given = wish
                found = f"steps {wish.first} to {wish.last} are over"
                _warn(found, "ask for later ones: meks profile")

    def _begin(self, first: int, last: int) -> None:
        self._first, self._last = first, last
        if self._wish and self._wish.nsys:
            self._trace = _Capture()
            return
        import torch  # noqa: PLC0415 -- programs that start without it stay quick
        from torch.profiler import profile, schedule  # noqa: PLC0415 -- as above

        kinds = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        plan = schedule(wait=0, warmup=1, active=last - first + 1, repeat=1)
        self._trace = profile(activities=kinds, schedule=plan)
        self._trace.start()

    def _end(self) -> None:
        trace, self._trace, self._given = self._trace, None, self._wish
        trace.stop()
        file = self._place.trace(self._first, self._last)
        if isinstance(trace, _Capture):
            program.say(f"nsys writes the profile of steps {self._first} to {self._last}: {file}.*")
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        # Its ending says that it is to be packed.
        partial, whole = (file.with_name(f"{dot}{file.name}.json.gz") for dot in (".", ""))
        trace.export_chrome_trace(str(partial))
        partial.replace(whole)
        program.say(f"profile of steps {self._first} to {self._last} is in {whole}")

    def _watch(self) -> None:
        while True:
            with suppress(*_NO_WISH):
                wish = self._place.wish()
                self._wish = wish if wish and not wish.nsys else None
            time.sleep(_LOOK_SECONDS)


class _Capture:
    """What nsys collects: from after the step that warms up, as PyTorch's profiler does."""

    _running = False

    def step(self) -> None:
        if not self._running:
            self._running = True
            self._tell("start")

    def stop(self) -> None:
        self._tell("stop")

    def _tell(self, what: str) -> None:
        import torch  # noqa: PLC0415 -- as above

        # What a step has launched is part of it.
        torch.cuda.synchronize()
        getattr(torch.cuda.profiler, what)()


def _warn(found: str, remedy: str) -> None:
    program.say(str(program.warning("profile", found, remedy)))


def begin_under_nsys(environment: Mapping[str, str]) -> None:
    """Begin this process again below nsys, where a request says so; else, go on.

    Call it before anything is started or opened. A request is for one start: whatever becomes of
    nsys, the next one is without it.
    """
    place = _place(environment)
    try:
        wish = place.wish() if place and _NSYS not in environment else None
    except _NO_WISH:
        return
    if not (place and wish and wish.nsys):
        return
    nsys, report = shutil.which("nsys"), place.trace(wish.first, wish.last)
    words = ("nsys", "profile", *_OPTIONS, f"--output={report}", sys.executable, *sys.orig_argv[1:])
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.with_name(f"{report.name}.nsys-rep").touch()
        # It ends at once by SIGTERM, and the rank later: torchrun's next ranks would meet this one.
        found = "torchrun starts ranks again, which nsys keeps alive"
        if nsys and environment.get("TORCHELASTIC_MAX_RESTARTS", "0") == "0":
            more = {_NSYS: f"{wish.first}:{wish.last}"}
            os.execve(nsys, words, {**environment, **more})  # noqa: S606 -- no shell is needed
        found = found if nsys else "nsys is not in this image"
    except OSError as problem:
        found = f"nsys is not started: {problem}"
    _warn(found, "training goes on without it; meks profile without --nsys needs none")


def of_rank(environment: Mapping[str, str]) -> Profiler | None:
    """Return what traces this rank; None where nobody keeps a record of it."""
    place = _place(environment)
    return Profiler(*place, nsys=environment.get(_NSYS, "")) if place else None


def _place(environment: Mapping[str, str]) -> _Place | None:
    directory, start = environment.get(record_files.VARIABLE), record_files.start_of_pod()
    if not directory or not start:
        return None
    rank, ranks = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    return _Place(Path(directory), Path(directory, start), rank, ranks)


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
