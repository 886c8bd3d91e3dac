"""The controllers that a platform may have, and what each needs as a process of this machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks.kubernetes.client import Object
from megatron_eks.kubernetes.manifests import read_file
from megatron_eks.localcloud.kubernetes.build import JOBSET, KUEUE, TRAINER
from megatron_eks.localcloud.kubernetes.operator import PROBES, SERVING, Operator

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
        ((name, text),) = self._plan.files.items()
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

    def _probe_spec(self) -> Object:
        template = {"spec": {"containers": PROBES, "restartPolicy": "Never"}}
        return {"podSets": [{"name": "probe", "count": 1, "template": template}]}


CONTROLLERS = (Operator, JobSetController, Trainer, Kueue)
"""The training operator first; a platform may have no other."""


def install(cluster: "ControlPlane", platform: Path) -> None:
    """Install every controller that a platform has."""
    for each in CONTROLLERS:
        if file := each.file(platform):
            each(cluster, read_file(file)).install()
