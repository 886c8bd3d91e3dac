"""Where stacks put what they make: a VPC, its private subnets, and the nodes' security group."""

from collections.abc import Mapping
from dataclasses import dataclass

from megatron_eks.plan.network import NetworkPlan


@dataclass(frozen=True)
class Place:
    """A VPC, made by the Network stack or brought along."""

    vpc_id: str
    private_subnets: Mapping[str, str]
    """Zone to subnet id; nodes, file systems and control plane live here."""
    node_security_group: str
    """Every node carries it; members reach each other on every port and over EFA."""


def existing_place(network: NetworkPlan) -> Place | None:
    """Return the place of a cluster that exists; None where nobody named it."""
    existing = network.existing
    if existing is None or existing.node_security_group_id is None:
        return None
    return Place(existing.vpc_id, existing.private_subnets, existing.node_security_group_id)
