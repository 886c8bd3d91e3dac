"""What was read of an account; None where there is no such thing, or nobody may look."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TypeVar

from botocore.client import BaseClient
from botocore.exceptions import ClientError

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.outputs import Outputs
from megatron_eks.ops.aws.session import Aws, error_code, explained
from megatron_eks.ops.checks import Unknown
from megatron_eks.ops.cluster.capacity import Reservation
from megatron_eks.ops.cluster.node_groups import NodeGroup
from megatron_eks.plan.cluster.cluster import ClusterPlan


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    account: str
    arn: str

    @property
    def is_root(self) -> bool:
        """Whether it is the root of the account, whom no policy describes."""
        return self.arn.endswith(":root")


@dataclass(frozen=True)
class Denied:
    """An action that a principal's policies do not allow."""

    principal: str
    action: str
    what_for: str
    explicit: bool


@dataclass(frozen=True)
class Quota:
    """What an account may have of something."""

    name: str
    service: str
    code: str
    needed: float
    used: float = 0
    allowed: float = 0


@dataclass(frozen=True)
class Subnet:
    """A subnet that exists."""

    id: str
    vpc: str
    zone: str
    free: int
    """Addresses that nobody has."""


@dataclass(frozen=True)
class Rule:
    """A rule of a security group, for one peer."""

    protocol: str
    first: int
    last: int
    peer: str
    """A group, a range of addresses, or a prefix list."""

    def covers(self, port: int) -> bool:
        """Say whether it lets TCP through on this port."""
        return self.protocol == "-1" or (self.protocol == "tcp" and self.first <= port <= self.last)


@dataclass(frozen=True)
class Group:
    """A security group."""

    id: str
    vpc: str
    ingress: tuple[Rule, ...]
    egress: tuple[Rule, ...]


@dataclass(frozen=True)
class FileSystem:
    """An FSx file system."""

    id: str
    state: str
    reason: str
    kind: str
    capacity_gib: int
    dns_name: str
    mount_name: str
    subnets: tuple[str, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class EksCluster:
    """The EKS cluster."""

    status: str
    version: str
    endpoint: str
    certificate: str
    vpc: str
    subnets: tuple[str, ...]
    public: bool
    public_cidrs: tuple[str, ...]
    issues: tuple[str, ...]
    unreachable: str | None = None
    """Why its API server does not answer from here; None: it does, or nobody tried."""


@dataclass(frozen=True)
class Addon:
    """An add-on that is installed."""

    status: str
    version: str
    issues: tuple[str, ...]


@dataclass
class Facts:
    """Everything that was read."""

    caller: Caller
    own_address: str | None = None
    denied: tuple[Denied, ...] = ()
    quotas: tuple[Quota, ...] = ()
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Instance type to the zones of the region that offer it."""
    reservations: Mapping[str, Reservation | None] = field(default_factory=dict)
    vpcs: Mapping[str, bool] = field(default_factory=dict)
    """VPCs that the file names, and whether they exist."""
    subnets: Mapping[str, Subnet] = field(default_factory=dict)
    """By identifier: those that the file names, or that the cluster has."""
    groups: Mapping[str, Group] = field(default_factory=dict)
    default_group: Group | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    """State of the keys that the file names; empty where there is no such key."""
    taken: tuple[Finding, ...] = ()
    """Names that belong to living stacks of others."""
    support_ends: date | None = None
    event_ttl: tuple[str, str] = ("", "")
    """The least and the most that EKS lets events live, such as `1h`; empty if it does not say."""
    offers_version: bool = True
    file_systems: Mapping[str, FileSystem | None] = field(default_factory=dict)
    images: Mapping[str, bool] = field(default_factory=dict)
    """URIs of our repositories in the outputs, and whether ECR has them."""
    out_of_reach: tuple[str, ...] = ()
    """URIs of job files that the deployed role of the jobs does not cover."""
    cluster: EksCluster | None = None
    addons: Mapping[str, Addon | None] = field(default_factory=dict)
    node_groups: Mapping[str, NodeGroup | None] = field(default_factory=dict)
    unknown: list[Unknown] = field(default_factory=list)


@dataclass(frozen=True)
class Subject:
    """An account, and the cluster that is or will be in it: what checks are given."""

    facts: Facts
    plan: ClusterPlan
    outputs: Outputs
    now: datetime


_Found = TypeVar("_Found")


class Asking:
    """Questions to AWS, and what stayed without an answer."""

    def __init__(self, aws: Aws, unknown: list[Unknown]) -> None:
        self.aws = aws
        self.check = ""
        """The name of the check that is asked for."""
        self._unknown = unknown

    def __call__(self, what: str, question: Callable[[], _Found]) -> _Found | None:
        """Return the answer; None where AWS refuses it, which is noted.

        Raises what boto3 raises where no other question would be answered either.
        """
        try:
            return question()
        except ClientError as error:
            failure = explained(error)
            if failure.finding is Code.CREDENTIALS:
                raise
            why = failure.found
            if error_code(error) == "UnauthorizedOperation":
                # EC2 names no action in clear; it is that of the request.
                why = f"not allowed: ec2:{error.operation_name}"
            self.note(what, why, failure.remedy)
            return None

    def note(self, what: str, why: str, remedy: str) -> None:
        """Note what is not known."""
        self._unknown.append(Unknown(self.check, f"{what}: {why}", remedy))

    def client(self, service: str) -> BaseClient:
        """Return the client of a service."""
        return self.aws.client(service)
