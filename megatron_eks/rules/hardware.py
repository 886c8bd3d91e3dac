"""Which nodes a pod runs on, as far as its own node selection says."""

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.load import Json
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import GPU, Pod

TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")

Requirement = tuple[str, str, list[str]]
"""A label's key, the operator, the values."""


def node_terms(pod: Pod) -> list[list[Requirement]]:
    """Return what a node must have, by its selector and its required affinity: any one list."""
    selector = mapping(pod.spec.get("nodeSelector")) or {}
    always = [
        (key, "In", [value.removeprefix("ml.") if key in TYPE_LABELS else value])
        for key, each in selector.items()
        if (value := text(each)) is not None
    ]
    affinity = mapping(pod.spec.get("affinity")) or {}
    nodes = mapping(affinity.get("nodeAffinity")) or {}
    required = mapping(nodes.get("requiredDuringSchedulingIgnoredDuringExecution")) or {}
    terms = items(required.get("nodeSelectorTerms")) or []
    found = [[*always, *_expressions(mapping(term) or {})] for term in terms]
    return found or [always]


def _expressions(term: "dict[str, Json]") -> list[Requirement]:
    found = []
    for value in items(term.get("matchExpressions")) or []:
        body = mapping(value) or {}
        key, operator = text(body.get("key")), text(body.get("operator"))
        values = [name for each in items(body.get("values")) or [] if (name := text(each))]
        if key in TYPE_LABELS:
            # SageMaker HyperPod calls them ml.p5.48xlarge.
            values = [name.removeprefix("ml.") for name in values]
        if key is not None and operator is not None:
            found.append((key, operator, values))
    return found


def type_names(pod: Pod) -> set[str]:
    """Return the instance types that a pod allows; none where it does not name any."""
    terms = [
        {
            name
            for key, operator, values in term
            if key in TYPE_LABELS and operator == "In"
            for name in values
        }
        for term in node_terms(pod)
    ]
    # Every term of an affinity is one more way in, so one without a type allows them all.
    return set().union(*terms) if all(terms) else set()


def instance_types(pod: Pod) -> list[InstanceType]:
    """Return the types that a pod allows; none where one is unknown, or not named."""
    names = type_names(pod)
    return [INSTANCES[name] for name in sorted(names)] if names <= INSTANCES.keys() else []


def takes_all_gpus(pod: Pod) -> bool:
    """Tell whether no second pod like this one has room on its node, whatever node it is.

    EC2 User Guide, "Accelerated computing": no node in use has 16 GPUs, which two pods would take.
    """
    gpus = sum(int(each.amount(GPU) or 0) for each in pod.containers)
    known = [INSTANCES[each].gpus for each in type_names(pod) if each in INSTANCES]
    return gpus >= (max(known) if known else 8)
