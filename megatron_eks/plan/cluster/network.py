"""The VPC: its subnets and address ranges, made or brought along."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network

from megatron_eks.catalog.regions import INTERFACE_ENDPOINTS, OTHER_ENDPOINTS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, choices

# The VPC CNI keeps this many addresses on a node, and this many spare (its WARM_IP_TARGET and
# MINIMUM_IP_TARGET); the add-on is configured with the same two numbers.
MINIMUM_IPS_PER_NODE = 16
WARM_IPS_PER_NODE = 4

# AWS keeps five addresses of a subnet; EKS, FSx, NAT and endpoints take some tens.
_RESERVED = 5 + 64

# Where a VPC's addresses can be when nobody says: RFC 1918, and RFC 6598 as large clusters use it.
PRIVATE_RANGES = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")

# EKS takes one of these where nobody says (EKS API, KubernetesNetworkConfigRequest).
EKS_SERVICE_RANGES = ("10.100.0.0/16", "172.20.0.0/16")
PRIVATE_NETWORKS = tuple(map(IPv4Network, PRIVATE_RANGES[:3]))
_NOWHERE = IPv4Network("0.0.0.0/32")

# AWS accepts /16 to /28 (VPC User Guide, "VPC CIDR blocks"); below /22 no subnet holds a cluster.
_VPC_PREFIXES = range(16, 23)
_EXISTING_VPC_PREFIXES = range(16, 29)

# One of them is outside any VPC: EKS's two, and one that no VPC of /16 and smaller holds with them.
_SERVICE_RANGES = (*reversed(EKS_SERVICE_RANGES), "192.168.0.0/16")
_USUAL_PREFIX = 16
_SERVICE_PREFIXES = range(12, 25)  # EKS API reference, KubernetesNetworkConfigRequest


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


def nodes_by_zone(config: ClusterConfig, zones: Iterable[str]) -> dict[str, int]:
    """Count the most nodes that each zone may have, all system nodes in each of them."""
    nodes = dict.fromkeys(zones, config.system_nodes.count)
    for pool in config.gpu_pools:
        nodes[pool.availability_zone] = nodes.get(pool.availability_zone, 0) + pool.max_nodes
    return nodes


def smallest_prefix(needed: int, zones: int) -> int:
    """Return the longest VPC prefix whose private subnets hold this many addresses."""
    slot_bits = 2 if zones <= 3 else 3  # noqa: PLR2004 -- as in `carve`
    return 32 - math.ceil(math.log2(needed + _RESERVED)) - slot_bits


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
    made, existing = makes_vpc(config), None
    if network.vpc_id is not None:
        group = network.node_security_group_id
        existing = ExistingNetwork(network.vpc_id, network.private_subnets, group)
    return NetworkPlan(
        vpc_cidrs=vpc_cidrs(config),
        service_cidrs=service_cidrs(config),
        subnets=carve(network.vpc_cidr, zones) if made else (),
        nat_zones=nat_zones[network.nat_gateways] if made else (),
        interface_endpoints=network.interface_endpoints,
        existing=existing,
    )


def vpc_cidrs(config: ClusterConfig) -> tuple[str, ...]:
    """Return the ranges in which nodes, pods and the API endpoint have their addresses."""
    known = makes_vpc(config) or "vpc_cidr" in config.network.model_fields_set
    return (config.network.vpc_cidr,) if known else PRIVATE_RANGES


def service_cidrs(config: ClusterConfig) -> tuple[str, ...]:
    """Return the ranges in which Services have their addresses."""
    known = config.existing_cluster is None or "service_cidr" in config.network.model_fields_set
    return (config.network.service_cidr,) if known else EKS_SERVICE_RANGES


def check_listed_once(path: Path, entries: Sequence[str], remedy: str = "list it once") -> Findings:
    """Yield entries of a list that stand above them too."""
    for index, entry in enumerate(entries):
        if entry in entries[:index]:
            yield Finding(Code.DUPLICATE_NAME, (*path, index), f"{entry!r} is listed twice", remedy)


def parse_network(path: Path, cidr: str) -> tuple[IPv4Network, Finding | None]:
    """Parse an address range, and say what is wrong with it if it is not one."""
    try:
        network = ip_network(cidr, strict=False)
    except ValueError:
        network = None
    if isinstance(network, IPv4Network) and str(network) == cidr:
        return network, None
    found, remedy = f"{cidr!r} is no IPv4 range", "use one such as 203.0.113.0/24"
    if isinstance(network, IPv4Network):
        alone = "/" not in cidr and "public_cidrs" not in path
        found = f"{cidr!r} is one address" if alone else f"{cidr!r} is not how AWS writes a range"
        wide = ip_network(f"{cidr}/{_USUAL_PREFIX}", strict=False) if alone else network
        remedy = f"use {wide}"
    return _NOWHERE, Finding(Code.CIDR, path, found, remedy)


def check_network(config: ClusterConfig) -> Findings:
    """Yield what AWS refuses about the ranges, and whether the nodes fit into them."""
    network = config.network
    vpc, vpc_problem = parse_network(("network", "vpc_cidr"), network.vpc_cidr)
    service, service_problem = parse_network(("network", "service_cidr"), network.service_cidr)
    yield from (problem for problem in (vpc_problem, service_problem) if problem)
    names = config.network.interface_endpoints
    for index, name in enumerate(names):
        if name not in INTERFACE_ENDPOINTS:
            path: Path = ("network", "interface_endpoints", index)
            short = name.removeprefix(f"com.amazonaws.{config.region}.")
            remedy = OTHER_ENDPOINTS.get(short) or choices(short, INTERFACE_ENDPOINTS)
            yield Finding(Code.NOT_ALLOWED, path, f"unknown endpoint {name!r}", remedy)
    yield from check_listed_once(("network", "interface_endpoints"), names)
    if vpc_problem or service_problem:
        return
    known = makes_vpc(config) or "vpc_cidr" in network.model_fields_set
    if known and (problem := _vpc_range(vpc, made=makes_vpc(config))):
        yield problem
        return
    inside = any(service.subnet_of(private) for private in PRIVATE_NETWORKS)
    if service.prefixlen not in _SERVICE_PREFIXES or not inside:
        found = f"EKS does not accept {service} for Services"
        remedy = "use a range from /12 to /24 inside 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
        yield Finding(Code.CIDR, ("network", "service_cidr"), found, remedy)
    if known and vpc.overlaps(service):
        found = f"{service} overlaps the VPC's {vpc}"
        free = next(each for each in _SERVICE_RANGES if not vpc.overlaps(IPv4Network(each)))
        remedy = f"use a range outside the VPC, such as {free}"
        yield Finding(Code.CIDR_OVERLAP, ("network", "service_cidr"), found, remedy)
    if makes_vpc(config):
        yield from _address_budget(config)


def _vpc_range(vpc: IPv4Network, *, made: bool) -> Finding | None:
    path: Path = ("network", "vpc_cidr")
    if made and not any(vpc.subnet_of(IPv4Network(each)) for each in PRIVATE_RANGES):
        found = f"{vpc} is not private, so pods could not reach the real owners of its addresses"
        remedy = "use a range inside 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
        return Finding(Code.CIDR, path, found, remedy)
    prefixes = _VPC_PREFIXES if made else _EXISTING_VPC_PREFIXES
    if vpc.prefixlen not in prefixes:
        remedy = f"use a prefix from /{prefixes[0]} to /{prefixes[-1]}"
        return Finding(Code.CIDR, path, f"a VPC cannot be {vpc}", remedy)
    return None


def _address_budget(config: ClusterConfig) -> Findings:
    """Compare the fullest zone with its private subnet; all zones have subnets of one size."""
    zones = config.availability_zones
    # System nodes spread over all zones; in the worst case they all stand in this one.
    nodes = nodes_by_zone(config, zones)
    fullest = max(zones, key=lambda zone: nodes[zone])
    subnet = next(s for s in carve(config.network.vpc_cidr, zones) if s.zone == fullest)
    needed = node_addresses(nodes[fullest])
    usable = max(0, addresses(subnet.private_cidr))
    if needed > usable:
        found = f"{fullest} needs {needed} addresses, and {subnet.private_cidr} has {usable} usable"
        prefix, remedy = smallest_prefix(needed, len(zones)), "lower max_nodes"
        if prefix in _VPC_PREFIXES:
            remedy = f"use a VPC of /{prefix} or larger"
        yield Finding(Code.SUBNET_TOO_SMALL, ("network", "vpc_cidr"), found, remedy)
