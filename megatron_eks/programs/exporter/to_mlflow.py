"""Sends the steps of a program that writes to no MLflow, as our trainers send theirs."""

from queue import SimpleQueue
from threading import Thread

from megatron_eks.programs.run_log import FIGURES, Step
from megatron_eks.programs.trainer.tracking import Trackers

# A program that fails at once ends before MLflow is imported.
_LAST_SECONDS = 20.0


class Sender(Thread):
    """A run of a job there. Nobody waits for the server, but its end does for some seconds."""

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
