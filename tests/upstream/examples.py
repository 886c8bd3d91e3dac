"""Gives the examples of JobSet and Kubeflow Trainer, as they are, to a running cluster.

`python -m tests.upstream.examples FOLDER...` with KUBECONFIG of `meks local up --nodes 3`, whose
cluster file says `platform: {workload: trainjob, pod_security: privileged}`. Folders are searched
for YAML files, such as site/static/examples of a checkout of kubernetes-sigs/jobset, and
manifests/base/runtimes and examples of kubeflow/trainer. Prints what was refused and, after the
seconds in EXAMPLES_SECONDS (120), how far the others have come; exit code 1 if any was refused.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.kubernetes import kubeconfig, manifests
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.ops.kube.jobs import RunningJob

_NAMESPACE = "megatron-workshop"
_JOBS = ("JobSet", "TrainJob")
_WANTED = (*_JOBS, "TrainingRuntime", "ClusterTrainingRuntime")
# A controller learns of a runtime a moment after the API server.
_MOMENT = 2


def main(folders: Sequence[str]) -> int:
    """Create each object, runtimes first; of two jobs of one name the second gets another."""
    (context,) = kubeconfig.contexts(kubeconfig.load([Path(os.environ["KUBECONFIG"])])).values()
    client, refused, accepted = context.client(30), 0, dict[tuple[str, str], Path]()
    for file, found in sorted(_objects(folders), key=lambda each: each[1]["kind"] in _JOBS):
        kind, name = found["kind"], found["metadata"]["name"]
        if kind != "ClusterTrainingRuntime":
            found["metadata"].setdefault("namespace", _NAMESPACE)
        try:
            if (kind, name) in accepted:
                client.create({**found, "metadata": {**found["metadata"], "name": f"{name}-2"}})
                name += "-2"
            else:
                client.create(found)
        except ApiError as error:
            refused += 1
            sys.stdout.write(f"refused {file}: {kind} {name}: {error}\n")
            continue
        accepted[kind, name] = file
        time.sleep(_MOMENT if kind not in _JOBS else 0)
    time.sleep(float(os.environ.get("EXAMPLES_SECONDS", "120")))
    for (kind, name), file in accepted.items():
        if kind in _JOBS:
            sys.stdout.write(f"{_phase(client, kind, name)} {file}: {kind} {name}\n")
    sys.stdout.write(f"{len(accepted)} accepted, {refused} refused\n")
    return int(refused > 0)


def _objects(folders: Sequence[str]) -> Iterator[tuple[Path, Object]]:
    for folder in map(Path, folders):
        for file in sorted(folder.rglob("*.yaml")):
            for each in manifests.read_file(file):
                if each.get("kind") in _WANTED:
                    yield file.relative_to(folder), each


def _phase(client: Client, kind: str, name: str) -> str:
    found = client.find(WORKLOADS[kind].api_version, kind, name, _NAMESPACE)
    if found is None:
        return "Deleted"
    ended = RunningJob(found).ended
    pods = client.list("v1", "Pod", _NAMESPACE, labels=f"{WORKLOADS['JobSet'].job_label}={name}")
    states = sorted({each["status"].get("phase", "") for each in pods})
    return ended or f"{'/'.join(states) or 'no pods'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
