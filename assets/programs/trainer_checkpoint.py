"""Checkpoints of a run: written aside by all ranks, made visible whole, resumed on any ranks.

The layout is Megatron's, so that whatever looks after its checkpoints looks after these:
`iter_0000100/` with torch.distributed.checkpoint's files and metadata.json, and the tracker file.
A directory gets its name when everything in it is on disk, the tracker names it after that, and
older ones go last.
"""

import json
import os
import shutil
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import checkpoints
import retention
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

_ASIDE = ".saving-"
_FORMAT = checkpoints.DEFAULT_FORMAT


class Checkpointer:
    """Saves and loads what a run needs to go on: weights, optimizer and the trainer's own state."""

    def __init__(
        self, root: Path, keep_last: int, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self.root = root
        self._keep_last = keep_last
        self._model, self._optimizer = model, optimizer
        self._rank = dist.get_rank()
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
        """Load the newest whole checkpoint, if there is one, and return the trainer's state."""
        chosen: list[str | None] = [None]
        if self._rank == 0:
            chosen[0] = self._choose()
        dist.broadcast_object_list(chosen, src=0, group=self._group)
        if chosen[0] is None:
            return None
        directory = self.root / chosen[0]
        state = self._state()
        dcp.load(state, checkpoint_id=directory, process_group=self._group)
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
            checkpoint_id=aside,
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

    def _choose(self) -> str | None:
        """Remove what unfinished saves left, and point the tracker to the newest whole one."""
        self.root.mkdir(parents=True, exist_ok=True)
        for left in self.root.glob(f"{_ASIDE}*"):
            shutil.rmtree(left, ignore_errors=True)
        whole = {
            number: path
            for number, path in checkpoints.complete_iterations(self.root, _FORMAT).items()
            if _is_intact(path)
        }
        if not whole:
            return None
        newest = max(whole)
        checkpoints.replace_text(self.root / checkpoints.TRACKER, str(newest))
        return whole[newest].name

    def _publish(self, aside: Path, step: int, trainer: dict[str, Any]) -> None:
        files = {path.name: path.stat().st_size for path in aside.iterdir()}
        content = {
            "sharded_backend": "torch_dcp",
            "sharded_backend_version": 1,
            "trainer": trainer,
            "files": files,
        }
        checkpoints.replace_text(aside / "metadata.json", json.dumps(content))
        final = self.root / f"iter_{step:07d}"
        if final.exists():
            # Only of a run that was resumed from an older one by hand.
            shutil.rmtree(final)
        aside.rename(final)
        checkpoints.replace_text(self.root / checkpoints.TRACKER, str(step))
        # `meks status` tells the age of the newest checkpoint from it.
        sys.stderr.write(f"saved checkpoint of step {step} to {self.root}\n")
        try:
            retention.prune(self.root, self._keep_last, _FORMAT)
        except OSError as problem:
            sys.stderr.write(f"warning {self.root}: {problem} - old checkpoints stay\n")


def _is_intact(directory: Path) -> bool:
    """Compare the files with the sizes that were written down when the save was complete."""
    content = json.loads((directory / "metadata.json").read_bytes())
    files = content.get("files", {})
    if not files or "trainer" not in content:
        return False
    there = {entry.name: entry.stat().st_size for entry in os.scandir(directory)}
    return all(there.get(name) == size for name, size in files.items())
