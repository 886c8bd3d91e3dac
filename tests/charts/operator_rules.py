"""What the training operator v1.9.4 demands of a PyTorchJob, and what it makes of one.

Written after its rules (pkg/webhooks/pytorch/pytorchjob_webhook.go, envvar.go), not copied.
"""

import re
from collections.abc import Iterator
from typing import Any

# Kubernetes, "DNS-1035 label": the operator makes a Service of the name.
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_CONTAINER = "pytorch"
_MANAGERS = {"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"}


def refusals(job: dict[str, Any]) -> Iterator[str]:
    """Return what the admission webhook would say against a job."""
    spec = job["spec"]
    if not _DNS_1035.fullmatch(job["metadata"]["name"]):
        yield "the name is no DNS-1035 label"
    if spec.get("runPolicy", {}).get("managedBy", next(iter(_MANAGERS))) not in _MANAGERS:
        yield "nobody manages the job"
    replicas = spec.get("pytorchReplicaSpecs")
    if not replicas:
        yield "there are no replicas"
        return
    for role, replica in replicas.items():
        yield from _replica_refusals(role, replica)
    elastic = spec.get("elasticPolicy")
    if elastic is not None and "Worker" not in replicas:
        yield "an elastic job needs workers"
    if elastic is not None and "nProcPerNode" in elastic and "nprocPerNode" in spec:
        yield "processes per node are given twice"


def _replica_refusals(role: str, replica: dict[str, Any]) -> Iterator[str]:
    containers = replica.get("template", {}).get("spec", {}).get("containers", [])
    if role not in {"Master", "Worker"}:
        yield f"there is no role {role}"
    if not any(container.get("name") == _CONTAINER for container in containers):
        yield f"{role} has no container named {_CONTAINER}"
    if not all(container.get("image") for container in containers):
        yield f"{role} has a container without an image"
    if role == "Master" and replica.get("replicas") != 1:
        yield "Master needs exactly one replica, written out"
    if role == "Worker" and replica.get("replicas", 1) < 1:
        yield "Worker needs at least one replica"


def derived_names(job: dict[str, Any]) -> Iterator[str]:
    """Return the names of the pods and Services that the operator makes."""
    for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
        for index in range(replica["replicas"]):
            yield f"{job['metadata']['name']}-{role.lower()}-{index}"
