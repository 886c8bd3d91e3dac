"""Where each kind of object keeps its pod templates, and how many pods it makes of each."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.errors import Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import items, mapping, number

# In a path: each element of a list, or each value of a mapping.
_EACH = "*"
_JOBS_OF_A_SET = ("replicatedJobs", _EACH, "template", "spec", "template")
_RAY = (("headGroupSpec", "template"), ("workerGroupSpecs", _EACH, "template"))
_TEMPLATE = (("spec", "template"),)

Places = tuple[tuple[str, ...], ...]

# The replicas of each type, for operators of Kubeflow (kubeflow/trainer v1.9.4, pkg/apis).
REPLICA_SPECS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
# The group tells apart kinds of the same name. Kubernetes 1.35, API reference; JobSet v1alpha2;
# Kubeflow Trainer v1alpha1; KubeRay v1; Volcano v1alpha1; LeaderWorkerSet v1.
_PLACES: dict[tuple[str, str], Places] = {
    ("", "Pod"): ((),),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): (("spec", "jobTemplate", "spec", "template"),),
    ("jobset.x-k8s.io", "JobSet"): (("spec", *_JOBS_OF_A_SET),),
    ("trainer.kubeflow.org", "TrainingRuntime"): (("spec", "template", "spec", *_JOBS_OF_A_SET),),
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): (
        ("spec", "template", "spec", *_JOBS_OF_A_SET),
    ),
    ("batch.volcano.sh", "Job"): (("spec", "tasks", _EACH, "template"),),
    ("ray.io", "RayCluster"): tuple(("spec", *each) for each in _RAY),
    ("ray.io", "RayJob"): tuple(("spec", "rayClusterSpec", *each) for each in _RAY),
    ("ray.io", "RayService"): tuple(("spec", "rayClusterConfig", *each) for each in _RAY),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        ("spec", "leaderWorkerTemplate", "workerTemplate"),
    ),
    **{
        ("kubeflow.org", kind): (("spec", key, _EACH, "template"),)
        for kind, key in REPLICA_SPECS.items()
    },
}
# Kinds whose pods train; a cluster of Ray does nothing else here.
_JOBS = frozenset(
    {
        *(("batch", "Job"), ("batch", "CronJob"), ("batch.volcano.sh", "Job")),
        *(("jobset.x-k8s.io", "JobSet"), ("ray.io", "RayCluster"), ("ray.io", "RayJob")),
        *(("trainer.kubeflow.org", each) for each in ("ClusterTrainingRuntime", "TrainingRuntime")),
        ("trainer.kubeflow.org", "TrainJob"),
        *(("kubeflow.org", each) for each in REPLICA_SPECS),
    }
)


def is_job(group: str, kind: str) -> bool:
    """Tell whether the pods of a kind run to an end."""
    return (group, kind) in _JOBS


def templates(
    group: str, kind: str, body: Mapping[str, Json]
) -> Iterator[tuple[Path, Mapping[str, Json], int | None]]:
    """Return the pod templates of an object, each with its path and the pods that it makes."""
    for place in _PLACES.get((group, kind), ()):
        for path, template, above in _at(dict(body), place, (), []):
            yield path, template, _count(kind, above, path)


def _at(
    value: Json, place: tuple[str, ...], path: Path, above: list[Mapping[str, Json]]
) -> Iterator[tuple[Path, Mapping[str, Json], list[Mapping[str, Json]]]]:
    """Return what stands at a place, with the mappings around it."""
    if not place:
        if (body := mapping(value)) is not None:
            yield path, body, above
        return
    first, *rest = place
    here = mapping(value)
    holders = [*above, here] if here is not None else above
    if first != _EACH:
        yield from _at((here or {}).get(first), tuple(rest), (*path, first), holders)
    elif here is not None:
        for key, inner in here.items():
            yield from _at(inner, tuple(rest), (*path, key), holders)
    else:
        for index, inner in enumerate(items(value) or []):
            yield from _at(inner, tuple(rest), (*path, index), holders)


def _count(kind: str, above: "list[Mapping[str, Json]]", path: Path) -> int | None:
    """Return how many pods there are, by what the objects around them say."""
    if kind.endswith("TrainingRuntime"):
        return number((mapping(above[1].get("mlPolicy")) or {}).get("numNodes"))
    if kind in {"CronJob", "Job", "JobSet"} and path[-2:] == ("spec", "template"):
        pods = number(above[-1].get("parallelism"))
        sets = number(above[2].get("replicas", 1)) if kind == "JobSet" else 1
        return pods * sets if pods is not None and sets is not None else None
    if kind == "LeaderWorkerSet" and path[2:3] == ("leaderWorkerTemplate",):
        groups, size = (
            number(each) for each in (above[1].get("replicas", 1), above[2].get("size", 1))
        )
        alone = 1 if "leaderTemplate" in above[2] else 0
        of_each = size - alone if size is not None and path[-1] == "workerTemplate" else 1
        return groups * of_each if groups is not None else None
    return number(above[-1].get("replicas")) if len(above) > 1 else None
