"""Which instance types a pod runs on, as far as its own node selection says."""

from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import Pod

_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


def type_names(pod: Pod) -> set[str]:
    """Return the instance types that a pod allows; none where it does not name any."""
    selector = mapping(pod.spec.get("nodeSelector")) or {}
    named = [name for label in _TYPE_LABELS if (name := text(selector.get(label)))]
    listed = [set(each) for each in _terms(pod)]
    # Every term of an affinity is one more way in, so one without a type allows them all.
    by_affinity = set().union(*listed) if listed and all(listed) else set()
    # SageMaker HyperPod calls them ml.p5.48xlarge.
    return {name.removeprefix("ml.") for name in named or by_affinity}


def instance_types(pod: Pod) -> list[InstanceType]:
    """Return the types that a pod allows; none where one is unknown, or not named."""
    names = type_names(pod)
    return [INSTANCES[name] for name in sorted(names)] if names <= INSTANCES.keys() else []


def _terms(pod: Pod) -> Iterator[list[str]]:
    affinity = mapping(pod.spec.get("affinity")) or {}
    nodes = mapping(affinity.get("nodeAffinity")) or {}
    required = mapping(nodes.get("requiredDuringSchedulingIgnoredDuringExecution")) or {}
    for term in items(required.get("nodeSelectorTerms")) or []:
        found: list[str] = []
        for value in items((mapping(term) or {}).get("matchExpressions")) or []:
            expression = mapping(value) or {}
            if expression.get("key") in _TYPE_LABELS and expression.get("operator") == "In":
                listed = items(expression.get("values")) or []
                found += [name for each in listed if (name := text(each))]
        yield found
