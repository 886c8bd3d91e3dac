"""Who may administer the cluster and reach its API endpoint, and what is refused of it."""

from collections.abc import Sequence
from ipaddress import IPv4Network

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, warning
from megatron_eks.plan.cluster.network import PRIVATE_NETWORKS, check_listed_once, parse_network
from megatron_eks.plan.cluster.zones import check_partition

DOCUMENTATION_ACCOUNT = "111122223333"  # AWS's own examples
# RFC 5737: TEST-NET-1 to 3, for documentation.
_TEST_NETWORKS = [*map(IPv4Network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"))]


# A public range of more addresses than this is nobody's office.
_WIDEST_PREFIX = 8
_OFFICE_PREFIX = 16
# Amazon EKS endpoints and quotas, "Public endpoint access CIDR ranges per cluster".
_MOST_RANGES = 40

_LONGEST_ROLE, _LONGEST_ROLE_PATH = 64, 512  # IAM API, Role: RoleName and Path
_SSO_PATH = "aws-reserved/sso.amazonaws.com/"


def check_access(config: ClusterConfig) -> Findings:
    """Yield what keeps people out, or lets everybody in."""
    access = config.access
    if config.permissions_boundary_arn is not None:
        place = ("permissions_boundary_arn",)
        yield from check_partition(place, config.permissions_boundary_arn, config.region)
    whose = "the role that administers the cluster"
    yield from check_roles(("access", "admin_role_arns"), access.admin_role_arns, whose)
    for index, cidr in enumerate(access.public_cidrs):
        yield from _public_cidr(("access", "public_cidrs", index), cidr)
    if len(access.public_cidrs) > _MOST_RANGES:
        found = f"{len(access.public_cidrs)} ranges"
        remedy = f"use at most {_MOST_RANGES}: EKS takes no more"
        yield Finding(Code.TOO_MANY_RANGES, ("access", "public_cidrs"), found, remedy)
    yield from check_listed_once(("access", "admin_role_arns"), access.admin_role_arns)
    yield from check_listed_once(("access", "public_cidrs"), access.public_cidrs)
    if config.existing_cluster is None and not access.public_cidrs and access.private_route is None:
        found = "no address range: the API endpoint is private, and no way into the VPC is named"
        remedy = "list your range, or set access.private_route: vpn, ssm_bastion or cloudshell"
        yield Finding(Code.NO_WAY_IN, ("access", "public_cidrs"), found, remedy)


def check_roles(path: Path, roles: Sequence[str], whose: str) -> Findings:
    """Yield roles that nobody assumes, or that stand for another."""
    for index, arn in enumerate(roles):
        if f":{DOCUMENTATION_ACCOUNT}:" in arn:
            yield _documentation((*path, index), arn, whose)
        yield from _role((*path, index), arn)


def _public_cidr(path: Path, cidr: str) -> Findings:
    network, problem = parse_network(path, cidr)
    outward = "use the public address of your office or VPN"
    if problem:
        yield problem
    elif any(network.subnet_of(private) for private in PRIVATE_NETWORKS):
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
    elif any(network.subnet_of(known) for known in _TEST_NETWORKS):
        yield _documentation(path, cidr, "the address range people connect from")
    elif not network.is_global or network.is_multicast:
        yield Finding(Code.CIDR, path, f"nobody connects from an address of {cidr}", outward)


def _documentation(path: Path, value: str, meaning: str) -> Finding:
    remedy = f"replace it with {meaning} before deploying"
    return warning(Code.DOCUMENTATION_VALUE, path, f"{value} is a documentation value", remedy)


def _role(path: Path, arn: str) -> Findings:
    place, _, name = arn.split(":role/", 1)[1].rpartition("/")
    if not name or len(name) > _LONGEST_ROLE or len(place) > _LONGEST_ROLE_PATH:
        found = f"the last part names the role with {len(name)} characters; IAM takes 1 to 64"
        remedy = "use the ARN that `aws iam get-role` prints"
    elif place.startswith("aws-service-role/"):
        found = f"{name} belongs to a service: nobody can assume it"
        remedy = "use a role that people assume"
    elif name.startswith("AWSReservedSSO_") and not place.startswith(_SSO_PATH.rstrip("/")):
        # EKS User Guide, "Create access entries": a role's path belongs to the ARN, unlike in the
        # aws-auth ConfigMap.
        found = f"{name} is a role of IAM Identity Center, whose ARN has a path"
        remedy = f"use ...:role/{_SSO_PATH}[REGION/]{name}, as `aws iam get-role` prints it"
    else:
        return
    yield Finding(Code.ROLE, path, found, remedy)
