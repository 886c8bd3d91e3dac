"""Subnets of the VPC, and whether the nodes' addresses fit into them."""

import math
from dataclasses import dataclass
from ipaddress import IPv4Network

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
