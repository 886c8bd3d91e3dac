"""Rule over the fields of kinds that operators bring: jobs, queues, monitors, certificates."""

import posixpath
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.objects.fields import finding
from megatron_eks.rules.shapes import OPERATORS, Misfit, misfits, table
from megatron_eks.rules.values import shown, text
from megatron_eks.rules.workloads import Manifest

_CLOSE = 0.8
# The webhook of JobSet gives a rule its name.
# What other kinds call it, or have it at another place.
_ELSEWHERE = {
    ("trainer", "nodes"): "numNodes",
    ("trainer", "nprocPerNode"): "numProcPerNode",
    ("trainer", "replicas"): "numNodes",
    ("trainer", "resources"): "resourcesPerNode",
    ("replicatedJobs", "network"): "it under spec, for the whole set",
    ("replicatedJobs", "parallelism"): "it under template.spec",
    ("replicatedJobs", "completions"): "it under template.spec",
    ("replicatedJobs", "backoffLimit"): "it under template.spec",
    ("workerGroupSpecs", "nodeSelector"): "it under template.spec",
    ("workerGroupSpecs", "tolerations"): "it under template.spec",
    ("workerGroupSpecs", "resources"): "it at a container under template.spec",
    ("leaderWorkerTemplate", "groupSize"): "size",
    ("leaderWorkerTemplate", "workers"): "size",
    ("tasks", "minReplicas"): "minAvailable",
    ("tasks", "restartPolicy"): "it under template.spec",
}
_DEFAULTED = frozenset({"name"})


def fields(manifest: Manifest) -> Iterator[Finding]:
    """Require of fields of these operators the names and kinds of values in their definitions.

    kubernetes-sigs/jobset, kueue and lws, kubeflow/trainer and mpi-operator, ray-project/kuberay,
    volcano, prometheus-operator, cert-manager, external-secrets: the CRDs of their releases. A key
    that is nearly none of these may be another release's.
    """
    shapes = table(OPERATORS)
    shape = shapes.get(f"{text(manifest.body.get('apiVersion'))} {manifest.kind}")
    # A patch is whole only with what it is laid over.
    is_patch = "patch" in posixpath.basename(manifest.file)
    for misfit in misfits(dict(manifest.body), shape, shapes, loose=False) if shape else ():
        if misfit.missing and is_patch:
            continue
        place = tuple(key for key in misfit.path if isinstance(key, str))[-2:]
        if not misfit.missing and place in _ELSEWHERE and _is_of_another_release(misfit):
            found = f"the operator knows no {shown(place[-1])} here: it does nothing"
            remedy = f"write {_ELSEWHERE[place]}"
            yield manifest.find(Code.UNKNOWN_POD_KEY, misfit.path, found, remedy)
        elif not _is_of_another_release(misfit):
            yield finding(manifest, misfit.path, misfit)


def _is_of_another_release(misfit: Misfit) -> bool:
    key = str(misfit.path[-1])
    if misfit.missing:
        return "rules" in misfit.path and key in _DEFAULTED
    if len(misfit.below) == 1:
        # Known one level down, as what MPIJob v2beta1 has moved into runPolicy.
        return False
    same = [each for each in misfit.known if each.lower() == key.lower()]
    return bool(misfit.known) and not same and not get_close_matches(key, misfit.known, 1, _CLOSE)
