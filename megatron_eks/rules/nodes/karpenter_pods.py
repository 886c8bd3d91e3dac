"""Which of Karpenter's pools start nodes for a pod, as far as both say it."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.load import Json
from megatron_eks.rules.hardware import TYPE_LABELS, type_names
from megatron_eks.rules.objects.manifest_set import ManifestSet
from megatron_eks.rules.objects.named_pools import Pool, pools_of
from megatron_eks.rules.objects.node_pools import tolerates, wanted_labels
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import GPU, Manifest, Pod

ZONE = "topology.kubernetes.io/zone"
_KIND = ("karpenter.sh", "NodePool")
FAMILY, _CATEGORY = "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-category"
_WITH_GPUS = re.compile(r"[gp][0-9]?")


def trainings(together: ManifestSet) -> "Iterator[tuple[Manifest, Pod, list[Pool]]]":
    """Return the pods of jobs that ask for GPUs, each with the pools beside it that may take it."""
    pools = [
        pool
        for each in together.of("NodePool")
        if (each.group, each.kind) == _KIND
        for pool in pools_of(each)
    ]
    for job in together.objects if pools else ():
        near = [pool for pool in pools if is_near(job, pool.manifest)]
        for pod in job.pods if job.is_job else ():
            fitting = [pool for pool in near if pod.names(GPU) and takes(pool, pod)]
            if fitting:
                yield job, pod, fitting


def takes(pool: Pool, pod: Pod) -> bool:
    """Tell whether a pool starts nodes with GPUs for a pod: by its types, its labels, its taints.

    Karpenter, "Scheduling": what the pod demands and what the pool requires must both be met.
    """
    for key, values in wanted_labels(pod):
        if key not in TYPE_LABELS and key in pool.labels and pool.labels[key] not in values:
            return False
        zones = asked(pool.manifest, ZONE)
        if key == ZONE and zones and not set(zones) & set(values):
            return False
    given = [mapping(each) or {} for each in items(pod.spec.get("tolerations")) or []]
    # EKS adds the toleration that the taint of a device needs.
    tainted = (each for each in pool.taints if not pod.names(each.key))
    if any(not any(tolerates(each, taint) for each in given) for taint in tainted):
        return False
    return _has_the_type(pool, type_names(pod), named=pool.is_named(pod))


def _has_the_type(pool: Pool, wanted: set[str], *, named: bool) -> bool:
    if pool.types:
        with_gpus = all(_WITH_GPUS.match(each) for each in pool.types)
        return bool(pool.types & wanted) if wanted else with_gpus or named
    for key, of_type in ((FAMILY, _family), (_CATEGORY, _category)):
        there = asked(pool.manifest, key)
        if there:
            with_gpus = all(_WITH_GPUS.match(each) for each in there)
            return any(of_type(each) in there for each in wanted) if wanted else with_gpus or named
    return named


def _family(name: str) -> str:
    return name.partition(".")[0]


def _category(name: str) -> str:
    return re.split(r"[0-9]", name)[0]


def requirements(pool: Manifest) -> "list[dict[str, Json]]":
    """Return what a pool requires of its nodes."""
    template = mapping(pool.spec.get("template")) or {}
    spec = mapping(template.get("spec")) or {}
    return [mapping(each) or {} for each in items(spec.get("requirements")) or []]


def asked(pool: Manifest, key: str) -> list[str]:
    """Return what a pool requires a label to be one of; none where it says it otherwise."""
    for body in requirements(pool):
        if body.get("key") == key and body.get("operator") == "In":
            return [said for each in items(body.get("values")) or [] if (said := text(each))]
    return []


def instances(pool: Pool) -> list[InstanceType]:
    """Return the only types that a pool may start; none where one is unknown."""
    known = [INSTANCES[name] for name in sorted(pool.types) if name in INSTANCES]
    return known if len(known) == len(pool.types) else []


def class_of(pool: Manifest, together: ManifestSet) -> Manifest | None:
    """Return the class that a pool names, if it is at hand."""
    template = mapping(pool.spec.get("template")) or {}
    reference = mapping((mapping(template.get("spec")) or {}).get("nodeClassRef")) or {}
    there = together.of(text(reference.get("kind")) or "")
    return next((each for each in there if each.name == reference.get("name")), None)
