"""Reads what an account may take and do: quotas, zones, reservations, permissions."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from megatron_eks.catalog.instances import system_node_size
from megatron_eks.catalog.permissions import NEEDS, Need, Principal
from megatron_eks.catalog.regions import PARTITIONS
from megatron_eks.ops.aws.cdk import is_bootstrapped
from megatron_eks.ops.aws.session import if_there
from megatron_eks.ops.aws.tools import caller_role
from megatron_eks.ops.cluster.account.facts import Asking, Caller, Denied, Quota
from megatron_eks.ops.cluster.capacity import UNKNOWN_CODE, offers_of, quota_of
from megatron_eks.plan.cluster.cluster import ClusterPlan

_STANDARD = ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "L-1216C47A")
_VPCS = ("VPCs per Region", "vpc", "L-F678F1CE")
_ADDRESSES = ("EC2-VPC Elastic IPs", "ec2", "L-0263D0A3")


def offers(ask: Asking, plan: ClusterPlan) -> dict[str, tuple[str, ...]]:
    """Return the zones that offer each instance type of a cluster."""
    types = dict.fromkeys(
        (*(pool.instance.name for pool in plan.pools), plan.system_nodes.instance_type)
    )
    return offers_of(types, ask.client("ec2"))


def quotas(ask: Asking, plan: ClusterPlan, *, made: bool) -> tuple[Quota, ...]:
    """Return the quotas that a cluster needs; what is `made` has its VPC and addresses already."""
    found: list[Quota] = []
    for (name, code), vcpus in _vcpus(plan).items():
        if code == UNKNOWN_CODE:
            remedy = "look at the EC2 quotas in the Service Quotas console"
            ask.note(f"the quota {name!r}", "its code is not known", remedy)
            continue
        found += _quota(ask, Quota(name, "ec2", code, needed=vcpus))
    if "Network" in plan.stacks and not made and plan.network.subnets:
        found += _network(ask, plan)
    return tuple(found)


def _vcpus(plan: ClusterPlan) -> dict[tuple[str, str], int]:
    """Sum the vCPUs that count against each quota."""
    needed: dict[tuple[str, str], int] = {}
    for pool in plan.pools:
        # Instances of a Capacity Block are bought with it.
        if pool.capacity.kind != "capacity_block":
            key = quota_of(pool)
            needed[key] = needed.get(key, 0) + pool.instance.vcpus * pool.max_nodes
    if "Cluster" in plan.stacks:
        vcpus, _ = system_node_size(plan.system_nodes.instance_type)
        needed[_STANDARD] = vcpus * plan.system_nodes.count
    return needed


def _quota(ask: Asking, quota: Quota) -> Iterator[Quota]:
    """Yield a quota with what the account has of it."""

    def look() -> float:
        client = ask.client("service-quotas")
        found = client.get_service_quota(ServiceCode=quota.service, QuotaCode=quota.code)
        return float(found["Quota"]["Value"])

    allowed = ask(f"the quota {quota.name!r}", look)
    if allowed is not None:
        yield replace(quota, allowed=allowed)


def _network(ask: Asking, plan: ClusterPlan) -> Iterator[Quota]:
    ec2 = ask.client("ec2")
    vpcs = ask("how many VPCs there are", lambda: len(ec2.describe_vpcs()["Vpcs"]))
    if vpcs is not None:
        yield from _quota(ask, Quota(*_VPCS, needed=1, used=vpcs))
    addresses = ask("elastic addresses", lambda: len(ec2.describe_addresses()["Addresses"]))
    if addresses is not None and plan.network.nat_zones:
        needed = len(plan.network.nat_zones)
        yield from _quota(ask, Quota(*_ADDRESSES, needed=needed, used=addresses))


_EXECUTION_ROLE = "cdk-hnb659fds-cfn-exec-role-{account}-{region}"


def denied(ask: Asking, plan: ClusterPlan, caller: Caller) -> tuple[Denied, ...]:
    """Return what is not allowed, by simulation: it covers every service, and writes nothing.

    Dry runs are EC2's alone. Neither sees what a session's own policy takes away.
    """
    if caller.is_root:
        return ()
    found: list[Denied] = []
    for principal, arn in _principals(ask, plan, caller).items():
        needs = [
            each
            for each in NEEDS
            if each.principal == principal and (each.stack is None or each.stack in plan.stacks)
        ]
        what = "permissions of " + arn.rpartition("/")[2]
        found += ask(what, partial(_refused, ask, arn, needs, plan)) or []
    return tuple(dict.fromkeys(found))


def _principals(ask: Asking, plan: ClusterPlan, caller: Caller) -> dict[Principal, str]:
    """Return who does what: the caller, and CloudFormation's role where the CDK has made it."""
    own = caller_role(ask.aws) or caller.arn
    found: dict[Principal, str] = {"caller": own}
    if not ask("the CDK's bootstrap", lambda: is_bootstrapped(ask.aws)):
        # What it makes for CloudFormation may do everything.
        return {**found, "bootstrap": own}
    name = _EXECUTION_ROLE.format(account=caller.account, region=plan.region)
    look_up = partial(if_there, ask.client("iam").get_role, "NoSuchEntity", RoleName=name)
    role = ask("CloudFormation's role", look_up)
    return {**found, "cloudformation": str(role["Role"]["Arn"])} if role else found


def _refused(ask: Asking, arn: str, needs: list[Need], plan: ClusterPlan) -> list[Denied]:
    names = {
        "account": arn.split(":")[4],
        "eks": plan.eks_name,
        "name": plan.name,
        "partition": PARTITIONS[plan.region],
        "pool": plan.pools[0].name if plan.pools else "pool",
        "region": plan.region,
        "repository": plan.images[0].repository,
    }
    found: list[Denied] = []
    for need in needs:
        resource = need.resource.format(**names)
        pages = (
            ask.client("iam")
            .get_paginator("simulate_principal_policy")
            .paginate(PolicySourceArn=arn, ActionNames=list(need.actions), ResourceArns=[resource])
        )
        found += [
            Denied(arn, str(each["EvalActionName"]), need.what_for, decision == "explicitDeny")
            for page in pages
            for each in page["EvaluationResults"]
            if (decision := each["EvalDecision"]) != "allowed"
        ]
    return found
