"""Who reaches the cluster, and whether its address ranges work and suffice."""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, ip_network

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, choices, warning
from megatron_eks.plan.network import addresses, carve, makes_vpc, node_addresses, smallest_prefix

DOCUMENTATION_ACCOUNT = "111122223333"  # AWS's own examples
# RFC 5737: TEST-NET-1 to 3, for documentation.
_DOCUMENTATION_NETWORKS = tuple(
    map(IPv4Network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"))
)
_PRIVATE_NETWORKS = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))

_SHARED_NETWORK = IPv4Network("100.64.0.0/10")  # RFC 6598, used for large clusters

_NOWHERE = IPv4Network("0.0.0.0/32")

INTERFACE_ENDPOINTS = (
    *(
        "autoscaling",
        "ec2",
        "ec2messages",
        "ecr.api",
        "ecr.dkr",
        "eks",
        "eks-auth",
        "elasticloadbalancing",
    ),
    *("fsx", "kms", "logs", "monitoring", "secretsmanager", "ssm", "ssmmessages", "sts"),
)
# What people call them, or expect beside them.
_OTHER_ENDPOINTS = {
    "cloudwatch": "use logs and monitoring",
    "ecr": "use ecr.api and ecr.dkr, which go together",
    "elb": "use elasticloadbalancing",
    "s3": "remove it: a gateway endpoint for S3 is always there, and costs nothing",
}
# AWS accepts /16 to /28 (VPC User Guide, "VPC CIDR blocks"); below /22 no subnet holds a cluster.
_VPC_PREFIXES = range(16, 23)
_EXISTING_VPC_PREFIXES = range(16, 29)

# One of them is outside any VPC: EKS's two, and one that no VPC of /16 and smaller holds with them.
_SERVICE_RANGES = ("172.20.0.0/16", "10.100.0.0/16", "192.168.0.0/16")

# A public range of more addresses than this is nobody's office.
_WIDEST_PREFIX = 8
_OFFICE_PREFIX = 16
# Amazon EKS endpoints and quotas, "Public endpoint access CIDR ranges per cluster".
_MOST_RANGES = 40

_USUAL_PREFIX = 16

# Docker's bridge, which Cloud9 and SageMaker notebooks keep (EKS User Guide, "View Amazon EKS
# networking requirements for VPC and subnets").
_DOCKER_NETWORK = IPv4Network("172.17.0.0/16")
_SERVICE_PREFIXES = range(12, 25)  # EKS API reference, KubernetesNetworkConfigRequest


def check_access(config: ClusterConfig) -> Iterator[Finding]:
    """Yield what keeps people out, or lets everybody in."""
    access = config.access
    for index, arn in enumerate(access.admin_role_arns):
        if f":{DOCUMENTATION_ACCOUNT}:" in arn:
            yield _documentation(
                ("access", "admin_role_arns", index), arn, "the role that administers the cluster"
            )
    for index, cidr in enumerate(access.public_cidrs):
        yield from _public_cidr(("access", "public_cidrs", index), cidr)
    if len(access.public_cidrs) > _MOST_RANGES:
        found = f"{len(access.public_cidrs)} ranges"
        remedy = f"use at most {_MOST_RANGES}: EKS takes no more"
        yield Finding(Code.TOO_MANY_RANGES, ("access", "public_cidrs"), found, remedy)
    yield from _twice(("access", "admin_role_arns"), access.admin_role_arns)
    yield from _twice(("access", "public_cidrs"), access.public_cidrs)
    made = config.existing_cluster is None
    if made and not access.public_cidrs and access.private_route is None:
        yield Finding(
            Code.NO_WAY_IN,
            ("access", "public_cidrs"),
            "no address range: the API endpoint is private, and no way into the VPC is named",
            "list your address range, or set access.private_route: vpn, ssm_bastion or cloudshell",
        )


def _public_cidr(path: Path, cidr: str) -> Iterator[Finding]:
    network, problem = _network_of(path, cidr)
    outward = "use the public address of your office or VPN"
    if problem:
        yield problem
    elif any(network.subnet_of(private) for private in _PRIVATE_NETWORKS):
        found = f"{cidr} is private; nobody reaches a public endpoint from it, and EKS refuses it"
        yield Finding(Code.CIDR, path, found, outward)
    elif network.prefixlen < _WIDEST_PREFIX:
        whom = "half the world" if network.prefixlen else "the whole internet"
        found, remedy = f"{cidr} lets {whom} try to log in", "list the ranges people connect from"
        yield Finding(Code.PUBLIC_ACCESS_TOO_WIDE, path, found, remedy)
    elif network.prefixlen < _OFFICE_PREFIX and network.is_global:
        found = f"{cidr} lets {network.num_addresses} addresses try to log in"
        remedy = "list the ranges people connect from: an office or VPN has /24 to /32"
        yield warning(Code.PUBLIC_ACCESS_TOO_WIDE, path, found, remedy)
    elif any(network.subnet_of(known) for known in _DOCUMENTATION_NETWORKS):
        yield _documentation(path, cidr, "the address range people connect from")
    elif not network.is_global or network.is_multicast:
        found = f"nobody connects from an address of {cidr}"
        yield Finding(Code.CIDR, path, found, outward)


def _twice(path: Path, entries: Sequence[str]) -> Iterator[Finding]:
    for index, entry in enumerate(entries):
        if entry in entries[:index]:
            found, remedy = f"{entry!r} is listed twice", "list it once"
            yield Finding(Code.DUPLICATE_NAME, (*path, index), found, remedy)


