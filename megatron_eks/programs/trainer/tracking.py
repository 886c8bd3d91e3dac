"""Sends a run's figures to Weights & Biases or MLflow, whose own variables say where to."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

from megatron_eks.programs.program import Finding, error
from megatron_eks.programs.run_log import FIGURES, Step

NAMES = ("wandb", "mlflow")
# A program that fails at once ends before MLflow is imported.
_LAST_SECONDS = 20.0

_Log = Callable[[Mapping[str, float], int], object]
_End = Callable[[bool], object]


def check_packages(names: Sequence[str]) -> Iterator[Finding]:
    """Yield trackers that a run is to write to, and whose package is not in its image."""
    # MLflow reads it, and takes an ARN only with a plugin (sagemaker-mlflow, README).
    is_arn = os.environ.get("MLFLOW_TRACKING_URI", "").startswith("arn:")
    for name in (*names, *(["sagemaker_mlflow"] if is_arn and "mlflow" in names else [])):
        if importlib.util.find_spec(name) is None:
            remedy = "install it in an image of your own (images.own), or remove runtime.tracking"
            yield error("runtime.tracking", f"this image has no package {name}", remedy)


class Trackers:
    """A run in each of them. Their troubles are said once: a training is worth more."""

    def __init__(self, names: Sequence[str], job: str) -> None:
        self._senders: dict[str, tuple[_Log, _End]] = {}
        for name in names:
            self._try(name, partial(self._begin, name, job))

    def send(self, values: Mapping[str, Any]) -> None:
        """Send what is a number of a step."""
        sent = {key: float(each) for key, each in values.items() if isinstance(each, (int, float))}
        step = int(sent.pop("step"))
        for name, (log, _) in [*self._senders.items()]:
            self._try(name, partial(log, sent, step))

    def close(self, *, well: bool) -> None:
        """Wait until all is sent, and say how the run ended."""
        for name, (_, end) in [*self._senders.items()]:
            self._try(name, partial(end, well))

    def _begin(self, name: str, job: str) -> None:
        package = importlib.import_module(name)
        if name == "wandb":
            run = package.init()
            self._senders[name] = (
                lambda sent, step: run.log(sent, step=step),
                lambda well: run.finish(int(not well)),
            )
        else:
            package.start_run(run_name=job)
            # Without waiting for the server, as W&B does it.
            log = partial(package.log_metrics, synchronous=False)
            end = package.end_run
            self._senders[name] = log, lambda well: end("FINISHED" if well else "FAILED")

    def _try(self, name: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as problem:  # noqa: BLE001 -- they have no class of their own in common
            self._senders.pop(name, None)
            said = f"warning runtime.tracking: {name}: {problem} - training goes on without it\n"
            with suppress(OSError):
                sys.stderr.write(said)


class Sender(Thread):
    """Sends the steps of a program that writes to no MLflow; its end waits for some seconds."""

    def __init__(self, job: str) -> None:
        super().__init__(daemon=True)
        self._job, self.steps = job, SimpleQueue[Step | bool]()
        self.start()

    def run(self) -> None:
        """Send what comes, until the end."""
        trackers = Trackers(("mlflow",), self._job)
        while not isinstance(step := self.steps.get(), bool):
            trackers.send({name: getattr(step, name) for name in ("step", "loss", *FIGURES)})
        trackers.close(well=step)

    def close(self, *, well: bool) -> None:
        """End the run."""
        self.steps.put(well)
        self.join(_LAST_SECONDS)
