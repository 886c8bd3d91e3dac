"""The controllers that a platform may have, and what each needs as a process of this machine."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.kubernetes.manifests import read_file
from megatron_eks.localcloud.kubernetes.build import JOBSET, KUEUE, TRAINER
from megatron_eks.localcloud.kubernetes.operator import PROBES, SERVING, Operator
from megatron_eks.localcloud.kubernetes.state import read_state

if TYPE_CHECKING:
    from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane


class JobSetController(Operator):
    """The controller of JobSets. Its own namespace is compiled in, as it is in the chart."""

    name = JOBSET
    definition = ("jobset.x-k8s.io/v1alpha2", "JobSet")

    _group = "config.jobset.x-k8s.io"

    def _own_flags(self) -> Iterator[str]:
        file = self._temporary / "configuration.json"
        configuration = {
            "apiVersion": f"{self._group}/v1alpha1",
            "kind": "Configuration",
            "webhook": {"host": "127.0.0.1", "port": self._webhook_port},
            "health": {"healthProbeBindAddress": self._health},
            "metrics": {"bindAddress": "0"},
        }
        file.write_text(json.dumps(configuration))
        yield f"--config={file}"

    def _probe_spec(self) -> Object:
        template = {"spec": {"containers": PROBES, "restartPolicy": "Never"}}
        return {"replicatedJobs": [{"name": "probe", "template": {"spec": {"template": template}}}]}


class Trainer(JobSetController):
    """The controller of TrainJobs, which needs that of JobSets."""

    name = TRAINER
    definition = ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    _group = "config.trainer.kubeflow.org"

    def _probe_spec(self) -> Object:
        return {"runtimeRef": {"name": "none"}}


class Kueue(Operator):
    """The controller of queues. All of its settings are its chart's, but for where it listens."""

    name = KUEUE
    definition = ("kueue.x-k8s.io/v1beta2", "Workload")

    def _own_flags(self) -> Iterator[str]:
        ((name, text),) = self._files.items()
        settings = json.loads(text)
        settings["health"]["healthProbeBindAddress"] = self._health
        if settings["metrics"]["bindAddress"] != "0":
            settings["metrics"]["bindAddress"] = f"127.0.0.1:{self._cluster.port('kueue-metrics')}"
        settings["webhook"] = {
            "host": "127.0.0.1",
            "port": self._webhook_port,
            "certDir": str(self._temporary / SERVING),
        }
        (self._temporary / name).write_text(json.dumps(settings))
        yield f"--config={self._temporary / name}"

    def _probe(self) -> Object:
        # About a Workload that is not to stay it is not asked.
        metadata, (api_version, _) = {"name": "webhook-probe"}, self.definition
        return {"apiVersion": api_version, "kind": "ClusterQueue", "metadata": metadata, "spec": {}}


CONTROLLERS = (Operator, JobSetController, Trainer, Kueue)
"""The training operator first; a platform may have no other."""


def follow(cluster: "ControlPlane", platform: Path) -> bool:
    """Run every controller that a platform has, and no other; tell whether that changed any."""
    changed = False
    for each in CONTROLLERS:
        file, runs = each.file(platform), each.name in cluster.processes.pids
        if file and not runs:
            each(cluster, read_file(file)).install()
        elif runs and not file:
            cluster.processes.stop(each.name)
        changed |= runs != bool(file)
    return changed


def hand_over(folder: Path, platform: Path) -> None:
    """Let the cluster of a folder follow another platform; return when it does."""
    theirs = folder / "manifests" / "platform"
    wanted = [(each.name, each.file(platform), each.file(theirs)) for each in CONTROLLERS]
    for name, file, there in wanted:
        if there and not file:
            there.unlink()
        elif file and not there:
            # At once, for who looks twice a second.
            partial = theirs / name
            shutil.copy(file, partial)
            partial.replace(theirs / file.name)
    names = {name for name, file, _ in wanted if file}
    known = {name for name, *_ in wanted}
    wait_for("its controllers", lambda: known & read_state(folder).pids.keys() == names)
