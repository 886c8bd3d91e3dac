"""The plan of the VPC and its subnets: made, or brought along."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

from megatron_eks.config.cluster import ClusterConfig

# The VPC CNI keeps this many addresses on a node, and this many spare (its WARM_IP_TARGET and
# MINIMUM_IP_TARGET); the add-on is configured with the same two numbers.
MINIMUM_IPS_PER_NODE = 16
WARM_IPS_PER_NODE = 4

# AWS keeps five addresses of a subnet; EKS, FSx, NAT and endpoints take some tens.
_RESERVED = 5 + 64


@dataclass(frozen=True)
class Subnet:
    """The subnets of one availability zone."""

    zone: str
    private_cidr: str
    public_cidr: str


def carve(vpc_cidr: str, zones: tuple[str, ...]) -> tuple[Subnet, ...]:
    """Give each zone a fixed slot of the VPC, so that a further zone moves no other.

    A quarter (up to three zones) or an eighth of the VPC is a zone's private subnet; the last
    slot holds the small public ones.
    """
    vpc = IPv4Network(vpc_cidr)
    slots = list(vpc.subnets(prefixlen_diff=2 if len(zones) <= 3 else 3))  # noqa: PLR2004 -- above
    publics = list(slots[-1].subnets(prefixlen_diff=3))
    return tuple(
        Subnet(zone, str(private), str(public))
        for zone, private, public in zip(zones, slots, publics, strict=False)
    )


def addresses(cidr: str) -> int:
    """Count the addresses that nodes and pods of a subnet can have."""
    return IPv4Network(cidr).num_addresses - _RESERVED


def node_addresses(nodes: int) -> int:
    """Count the addresses that this many nodes take: their own, and those kept for pods."""
    return nodes * (1 + MINIMUM_IPS_PER_NODE + WARM_IPS_PER_NODE)


def smallest_prefix(needed: int, zones: int) -> int:
    """Return the longest VPC prefix whose private subnets hold this many addresses."""
    slot_bits = 2 if zones <= 3 else 3  # noqa: PLR2004 -- as in `carve`
    return 32 - math.ceil(math.log2(needed + _RESERVED)) - slot_bits


# Where a VPC's addresses can be when nobody says: RFC 1918, and RFC 6598 as large clusters use it.
PRIVATE_RANGES = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")

# EKS takes one of these where nobody says (EKS API, KubernetesNetworkConfigRequest).
EKS_SERVICE_RANGES = ("10.100.0.0/16", "172.20.0.0/16")


@dataclass(frozen=True)
class ExistingNetwork:
    """A VPC that this project did not make."""

    vpc_id: str
    private_subnets: Mapping[str, str]
    """Zone to subnet id."""
    node_security_group_id: str | None
    """The group of nodes that exist already; None: one is made."""


@dataclass(frozen=True)
class NetworkPlan:
    """The VPC."""

    vpc_cidrs: tuple[str, ...]
    """The range of nodes and pods; every private one where nobody said."""
    service_cidrs: tuple[str, ...]
    """The range of Services; both of EKS's defaults where nobody said."""
    subnets: tuple[Subnet, ...]
    """What is made; none in an existing VPC."""
    nat_zones: tuple[str, ...]
    """Zones whose public subnet holds a NAT gateway; the others route through the first."""
    interface_endpoints: tuple[str, ...]
    existing: ExistingNetwork | None

    def nat_zone(self, zone: str) -> str | None:
        """Return the zone whose NAT gateway a zone's private subnet uses, if there is one."""
        return zone if zone in self.nat_zones else next(iter(self.nat_zones), None)

    @property
    def endpoint_zones(self) -> tuple[str, ...]:
        """Zones in which interface endpoints have an address."""
        if self.existing is not None:
            return tuple(self.existing.private_subnets)
        return tuple(subnet.zone for subnet in self.subnets)


def makes_vpc(config: ClusterConfig) -> bool:
    """Tell whether the VPC is this project's."""
    return config.network.vpc_id is None and config.existing_cluster is None


def plan_network(config: ClusterConfig) -> NetworkPlan:
    """Plan the VPC of a configuration that has passed the checks."""
    network = config.network
    zones = config.availability_zones
    nat_zones: dict[object, tuple[str, ...]] = {0: (), 1: zones[:1], "per_zone": zones}
    made = makes_vpc(config)
    return NetworkPlan(
        vpc_cidrs=vpc_cidrs(config),
        service_cidrs=service_cidrs(config),
        subnets=carve(network.vpc_cidr, zones) if made else (),
        nat_zones=nat_zones[network.nat_gateways] if made else (),
        interface_endpoints=network.interface_endpoints,
        existing=ExistingNetwork(
            network.vpc_id, network.private_subnets, network.node_security_group_id
        )
        if network.vpc_id is not None
        else None,
    )


def vpc_cidrs(config: ClusterConfig) -> tuple[str, ...]:
    """Return the ranges in which nodes, pods and the API endpoint have their addresses."""
    known = makes_vpc(config) or "vpc_cidr" in config.network.model_fields_set
    return (config.network.vpc_cidr,) if known else PRIVATE_RANGES


def service_cidrs(config: ClusterConfig) -> tuple[str, ...]:
    """Return the ranges in which Services have their addresses."""
    known = config.existing_cluster is None or "service_cidr" in config.network.model_fields_set
    return (config.network.service_cidr,) if known else EKS_SERVICE_RANGES
