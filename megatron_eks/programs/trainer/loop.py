"""The training loop: steps, their figures one step behind, validation, and when to save."""

import math
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from megatron_eks.programs.start.profiler import Profiler
from megatron_eks.programs.trainer.batches import Batches, Samples, validation_shares
from megatron_eks.programs.trainer.checkpoint import Checkpointer
from megatron_eks.programs.trainer.config import Config, learning_rate
from megatron_eks.programs.trainer.metrics import Metrics, say
from megatron_eks.programs.trainer.parallel import Parallel
from megatron_eks.programs.trainer.text import merge


class NotFiniteError(ValueError):
    """Loss or gradients are no numbers any more; nothing of it has been saved."""


@dataclass
class _Step:
    """A step that the device may still be working on."""

    number: int
    rate: float
    values: Tensor
    """Mean loss, ranks that were asked to stop, gradient norm; on its way to the CPU."""
    arrived: Any
    """The event of their arrival; None if they are there, as on a CPU."""
    state: dict[str, Any]
    data_seconds: float
    """How long this rank waited for its batch."""


class Loop:
    """One rank's part in the training."""

    def __init__(
        self,
        config: Config,
        parallel: Parallel,
        optimizer: torch.optim.Optimizer,
        samples: Samples,
        device: torch.device,
        *,
        has_dropout: bool,
    ) -> None:
        self._config, self._training = config, config.training
        self._parallel, self._model = parallel, parallel.model
        self._optimizer, self._samples, self._device = optimizer, samples, device
        self._has_dropout = has_dropout
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        self._per_step = self._training.train_batch_size * self._ranks
        self._parameters = [entry for group in optimizer.param_groups for entry in group["params"]]
        self._held_out: list[Tensor | None] | None = None
        self._mark = time.perf_counter()
        self._asked_to_stop = False
        self._stopping = False
        self.profiler: Profiler | None = None
        self.last: dict[str, Any] = {}
        """Figures of the newest finished step."""

    def run(
        self,
        start: int,
        consumed: int,
        batches: Batches,
        checkpointer: Checkpointer,
        metrics: Metrics | None,
    ) -> Literal["finished", "stopped"]:
        """Train from the step after `start` to the end, or until a SIGTERM on any rank.

        Raises NotFiniteError, OSError when the last checkpoint fails, and what batches raise.
        """
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        last = self._training.max_steps
        self._model.train()
        self._mark = time.perf_counter()
        pending: _Step | None = None
        for number in range(start + 1, last + 1):
            launched = self._launch(number, batches)
            if self.profiler is not None:
                self.profiler.after_step(number)
            if pending is not None:
                # The device has its next step already, so it does not wait for this.
                self._settle(pending, metrics)
            pending = launched
            validates = number % self._training.validation_interval == 0
            ends = number == last or self._stopping
            saves = ends or number % self._config.checkpoint.interval == 0
            if not validates and not saves and launched.arrived is not None:
                continue
            self._settle(pending, metrics, validates=validates)
            ends = ends or self._stopping
            if saves or ends:
                used = consumed + (number - start) * self._per_step
                self._save(pending, used, checkpointer, last=ends)
            pending = None
            if validates or saves:
                self._mark = time.perf_counter()
            if ends:
                return "finished" if number == last else "stopped"
        return "finished"

    def _ask_to_stop(self, *_: object) -> None:
        self._asked_to_stop = True

    def _launch(self, number: int, batches: Batches) -> _Step:
        """Give the device all of a step to do."""
        rate = learning_rate(self._training, number)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        if self._has_dropout:
            # What is dropped follows from the step, so that a resumed run drops the same.
            torch.manual_seed(self._training.seed + number * self._ranks + self._rank)
        asked_at = time.perf_counter()
        batch = batches.next()
        waited = time.perf_counter() - asked_at
        sequences = batch.sequences.to(self._device, non_blocking=True)
        with self._parallel.autocast():
            loss = self._model(sequences[:, :-1], sequences[:, 1:])
        loss.backward()
        norm = self._clip()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        # Filled by the device: a copy from here would wait for all that it still has to do.
        asked = torch.full((), float(self._asked_to_stop), device=self._device)
        shared = torch.stack((loss.detach().float() / self._ranks, asked))
        dist.all_reduce(shared)
        values = torch.cat((shared, norm.reshape(1)))
        arrived = None
        if self._device.type == "cuda":
            values = values.to("cpu", non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        return _Step(number, rate, values, arrived, batch.state, waited)

    def _clip(self) -> Tensor:
        """Return the norm of all gradients, of all ranks, as it was before clipping."""
        gradients = [entry.grad for entry in self._parameters if entry.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self._training.clip_grad > 0:
            torch.nn.utils.clip_grads_with_norm_(
                self._parameters, self._training.clip_grad, total_norm=norm
            )
        full = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        return full.detach().float()

    def _settle(self, step: _Step, metrics: Metrics | None, *, validates: bool = False) -> None:
        """Wait for a step's figures, judge them and write them down."""
        if step.arrived is not None:
            step.arrived.synchronize()
        loss, asked, norm = step.values.tolist()
        now = time.perf_counter()
        seconds, self._mark = now - self._mark, now
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise NotFiniteError(
                f"step {step.number}: loss {loss}, gradient norm {norm}; nothing of it was saved - "
                "lower training.learning_rate, warm up longer, or look at the data of this step"
            )
        self._stopping = self._stopping or asked > 0
        self.last = {
            "step": step.number,
            "loss": loss,
            "learning_rate": step.rate,
            "grad_norm": norm,
            "seconds": round(seconds, 6),
            "data_seconds": round(step.data_seconds, 6),
        }
        if validates and (validation := self._validate()) is not None:
            self.last["validation_loss"] = validation
        if metrics is not None:
            tokens = self._per_step * self._training.sequence_length
            self.last = metrics.step(self.last, tokens)
            if step.number % self._training.log_interval == 0 or validates:
                say(self.last, self._training.max_steps)
                if metrics.trackers:
                    metrics.trackers.send(self.last)

    def _save(self, step: _Step, consumed: int, checkpointer: Checkpointer, *, last: bool) -> None:
        trainer = {
            "step": step.number,
            "consumed_samples": consumed,
            "data": merge(checkpointer.gather(step.state)),
            "ranks": self._ranks,
        }
        if last:
            checkpointer.save_last(step.number, trainer)
        else:
            checkpointer.save(step.number, trainer, wait=not self._config.checkpoint.async_save)

    @torch.no_grad()
    def _validate(self) -> float | None:
        """Return the mean loss of the held-out sequences; None if there are none."""
        if self._held_out is None:
            self._held_out = validation_shares(self._samples, self._rank, self._ranks)
            if not self._held_out and self._rank == 0:
                sys.stderr.write("warning validation: the data set is too small to hold out any\n")
        if not self._held_out:
            return None
        self._model.eval()
        total = torch.zeros(2, device=self._device)
        for sequence in self._held_out:
            used = torch.zeros(self._training.sequence_length + 1, dtype=torch.long)
            tokens = (used if sequence is None else sequence).to(self._device).unsqueeze(0)
            with self._parallel.autocast():
                loss = self._model(tokens[:, :-1], tokens[:, 1:])
            if sequence is not None:
                total += torch.stack((loss.float(), torch.ones_like(loss)))
        dist.all_reduce(total)
        self._model.train()
        return float(total[0] / total[1])
