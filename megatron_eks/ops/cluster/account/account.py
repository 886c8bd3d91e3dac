"""An account to look into: what several checks need is asked for once."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from botocore.client import BaseClient
from botocore.exceptions import ClientError

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.outputs import Outputs
from megatron_eks.ops.aws.session import Aws, error_code, explained, if_there
from megatron_eks.ops.checks import in_aws
from megatron_eks.ops.cluster.node_groups import NodeGroup, NodeGroups
from megatron_eks.plan.cluster.cluster import ClusterPlan

_Found = TypeVar("_Found")
Described = Mapping[str, Any]
"""A thing as AWS describes it."""


@dataclass
class Account:
    """An account, and the cluster that is or will be in it; None is what is not there."""

    aws: Aws
    plan: ClusterPlan
    outputs: Outputs
    now: datetime
    check: str = ""
    """The name of the check that asks."""
    unknown: dict[str, list[Finding]] = field(default_factory=lambda: defaultdict(list))
    """What could not be looked up, by the name of the check that would have needed it."""

    def client(self, service: str) -> BaseClient:
        """Return the client of a service."""
        return self.aws.client(service)

    def ask(
        self, what: str, question: Callable[[], _Found], check: str | None = None
    ) -> _Found | None:
        """Return the answer; None where AWS refuses it, which is noted at the check.

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
            self.note(f"{what}: {why}", failure.remedy, check)
            return None

    def note(self, found: str, remedy: str, check: str | None = None) -> None:
        """Note at a check what is not known."""
        name = check or self.check
        unknown = in_aws(Code.NOT_CHECKED, (name,), found, remedy, Level.WARNING)
        self.unknown[name].append(unknown)

    def each(
        self,
        what: str,
        names: Iterable[str],
        find: Callable[[str], _Found],
        check: str | None = None,
    ) -> dict[str, _Found]:
        """Look each of some things up; those that nobody may look up are left out."""
        found: dict[str, _Found] = {}
        for name in names:

            def look(name: str = name) -> None:
                found[name] = find(name)

            self.ask(f"{what} {name}", look, check)
        return found

    @cached_property
    def caller(self) -> str:
        """The ARN of who asks."""
        return str(self.client("sts").get_caller_identity()["Arn"])

    @cached_property
    def cluster(self) -> Described | None:
        """The EKS cluster."""
        describe, name = self.client("eks").describe_cluster, self.plan.eks_name
        found = self.ask(
            "the EKS cluster",
            lambda: if_there(describe, "ResourceNotFoundException", name=name),
            "EKS cluster",
        )
        return found and dict(found["cluster"])

    @cached_property
    def subnets(self) -> dict[str, Described]:
        """Those that the file names or that the cluster has, by identifier."""
        existing, cluster = self.plan.network.existing, self.cluster or {}
        wanted = {*(existing.private_subnets.values() if existing else ())}
        wanted |= {*cluster.get("resourcesVpcConfig", {}).get("subnetIds", ())}
        if not wanted:
            return {}
        filters = [{"Name": "subnet-id", "Values": sorted(wanted)}]
        describe = self.client("ec2").describe_subnets
        what = "subnets and their free addresses"
        answer = self.ask(what, lambda: describe(Filters=filters), "free addresses")
        return {each["SubnetId"]: each for each in answer["Subnets"]} if answer else {}

    def groups(self, name: str, *values: str) -> list[Described]:
        """Return the security groups that exist, by a filter of EC2 such as `group-id`."""
        filters = [{"Name": name, "Values": values}]
        describe = self.client("ec2").describe_security_groups
        answer = self.ask("security groups", lambda: describe(Filters=filters))
        return list(answer["SecurityGroups"]) if answer else []

    @cached_property
    def node_groups(self) -> dict[str, NodeGroup | None]:
        """Those of the pools."""
        if "Cluster" not in self.plan.stacks:
            return {}
        pools = (each.name for each in self.plan.pools)
        find = NodeGroups(self.plan.eks_name, self.aws).find
        return self.each("the node group", pools, find, "node groups")

    @cached_property
    def file_systems(self) -> dict[str, Described | None]:
        """Those of FSx that the outputs name."""
        describe = self.client("fsx").describe_file_systems

        def find(number: str) -> Described | None:
            answer = if_there(describe, "FileSystemNotFound", FileSystemIds=[number])
            return answer and dict(answer["FileSystems"][0])

        known = [each.id for each in self.outputs.file_systems if not each.preview]
        return self.each("the file system", known, find, "file systems")
