"""Checkpoints of a run: written aside by all ranks, made visible whole, resumed on any ranks.

The layout is Megatron's, so that whatever looks after its checkpoints looks after these:
`iter_0000100/` with torch.distributed.checkpoint's files and metadata.json, and the tracker file.
A directory gets its name when everything in it is on disk, the tracker names it after that, and
older ones go last.
"""

import json
import re
import shutil
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from megatron_eks.programs.checkpoint import checkpoints, disk, manifests, retention, whole
from megatron_eks.programs.checkpoint.manifest_format import FileEntry, Manifest
from megatron_eks.programs.checkpoint.whole import State
from megatron_eks.programs.trainer.storage import Planner, Writer

_ASIDE = ".saving-"
_FORMAT = whole.DEFAULT_FORMAT
_RANKS_FILE = re.compile(r"__(\d+)_")
_LONGEST = 500
# Before each attempt at a run's last save: somebody may have made room.
_PAUSES_SECONDS = (0.0, 5.0, 20.0)


class LostCheckpointsError(Exception):
    """Checkpoints are there, and none of them can be loaded."""


class Checkpointer:
    """Saves and loads what a run needs to go on: weights, optimizer and the trainer's own state."""

    def __init__(
        self, root: Path, keep_last: int, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self.root = root
        self._keep_last = keep_last
        self._model, self._optimizer = model, optimizer
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        self._known = retention.Known()
        # Savers and the training itself must not share a group: both talk at the same time.
        self._group = dist.new_group(backend="gloo")
        # Pinned memory that is kept: the copy from a GPU, for which the training waits, takes a
        # fraction of the time.
        on_gpu = torch.cuda.is_available()
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=on_gpu,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=on_gpu,
            )
        )
        self._writer = ThreadPoolExecutor(1)
        self._pending: tuple[Future[None], int] | None = None
        self._at_end = False
        self._why = ""

    def resume(self, deadline: float) -> dict[str, Any] | None:
        """Load what a start resumes from, if there is a checkpoint; return the trainer's state.

        The ranks read every byte of it before, until the deadline of the monotonic clock. Raises
        LostCheckpointsError on all ranks, and ValueError for a file that would run code.
        """
        choice: list[str | None] = [None, None]
        if self._rank == 0:
            choice = self._choose(deadline)
            self._share_out(None)
        else:
            while (name := self._share_out(None)) is not None:
                self._read_share(name, deadline)
        dist.broadcast_object_list(choice, src=0, group=self._group)
        chosen, lost = choice
        if lost is not None:
            raise LostCheckpointsError(lost)
        if chosen is None:
            return None
        directory = self.root / chosen
        state = self._state()
        try:
            reader = dcp.FileSystemReader(directory)
            dcp.load(state, storage_reader=reader, planner=Planner(), process_group=self._group)
        except dcp.api.CheckpointException as problem:
            found = next(iter(problem.failures.values()))[0]
            remedy = "see whether it is of this model; resume from another one (meks ckpt ls)"
            text = f"{directory} cannot be loaded: {' '.join(str(found).split())[:_LONGEST]}"
            raise ValueError(f"{text} - {remedy}") from problem
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        metadata = json.loads((directory / "metadata.json").read_text())
        trainer: dict[str, Any] = metadata["trainer"]
        if self._rank == 0:
            sys.stderr.write(f"goes on from step {trainer['step']}, {directory}\n")
        return trainer

    def save(self, step: int, trainer: dict[str, Any], *, wait: bool) -> bool:
        """Start to save; earlier saves are waited for. With `wait` it is on disk on return.

        A save that fails is said on stderr, and False is returned where that is known already: the
        training goes on.
        """
        self.finish()
        aside = self.root / f"{_ASIDE}iter_{step:07d}"
        begun = time.monotonic()
        problem: BaseException | None = None
        try:
            staged = self._stager.stage(self._state())
        except (OSError, RuntimeError) as raised:
            problem = raised
        # All or none: writing is a matter of all ranks, and those that begin wait for the others.
        if not self._agree(step, problem):
            return False

        def write() -> None:
            writer = Writer(aside)
            dcp.save(staged, storage_writer=writer, process_group=self._group)
            written: list[Any] = [None] * self._ranks
            dist.all_gather_object(written, writer.entries, group=self._group)
            if self._rank == 0:
                sums = {entry.path: entry for entries in written for entry in entries}
                self._publish(aside, sums, trainer, begun)

        self._pending = (self._writer.submit(write), step)
        return self.finish() if wait else True

    def save_last(self, step: int, trainer: dict[str, Any]) -> None:
        """Save what the run ends with, again if that fails. Raises OSError."""
        self._at_end = True
        for pause in _PAUSES_SECONDS:
            time.sleep(pause)
            if self.save(step, trainer, wait=True):
                return
        last = checkpoints.read_tracker(self.root, _FORMAT).checkpoint
        other = f"the last whole one is {last.name}" if last else "no other is whole"
        found, _, remedy = self._why.partition("; ")
        message = f"the checkpoint of step {step} was not saved: {found}; {other}"
        raise OSError(f"{message} - {remedy or 'read the lines above'}")

    def gather(self, own: object) -> list[Any]:
        """Return what every rank has to say; earlier saves are waited for."""
        self.finish()
        found: list[Any] = [None] * self._ranks
        dist.all_gather_object(found, own, group=self._group)
        return found

    def close(self) -> None:
        """Wait for all ranks, so that none ends the job while others write."""
        dist.barrier(group=self._group)
        self._writer.shutdown()
        self._stager.close()

    def finish(self) -> bool:
        """Wait for the save in progress; tell whether it succeeded on all ranks."""
        if self._pending is None:
            return True
        (future, step), self._pending = self._pending, None
        return self._agree(step, future.exception())

    def _agree(self, step: int, problem: BaseException | None) -> bool:
        """Tell whether no rank has a problem with a save; else say which, and remove the rest."""
        aside = self.root / f"{_ASIDE}iter_{step:07d}"
        told = self.gather(problem and self._explain(problem, aside))
        found = next((each for each in told if each), None)
        if found is None:
            return True
        self._why = found
        if self._rank == 0:
            shutil.rmtree(aside, ignore_errors=True)
            # Of a run that is at its end already, the caller says what becomes of it.
            after = "" if self._at_end else " - training goes on"
            sys.stderr.write(f"warning checkpoint of step {step}: {found}{after}\n")
        return False

    def _explain(self, problem: BaseException, aside: Path) -> str:
        """Say why a save failed, and what to do; torch tells of the place in its code alone."""
        cause = disk.system_error(problem)
        if cause is None and isinstance(problem, dcp.api.CheckpointException | RuntimeError):
            # Its writer in C++ loses the system's error.
            cause = disk.probe(self.root)
        if cause is None:
            return " ".join(str(problem).split())[-_LONGEST:]
        size = checkpoints.size_bytes(aside) if aside.is_dir() else 0
        found, remedy = disk.explain(self.root, cause)
        return f"{found}, of its files {disk.gigabytes(size)} were written; {remedy}"

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer}

    def _choose(self, deadline: float) -> list[str | None]:
        """Return the name of what a start resumes from, and what is wrong if all is lost.

        What unfinished saves left is gone since the start-up guard looked for room (disk.py).
        """
        self.root.mkdir(parents=True, exist_ok=True)
        choice = checkpoints.choose(self.root, _FORMAT, partial(self._judge, deadline=deadline))
        for name, state in choice.rejected:
            sys.stderr.write(f"warning {self.root / name}: {state.why} - it is not resumed from\n")
        if choice.takes is None:
            # This trainer's saves get their names when they are whole, so there was one.
            if choice.rejected or choice.lost:
                root, found, remedy = checkpoints.lost(self.root, choice)
                return [None, f"{root}: {found} - {remedy}"]
            return [None, None]
        if choice.state.why:
            sys.stderr.write(f"warning {choice.takes}: {choice.state.why} - it is resumed from\n")
        try:
            checkpoints.point_to(self.root, choice.takes)
        except OSError as problem:
            # This trainer finds it without the tracker, too.
            found, remedy = disk.explain(self.root, problem)
            sys.stderr.write(f"warning {self.root / checkpoints.TRACKER}: {found} - {remedy}\n")
        return [choice.takes.name, None]

    def _judge(self, path: Path, _format: str, *, deadline: float) -> State:
        """Judge a checkpoint by every byte, and by what this trainer alone has written into it."""
        found = self._read_share(str(self._share_out(path.name)), deadline)
        state = min(found, key=lambda each: (each.loadable, not each.why))
        if state.loadable and not _has_trainer(path):
            return State("damaged", "it is not this trainer's")
        return state

    def _share_out(self, name: str | None) -> str | None:
        """Tell all ranks which checkpoint to read, or that there is none any more."""
        words = [name]
        dist.broadcast_object_list(words, src=0, group=self._group)
        return words[0]

    def _read_share(self, name: str, deadline: float) -> list[State]:
        """Read this rank's part of a checkpoint, and return what all ranks found."""

        def is_mine(path: str) -> bool:
            # What this rank has saved, so that loading finds it in the node's memory.
            match = _RANKS_FILE.match(path)
            owner = int(match[1]) % self._ranks if match else 0
            return bool(owner == self._rank)

        words = self.root / name, _FORMAT
        return self.gather(whole.by_bytes(*words, threads=2, deadline=deadline, only=is_mine))

    def _publish(
        self, aside: Path, sums: dict[str, FileEntry], trainer: dict[str, Any], begun: float
    ) -> None:
        step: int = trainer["step"]
        final = self.root / f"iter_{step:07d}"
        content = {
            "sharded_backend": "torch_dcp",
            "sharded_backend_version": 1,
            "trainer": trainer,
        }
        manifests.replace_file(aside / "metadata.json", json.dumps(content).encode())
        files = [
            sums.get(path.name) or manifests.entry(aside, path)
            for path in manifests.files_of(aside)
        ]
        manifests.write(aside, Manifest(final.name, step, tuple(files)))
        retention.replace(final, aside)
        manifests.sync_one(self.root)
        self._known.note(final, State("whole"))
        manifests.replace_file(self.root / checkpoints.TRACKER, str(step).encode())
        # `meks status` tells the age of the newest checkpoint from it, and the exporter both.
        took = time.monotonic() - begun
        sys.stderr.write(f"saved checkpoint of step {step} to {self.root} in {took:.1f} s\n")
        try:
            retention.prune(self.root, self._keep_last, _FORMAT, self._known)
        except OSError as problem:
            sys.stderr.write(f"warning {self.root}: {problem} - old checkpoints stay\n")


def _has_trainer(directory: Path) -> bool:
    """Tell whether a checkpoint holds the state of this trainer, beside weights and optimizer."""
    try:
        trainer = json.loads((directory / "metadata.json").read_bytes())["trainer"]
        kinds = {"step": int, "consumed_samples": int, "data": dict}
        return all(isinstance(trainer[name], kind) for name, kind in kinds.items())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
