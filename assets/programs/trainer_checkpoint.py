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
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import checkpoints
import manifests
import retention
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import whole
from manifests import FileEntry, Manifest
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from trainer_storage import Planner, Reader, Writer, take_sums
from whole import State

_ASIDE = ".saving-"
_FORMAT = whole.DEFAULT_FORMAT
_RANKS_FILE = re.compile(r"__(\d+)_")


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
        self._stager = (
            DefaultStager(
                StagingOptions(
                    use_pinned_memory=True,
                    use_shared_memory=False,
                    use_async_staging=False,
                    use_non_blocking_copy=True,
                )
            )
            if torch.cuda.is_available()
            else None
        )
        self._pending: tuple[Future[Any], int] | None = None

    def resume(self) -> dict[str, Any] | None:
        """Load what a start resumes from, if there is a checkpoint; return the trainer's state.

        Raises LostCheckpointsError on all ranks, and ValueError for a file that would run code.
        """
        chosen: list[str | None] = [None]
        lost: list[str | None] = [None]
        if self._rank == 0:
            chosen[0], lost[0] = self._choose()
            self._share_out(None)
        else:
            while (name := self._share_out(None)) is not None:
                self._gather(name)
        dist.broadcast_object_list(lost, src=0, group=self._group)
        dist.broadcast_object_list(chosen, src=0, group=self._group)
        if lost[0] is not None:
            raise LostCheckpointsError(lost[0])
        if chosen[0] is None:
            return None
        directory = self.root / chosen[0]
        state = self._state()
        dcp.load(
            state,
            storage_reader=Reader(directory),
            planner=Planner(),
            process_group=self._group,
        )
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        content: dict[str, Any] = json.loads((directory / "metadata.json").read_text())
        trainer = dict(content["trainer"])
        if self._rank == 0:
            sys.stderr.write(f"goes on from step {trainer['step']}, {directory}\n")
        return trainer

    def save(self, step: int, trainer: dict[str, Any], *, wait: bool) -> None:
        """Start to save; earlier saves are waited for. With `wait` it is on disk on return.

        Raises RuntimeError with `wait`, if that failed; otherwise a failed save is said on stderr
        and the training goes on.
        """
        self.finish()
        aside = self.root / f"{_ASIDE}iter_{step:07d}"
        future = dcp.async_save(
            self._state(),
            storage_writer=Writer(aside),
            process_group=self._group,
            async_stager=self._stager,
        )
        published: Future[Any] = Future()

        def publish(done: "Future[Any]") -> None:
            try:
                done.result()
                if self._rank == 0:
                    self._publish(aside, step, trainer)
                published.set_result(None)
            except BaseException as problem:  # noqa: BLE001 -- raised again by who waits
                published.set_exception(problem)

        future.add_done_callback(publish)
        self._pending = (published, step)
        if wait and not self.finish():
            raise RuntimeError(f"the checkpoint of step {step} was not saved")

    def gather(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what every rank has to say; earlier saves are waited for."""
        self.finish()
        states: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(states, state, group=self._group)
        return states

    def close(self) -> None:
        """Wait for all ranks, so that none ends the job while others write."""
        dist.barrier(group=self._group)
        if self._stager is not None:
            self._stager.close()

    def finish(self) -> bool:
        """Wait for the save in progress; tell whether it succeeded on all ranks."""
        if self._pending is None:
            return True
        (future, step), self._pending = self._pending, None
        problem = future.exception()
        failed = torch.tensor([0 if problem is None else 1])
        dist.all_reduce(failed, group=self._group)
        if problem is not None:
            sys.stderr.write(f"warning checkpoint of step {step}: {problem} - training goes on\n")
        if int(failed):
            if self._rank == 0:
                shutil.rmtree(self.root / f"{_ASIDE}iter_{step:07d}", ignore_errors=True)
            return False
        return True

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer}

    def _choose(self) -> tuple[str | None, str | None]:
        """Return the name of what a start resumes from, and what is wrong if all is lost."""
        self.root.mkdir(parents=True, exist_ok=True)
        for left in self.root.glob(f"{_ASIDE}*"):
            shutil.rmtree(left, ignore_errors=True)
        choice = checkpoints.choose(self.root, _FORMAT, self._judge)
        for name, state in choice.rejected:
            sys.stderr.write(f"warning {self.root / name}: {state.why} - it is not resumed from\n")
        if choice.takes is None:
            # This trainer's saves get their names when they are whole, so there was one.
            if choice.rejected or choice.lost:
                root, found, remedy = checkpoints.lost(self.root, choice)
                return None, f"{root}: {found} - {remedy}"
            return None, None
        if choice.state.why:
            sys.stderr.write(f"warning {choice.takes}: {choice.state.why} - it is resumed from\n")
        checkpoints.point_to(self.root, choice.takes)
        return choice.takes.name, None

    def _judge(self, path: Path, _format: str) -> State:
        """Judge a checkpoint by every byte; each rank reads its part."""
        state = whole.by_sizes(path, _FORMAT)
        if not state.loadable or not _has_trainer(path):
            return state if not state.loadable else State("damaged", "it is not this trainer's")
        self._share_out(path.name)
        found = self._gather(path.name)
        return next((each for each in found if not each.loadable), found[0])

    def _share_out(self, name: str | None) -> str | None:
        """Tell all ranks which checkpoint to read, and that there is none any more."""
        words = [name]
        dist.broadcast_object_list(words, src=0, group=self._group)
        return words[0]

    def _gather(self, name: str) -> list[State]:
        """Read this rank's part of a checkpoint, and return what all ranks found."""
        share = whole.by_bytes(self.root / name, _FORMAT, threads=2, only=self._is_mine)
        found: list[Any] = [None] * self._ranks
        dist.all_gather_object(found, share, group=self._group)
        return found

    def _is_mine(self, file: FileEntry) -> bool:
        """Tell whether this rank reads a file; its own, so that loading finds it in memory."""
        match = _RANKS_FILE.match(file.path)
        owner = int(match[1]) % self._ranks if match else 0
        return bool(owner == self._rank)

    def _publish(self, aside: Path, step: int, trainer: dict[str, Any]) -> None:
        final = self.root / f"iter_{step:07d}"
        sums = take_sums(aside)
        content = {
            "sharded_backend": "torch_dcp",
            "sharded_backend_version": 1,
            "trainer": trainer,
            "files": {path.name: path.stat().st_size for path in aside.iterdir()},
        }
        checkpoints.replace_text(aside / "metadata.json", json.dumps(content))
        files = [
            sums.get(path.name) or manifests.entry(aside, path)
            for path in manifests.files_of(aside)
        ]
        manifests.write(aside, Manifest(final.name, step, tuple(files)))
        if final.exists():
            # Only of a run that was resumed from an older one by hand.
            retention.remove(final)
        aside.rename(final)
        manifests.sync_one(self.root)
        self._known.note(final, State("whole"))
        checkpoints.replace_text(self.root / checkpoints.TRACKER, str(step))
        # `meks status` tells the age of the newest checkpoint from it.
        sys.stderr.write(f"saved checkpoint of step {step} to {self.root}\n")
        try:
            retention.prune(self.root, self._keep_last, _FORMAT, self._known)
        except OSError as problem:
            sys.stderr.write(f"warning {self.root}: {problem} - old checkpoints stay\n")


def _has_trainer(directory: Path) -> bool:
    """Tell whether a checkpoint holds the state of this trainer, beside weights and optimizer."""
    try:
        content = json.loads((directory / "metadata.json").read_bytes())
        return isinstance(content["trainer"], dict)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