def _documentation(path: Path, value: str, meaning: str) -> Finding:
    found = f"{value} is a documentation value"
    remedy = f"replace it with {meaning} before deploying"
    return warning(Code.DOCUMENTATION_VALUE, path, found, remedy)


def _network_of(path: Path, cidr: str) -> tuple[IPv4Network, Finding | None]:
    """Parse an address range, and say what is wrong with it if it is not one."""
    try:
        network = ip_network(cidr, strict=False)
    except ValueError:
        found, remedy = (
            f"{cidr!r} is not an address range",
            "use an IPv4 range such as 203.0.113.0/24",
        )
    else:
        if str(network) == cidr and isinstance(network, IPv4Network):
            return network, None
        if not isinstance(network, IPv4Network):
            found, remedy = f"{cidr!r} is not IPv4", "use an IPv4 range"
        elif str(network).split("/")[0] != cidr.split("/", maxsplit=1)[0]:
            found, remedy = f"{cidr!r} has bits set behind its prefix", f"use {network}"
        elif "/" not in cidr and "public_cidrs" not in path:
            found = f"{cidr} is one address, without a prefix"
            remedy = f"use {ip_network(f'{cidr}/{_USUAL_PREFIX}', strict=False)}"
        else:
            found, remedy = f"{cidr!r} is not the form that AWS reads", f"use {network}"
    return _NOWHERE, Finding(Code.CIDR, path, found, remedy)


def check_network(config: ClusterConfig) -> Iterator[Finding]:
    """Yield what AWS refuses about the ranges, and whether the nodes fit into them."""
    network = config.network
    vpc, vpc_problem = _network_of(("network", "vpc_cidr"), network.vpc_cidr)
    service, service_problem = _network_of(("network", "service_cidr"), network.service_cidr)
    yield from (problem for problem in (vpc_problem, service_problem) if problem)
    yield from _endpoints(config)
    if vpc_problem or service_problem:
        return
    known = makes_vpc(config) or "vpc_cidr" in network.model_fields_set
    problem = _vpc_range(vpc, made=makes_vpc(config)) if known else None
    if problem:
        yield problem
        return
    if known and vpc.overlaps(_DOCKER_NETWORK):
        found = f"{vpc} overlaps {_DOCKER_NETWORK}, where Docker has its bridge"
        remedy = "use another range, or people cannot reach nodes from Cloud9 and SageMaker"
        yield warning(Code.CIDR_OVERLAP, ("network", "vpc_cidr"), found, remedy)
    inside = any(service.subnet_of(private) for private in _PRIVATE_NETWORKS)
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


def _endpoints(config: ClusterConfig) -> Iterator[Finding]:
    names = config.network.interface_endpoints
    for index, name in enumerate(names):
        if name not in INTERFACE_ENDPOINTS:
            path: Path = ("network", "interface_endpoints", index)
            short = name.removeprefix(f"com.amazonaws.{config.region}.")
            remedy = _OTHER_ENDPOINTS.get(short) or choices(short, INTERFACE_ENDPOINTS)
            yield Finding(Code.NOT_ALLOWED, path, f"unknown endpoint {name!r}", remedy)
    yield from _twice(("network", "interface_endpoints"), names)


def _vpc_range(vpc: IPv4Network, *, made: bool) -> Finding | None:
    """Say what is wrong with the range of a VPC."""
    path: Path = ("network", "vpc_cidr")
    usable = (*_PRIVATE_NETWORKS, _SHARED_NETWORK)
    if made and not any(vpc.subnet_of(each) for each in usable):
        found = f"{vpc} is not private, so pods could not reach the real owners of its addresses"
        remedy = "use a range inside 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
        return Finding(Code.CIDR, path, found, remedy)
    prefixes = _VPC_PREFIXES if made else _EXISTING_VPC_PREFIXES
    if vpc.prefixlen not in prefixes:
        remedy = f"use a prefix from /{prefixes[0]} to /{prefixes[-1]}"
        return Finding(Code.CIDR, path, f"a VPC cannot be {vpc}", remedy)
    return None


def _address_budget(config: ClusterConfig) -> Iterator[Finding]:
    """Compare the fullest zone with its private subnet; all zones have subnets of one size."""
    zones = config.availability_zones
    nodes = dict.fromkeys(zones, 0)
    for pool in config.gpu_pools:
        nodes[pool.availability_zone] = nodes.get(pool.availability_zone, 0) + pool.max_nodes
    fullest = max(zones, key=lambda zone: nodes[zone])
    subnet = next(s for s in carve(config.network.vpc_cidr, zones) if s.zone == fullest)
    # System nodes spread over all zones; in the worst case they all stand in this one.
    needed = node_addresses(nodes[fullest] + config.system_nodes.count)
    usable = max(0, addresses(subnet.private_cidr))
    if needed > usable:
        found = (
            f"{needed} addresses for nodes and pods of {fullest} do not fit into "
            f"{subnet.private_cidr} ({usable} usable)"
        )
        prefix = smallest_prefix(needed, len(zones))
        remedy = (
            f"use a VPC of /{prefix} or larger" if prefix in _VPC_PREFIXES else "lower max_nodes"
        )
        yield Finding(Code.SUBNET_TOO_SMALL, ("network", "vpc_cidr"), found, remedy)
