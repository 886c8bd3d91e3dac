"""The node groups of templates as the scheduler sees them: labels, taints, types, sizes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.load import Json
from megatron_eks.rules.hardware import TYPE_LABELS, node_terms
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, number, text
from megatron_eks.rules.workloads import Pod

_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute"}
_ANY = "any"


@dataclass(frozen=True)
class Taint:
    """A taint that keeps pods away unless they tolerate it."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Write it as kubectl does."""
        return f"{self.key}={self.value}:{self.effect}".replace("=:", ":")


@dataclass(frozen=True)
class NodePool:
    """One managed node group; what only AWS knows is None."""

    name: str
    labels: "Mapping[str, str | None] | None"
    taints: tuple[Taint, ...] | None
    types: tuple[str, ...] | None
    max_nodes: int | None

    @property
    def instances(self) -> list[InstanceType]:
        """The types of its nodes; none where one is unknown."""
        known = [INSTANCES[name] for name in self.types or () if name in INSTANCES]
        return known if len(known) == len(self.types or ()) else []

    def value(self, key: str) -> str | None:
        """Return what its nodes have for a label: a value, `any` for the unknown, or None."""
        if key in TYPE_LABELS:
            return self.types[0] if self.types and len(self.types) == 1 else _ANY
        if self.labels is None:
            return _ANY
        if key in self.labels:
            return self.labels[key] or _ANY
        # Kubernetes, EKS and device plugins set labels of their own domains.
        domain = key.rpartition("/")[0]
        own = domain.endswith(("kubernetes.io", "k8s.io", "amazonaws.com", "nvidia.com", "aws"))
        return _ANY if own else None

    def may_run(self, pod: Pod) -> bool:
        """Tell whether its nodes have the labels that a pod demands."""
        return any(
            all(self._meets(key, operator, values) for key, operator, values in term)
            for term in node_terms(pod)
        )

    def untolerated(self, pod: Pod) -> Taint | None:
        """Return a taint that keeps the pod away.

        EKS User Guide, "platform versions": ExtendedResourceToleration adds what a request for a
        device of the taint's name needs.
        """
        tolerations = [mapping(each) or {} for each in items(pod.spec.get("tolerations")) or []]
        for taint in self.taints or ():
            if not pod.names(taint.key) and not any(tolerates(each, taint) for each in tolerations):
                return taint
        return None

    def _meets(self, key: str, operator: str, values: "list[str]") -> bool:
        value = self.value(key)
        if value == _ANY or operator not in {"In", "Exists"}:
            return True
        return value is not None if operator == "Exists" else value in values


def node_pools(templates: TemplateSet) -> list[NodePool]:
    """Return the node groups; none where nodes come from elsewhere as well."""
    if any(templates.resources("AWS::AutoScaling::AutoScalingGroup", "AWS::SageMaker::Cluster")):
        return []
    return [_pool(group, templates) for group in templates.resources("AWS::EKS::Nodegroup")]


def _pool(group: Resource, templates: TemplateSet) -> NodePool:
    properties = group.properties
    sizes = mapping(properties.get("ScalingConfig")) or {}
    return NodePool(
        name=text(properties.get("NodegroupName")) or group.id,
        labels=_labels(properties.get("Labels")),
        taints=_taints(properties.get("Taints")),
        types=_types(group, templates),
        max_nodes=number(sizes.get("MaxSize")),
    )


def _labels(value: Json) -> "Mapping[str, str | None] | None":
    known = mapping(value)
    return None if known is None else {key: text(each) for key, each in known.items()}


def _taints(value: Json) -> tuple[Taint, ...] | None:
    listed = items(value)
    if listed is None:
        return None
    found = []
    for each in listed:
        body = mapping(each) or {}
        key, effect = text(body.get("Key")), text(body.get("Effect"))
        if key is None or effect is None:
            return None
        if effect in _EFFECTS:
            found.append(Taint(key, text(body.get("Value")) or "", _EFFECTS[effect]))
    return tuple(found)


def _types(group: Resource, templates: TemplateSet) -> tuple[str, ...] | None:
    named = group.properties.get("InstanceTypes")
    if is_absent(named):
        reference = mapping(group.properties.get("LaunchTemplate")) or {}
        identity = reference.get("Id", reference.get("Name"))
        template = templates.target(identity, group.file)
        data = mapping((template.properties if template else {}).get("LaunchTemplateData")) or {}
        named = [data.get("InstanceType")] if template else None
    listed = [text(each) for each in items(named) or []]
    return tuple(each for each in listed if each) if listed and None not in listed else None


def tolerates(toleration: "Mapping[str, Json]", taint: Taint) -> bool:
    """Tell whether one toleration is for a taint (Kubernetes, "Taints and Tolerations")."""
    key, effect = text(toleration.get("key")), text(toleration.get("effect"))
    value = text(toleration.get("value")) or ""
    exists = toleration.get("operator") == "Exists"
    return (
        (key == taint.key or (key is None and exists))
        and effect in {None, "", taint.effect}
        and (exists or value == taint.value)
    )


def wanted_labels(pod: Pod) -> "Iterator[tuple[str, list[str]]]":
    """Return the labels, with their values, that every node for the pod must have."""
    terms = node_terms(pod)
    for key, operator, values in terms[0] if len(terms) == 1 else ():
        if operator == "In":
            yield key, values
