"""Rule over what the versions of Kueue's queues say in different words."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.values import is_absent, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_COHORTS = {"v1beta1": "cohort", "v1beta2": "cohortName"}
_FLAVORS = (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt"))
_QUEUES = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "WorkloadPriorityClass")
_STAYS = "MayStopSearch"


def served(manifest: Manifest) -> Iterator[Finding]:
    """Refuse versions that Kueue no longer serves.

    kubernetes-sigs/kueue, CHANGELOG of v0.5: v1alpha2 of queues and flavors is gone.
    """
    version = (text(manifest.body.get("apiVersion")) or "").rpartition("/")[2]
    own = manifest.group == "kueue.x-k8s.io" and manifest.kind in _QUEUES
    if own and version.startswith("v1alpha"):
        found = f"kueue.x-k8s.io/{version} no longer serves {manifest.kind}"
        remedy = "use kueue.x-k8s.io/v1beta1, or v1beta2 since v0.15"
        yield manifest.find(Code.API_VERSION, ("apiVersion",), found, remedy)


def words(manifest: Manifest) -> Iterator[Finding]:
    """Refuse in a queue the words of the other version.

    kubernetes-sigs/kueue, apis/kueue/v1beta1 and v1beta2, clusterqueue_types.go: `cohort` became
    `cohortName`, and Borrow and Preempt became MayStopSearch. kubectl refuses an unknown field;
    where it is dropped instead, the queue borrows from nobody.
    """
    version = (text(manifest.body.get("apiVersion")) or "").rpartition("/")[2]
    if (manifest.group, manifest.kind) != ("kueue.x-k8s.io", "ClusterQueue"):
        return
    own = _COHORTS.get(version)
    for key in _COHORTS.values() if own is not None else ():
        if key != own and not is_absent(manifest.spec.get(key)):
            found = f"{version} has no {key}: it is refused, or the queue is in no cohort"
            yield manifest.find(Code.QUEUE, ("spec", key), found, f"write {own}")
    choice = mapping(manifest.spec.get("flavorFungibility")) or {}
    for key, former in _FLAVORS if version == "v1beta2" else ():
        if choice.get(key) == former:
            found = f"{shown(former)} is of v1beta1: the API server refuses the queue"
            path = ("spec", "flavorFungibility", key)
            yield manifest.find(Code.QUEUE, path, found, f"write {_STAYS}")
