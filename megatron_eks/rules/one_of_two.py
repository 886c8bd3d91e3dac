"""Rules over two properties of which a service takes one, and labels that it refuses."""

import re
from collections.abc import Iterator
from itertools import combinations

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text

_TARGETS = (
    *("GatewayId", "NatGatewayId", "TransitGatewayId", "VpcPeeringConnectionId"),
    *("NetworkInterfaceId", "VpcEndpointId", "EgressOnlyInternetGatewayId"),
)
# Two properties of which a resource takes one.
_EITHER: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("AWS::EKS::Nodegroup", ("UpdateConfig",), ("MaxUnavailable", "MaxUnavailablePercentage")),
    ("AWS::EKS::Nodegroup", ("LaunchTemplate",), ("Id", "Name")),
    (
        "AWS::EKS::Nodegroup",
        ("NodeRepairConfig",),
        ("MaxUnhealthyNodeThresholdCount", "MaxUnhealthyNodeThresholdPercentage"),
    ),
    (
        "AWS::EKS::Nodegroup",
        ("NodeRepairConfig",),
        ("MaxParallelNodesRepairedCount", "MaxParallelNodesRepairedPercentage"),
    ),
    # EC2 API, CreateRoute, CreateSubnet and CapacityReservationTarget.
    *(("AWS::EC2::Route", (), pair) for pair in combinations(_TARGETS, 2)),
    ("AWS::EC2::Subnet", (), ("AvailabilityZone", "AvailabilityZoneId")),
    (
        "AWS::EC2::LaunchTemplate",
        (
            *("LaunchTemplateData", "CapacityReservationSpecification"),
            "CapacityReservationTarget",
        ),
        ("CapacityReservationId", "CapacityReservationResourceGroupArn"),
    ),
)
# EKS API, CreateNodegroup: keys with these are refused; values as Kubernetes has them.
_RESERVED_LABEL = re.compile(r"(^|\.)(kubernetes\.io|k8s\.io|eks\.amazonaws\.com)/")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_LABEL_FORM = "use up to 63 letters, digits, '-', '_' and '.'"


def one_of_two(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse two properties of which EKS or EC2 takes one.

    EKS API, NodegroupUpdateConfig and LaunchTemplateSpecification; EC2 API, CreateRoute,
    CreateSubnet and CapacityReservationTarget.
    """
    for kind, path, names in _EITHER:
        for resource in templates.resources(kind):
            body = dict(resource.properties)
            for part in path:
                body = mapping(body.get(part)) or {}
            if not any(is_absent(body.get(name)) for name in names):
                who = "EKS refuses the node group" if "::EKS::" in kind else "EC2 refuses it"
                found = f"{' and '.join(names)} together: {who}"
                yield resource.find(Code.UNKNOWN_VALUE, path, found, "keep one of them")


def labels(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse labels and taints of a node group that EKS keeps for itself, or cannot hold.

    EKS User Guide, "Create a managed node group"; Kubernetes, "Labels and Selectors".
    """
    for group in templates.resources("AWS::EKS::Nodegroup"):
        for key, value in (mapping(group.properties.get("Labels")) or {}).items():
            if said := refused_label(key, text(value)):
                yield group.find(Code.UNKNOWN_VALUE, ("Labels", key), *said)
        for index, each in enumerate(items(group.properties.get("Taints")) or []):
            value = text((mapping(each) or {}).get("Value"))
            # EKS API, Taint: unlike a label's the value may be empty.
            if value and not is_placeholder(value) and not _LABEL_VALUE.fullmatch(value):
                found = f"{shown(value)} is no value of a taint"
                path = ("Taints", index, "Value")
                yield group.find(Code.UNKNOWN_VALUE, path, found, _LABEL_FORM)


def refused_label(key: str, value: str | None) -> tuple[str, str] | None:
    """Say what EKS refuses in a label of a node group, and the remedy.

    EKS API Reference, CreateNodegroup: unlike Kubernetes' own a value has one character or more.
    """
    if _RESERVED_LABEL.search(key):
        found = f"label {shown(key)} belongs to Kubernetes or EKS, which refuses it"
        return found, "use a key of your own"
    if value == "":
        return "no value, and EKS refuses the node group", 'give the label one, such as "true"'
    if value is not None and not _LABEL_VALUE.fullmatch(value):
        return f"{shown(value)} is no value of a label", _LABEL_FORM
    return None
