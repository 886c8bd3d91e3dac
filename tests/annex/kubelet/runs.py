"""Jobs of our own chart that step on process nodes until a test tells them to finish."""

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_eks.kubernetes.client import Object, wait_for
from tests.annex import jobs

_LOG = logging.getLogger(__name__)

SMALL = "small"
"""The image of ranks that start at once; see `programs/small`."""

MEGATRON = "real-megatron"
"""The image that `meks local up` has in the place of `megatron-training`."""
OWN = f"registry.example.com/mine@sha256:{'0' * 64}"
"""An image of a user's, with torch and without any program of this project."""
GANG = "gang"
"""The image of the real start-up guard and watcher, and a Megatron in miniature."""

# Two cores may have a dozen interpreters to start that all import torch.
_SECONDS = 240


@dataclass(frozen=True)
class Run:
    """A job, and where rank 0 records its steps."""

    job: Object
    folder: Path

    def steps(self) -> list[Object]:
        """Return the steps that are recorded so far."""
        file = self.folder / "steps.jsonl"
        # The last line may be half written.
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for_step(self, *, after: int = 0) -> Object:
        """Return the newest step as soon as there are more than a number of them."""
        found: Object = wait_for("a step", lambda: self.steps()[after:], _SECONDS)[-1]
        return found

    def wait_for_restart(self, began: float | None = None) -> Object:
        """Return the first step of another start than those that are known by now.

        The log says how long it took since a rank was lost, by default now.
        """
        known = {step["start"] for step in self.steps()}
        began = time.monotonic() if began is None else began

        def found() -> list[Object]:
            return [step for step in self.steps() if step["start"] not in known]

        first: Object = wait_for("a restart", found, _SECONDS)[0]
        name = self.job["metadata"]["name"]
        _LOG.info("%s steps again after %.0f s", name, time.monotonic() - began)
        return first

    def finish(self) -> None:
        """Tell the job to end after its next step."""
        (self.folder / "finish").touch()


def job(
    name: str,
    nodes: int,
    *,
    processes: int = 1,
    image: str | None = None,
    kind: str = "PyTorchJob",
) -> Object:
    """Return the default job, on fewer GPUs and with a log directory of its own."""
    found = jobs.training_job(name, nodes, kind)
    if kind == "PyTorchJob":
        found["spec"]["nprocPerNode"] = str(processes)
    for pod in jobs.pod_specs(found):
        # What is told to end has nothing to save.
        pod["terminationGracePeriodSeconds"] = 2
        (container,) = pod["containers"]
        container["image"] = image or container["image"]
        own = f"--nproc-per-node={processes}"
        words = container["command"]
        container["command"] = [own if "--nproc" in word else word for word in words]
        folder = f"/shared/logs/{name}"
        if image in {GANG, MEGATRON}:
            container["command"][3] = folder
        else:
            # Ranks in miniature have neither our programs nor a pod's volume.
            container["command"] = container["command"][5:]
            container["args"] = ["--log-dir", folder, *container["args"]]
    return found


def starts(cluster: Any, name: str) -> list[str]:
    """Return what the first rank of a job has printed in each start."""
    files = (cluster.shared() / "logs" / name).glob("*/rank-00000.log")
    return [file.read_text() for file in sorted(files)]


def hurry(found: Object) -> None:
    """Let a job's pods end soon; in our charts they have half a minute."""
    for pod in jobs.pod_specs(found):
        pod["terminationGracePeriodSeconds"] = 2


def gang_job(name: str, nodes: int, *, processes: int = 1, kind: str = "PyTorchJob") -> Object:
    """Return a job of the real train_megatron, whose ranks wait for lost peers for ever."""
    found = job(name, nodes, processes=processes, image=GANG, kind=kind)
    folder = f"/shared/logs/{name}"
    for pod in jobs.pod_specs(found):
        (container,) = pod["containers"]
        container["args"] = [
            *("--keep-last", "1", "--heartbeats", f"{folder}/heartbeats"),
            *("--", "--record", folder),
        ]
    return found
