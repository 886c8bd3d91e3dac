"""All checks of an account; those of who asks, of quotas, and of whether nodes can be had."""

from collections.abc import Iterator
from datetime import timedelta

from botocore.exceptions import ClientError

from megatron_eks.catalog.instances import system_node_size
from megatron_eks.catalog.permissions import NEEDS, Principal
from megatron_eks.catalog.regions import PARTITIONS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.ops.aws.cdk import is_bootstrapped
from megatron_eks.ops.aws.session import error_code, explained, if_there
from megatron_eks.ops.aws.stacks import Stacks
from megatron_eks.ops.aws.tools import caller_role
from megatron_eks.ops.checks import Check, Result, in_aws, judged
from megatron_eks.ops.cluster.account import deployed_checks, network_checks
from megatron_eks.ops.cluster.account.account import Account
from megatron_eks.ops.cluster.capacity import (
    OVER,
    UNKNOWN_CODE,
    Reservation,
    described,
    offers_of,
    quota_of,
)
from megatron_eks.ops.cluster.names import taken
from megatron_eks.ops.console import duration
from megatron_eks.ops.failure import Failure
from megatron_eks.plan.cluster.pools import PoolPlan

_EXECUTION_ROLE = "cdk-hnb659fds-cfn-exec-role-{account}-{region}"
_STANDARD = ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "L-1216C47A")
# EC2 begins to end a block's instances half an hour before its end, EKS scales down ten minutes
# earlier (EKS User Guide, "Create a managed node group with Capacity Blocks for ML").
_SCALED_DOWN_BEFORE = timedelta(minutes=40)
_SOON = timedelta(hours=6)
_INACCURACY = timedelta(minutes=1)


def identity(account: Account) -> Iterator[Finding]:
    """Compare the caller's account with that of the administrators' roles."""
    here = account.caller.split(":")[4]
    accounts = {role.split(":")[4] for role in account.plan.access.admin_role_arns}
    if accounts and here not in accounts:
        found = f"you are in account {here}, and the administrators in {min(accounts)}"
        remedy = "choose another profile with AWS_PROFILE, or run `meks init` for this account"
        yield Finding(Code.IDENTITY, ("access", "admin_role_arns"), found, remedy)


def permissions(account: Account) -> Iterator[Finding]:
    """Name what a principal may not do, by what it is needed for.

    By simulation, which covers every service and writes nothing: dry runs are EC2's alone. Neither
    sees what a session's own policy takes away.
    """
    if account.caller.endswith(":root"):
        return  # whom no policy describes
    for principal, arn in _principals(account):
        for what_for, actions in _denied(account, principal, arn).items():
            found = f"not allowed, for {what_for}: {', '.join(dict.fromkeys(actions))}"
            remedy = "ask who administers the account for them, or deploy as another role"
            yield in_aws(Code.PERMISSION, ("iam", arn.rpartition("/")[2]), found, remedy)


def _principals(account: Account) -> Iterator[tuple[Principal, str]]:
    """Yield who does what: the caller, and CloudFormation's role where the CDK has made it."""
    own = caller_role(account.aws) or account.caller
    yield "caller", own
    if not is_bootstrapped(account.aws):
        # What it makes for CloudFormation may do everything.
        yield "bootstrap", own
        return
    name = _EXECUTION_ROLE.format(account=own.split(":")[4], region=account.plan.region)
    if role := if_there(account.client("iam").get_role, "NoSuchEntity", RoleName=name):
        yield "cloudformation", str(role["Role"]["Arn"])


def _denied(account: Account, principal: Principal, arn: str) -> dict[str, list[str]]:
    """Return the actions that are refused, by what they are needed for."""
    plan = account.plan
    names = {
        "account": arn.split(":")[4],
        "eks": plan.eks_name,
        "name": plan.name,
        "partition": PARTITIONS[plan.region],
        "pool": plan.pools[0].name if plan.pools else "pool",
        "region": plan.region,
        "repository": plan.images[0].repository,
    }
    simulate = account.client("iam").get_paginator("simulate_principal_policy").paginate
    found: dict[str, list[str]] = {}
    for need in NEEDS:
        if need.principal != principal or need.stack not in {None, *plan.stacks}:
            continue
        asked = {"ActionNames": [*need.actions], "ResourceArns": [need.resource.format(**names)]}
        for page in simulate(PolicySourceArn=arn, **asked):
            for each in page["EvaluationResults"]:
                explicit = " (denied explicitly)" * (each["EvalDecision"] == "explicitDeny")
                if each["EvalDecision"] != "allowed":
                    found.setdefault(need.what_for, []).append(each["EvalActionName"] + explicit)
    return found


def names(account: Account) -> list[Finding]:
    """Find names that belong to living stacks of others."""
    return taken(account.plan, Stacks(account.client("cloudformation")))


def quotas(account: Account) -> Iterator[Finding]:
    """Compare the vCPUs that the account may have with those that the cluster needs."""
    plan = account.plan
    needed: dict[tuple[str, str], int] = {}
    for pool in plan.pools:
        # Instances of a Capacity Block are bought with it.
        if pool.capacity.kind != "capacity_block":
            key = quota_of(pool)
            needed[key] = needed.get(key, 0) + pool.instance.vcpus * pool.max_nodes
    if "Cluster" in plan.stacks:
        vcpus, _ = system_node_size(plan.system_nodes.instance_type)
        needed[_STANDARD] = vcpus * plan.system_nodes.count
    for (name, code), wanted in needed.items():
        if code == UNKNOWN_CODE:
            found = f"the quota {name!r}: its code is not known"
            remedy = "look at the EC2 quotas in the Service Quotas console"
            yield in_aws(Code.NOT_CHECKED, ("quotas",), found, remedy, Level.WARNING)
            continue
        get = account.client("service-quotas").get_service_quota
        allowed = get(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"]
        if allowed < wanted:
            found = f"{name!r} is {allowed:g} vCPUs, and {wanted} are needed"
            remedy = (
                "aws service-quotas request-service-quota-increase --service-code ec2 "
                f"--quota-code {code} --desired-value {wanted}"
            )
            yield in_aws(Code.INSTANCE_QUOTA, ("service-quotas", code), found, remedy)


def offered(account: Account) -> Iterator[Finding]:
    """Compare each pool's zone with those that offer its type."""
    types = dict.fromkeys(pool.instance.name for pool in account.plan.pools)
    offers = offers_of(types, account.client("ec2"))
    for index, pool in enumerate(account.plan.pools):
        name, zones = pool.instance.name, offers[pool.instance.name]
        if pool.zone in zones:
            continue
        path: Path = ("gpu_pools", index, "availability_zone")
        if not zones:
            found = f"no zone of {account.plan.region} offers {name}"
            remedy = "take another region or type: aws ec2 describe-instance-type-offerings"
        else:
            found = f"{pool.zone} does not offer {name}"
            remedy = f"use {' or '.join(zones)}"
        yield Finding(Code.TYPE_NOT_OFFERED, path, found, remedy)


def reservations(account: Account) -> Iterator[Finding]:
    """Compare each pool's reservation with the pool."""
    for index, pool in enumerate(account.plan.pools):
        number = pool.capacity.reservation_id
        if number is None:
            continue
        path: Path = ("gpu_pools", index, "capacity", "id")
        found = described(number, account.client("ec2"))
        if found is None:
            text = f"this account has no reservation {number} in {account.plan.region}"
            remedy = "correct it: aws ec2 describe-capacity-reservations"
            yield Finding(Code.RESERVATION, path, text, remedy)
            continue
        for text, remedy in _mismatches(pool, found):
            yield Finding(Code.RESERVATION, path, text, remedy)
        if found.state not in OVER:
            yield from _window(account, pool, found, path[:-1])


def _mismatches(pool: PoolPlan, found: Reservation) -> Iterator[tuple[str, str]]:
    if found.state in OVER:
        yield f"{found.id} is {found.state}", "name another reservation"
        return
    if found.instance_type != pool.instance.name:
        text = f"{found.id} is for {found.instance_type}, and the pool for {pool.instance.name}"
        yield text, "make both the same"
    if found.zone != pool.zone:
        text = f"{found.id} is in {found.zone}, and the pool in {pool.zone}"
        yield text, f"write availability_zone: {found.zone}"
    if found.count < pool.max_nodes:
        text = f"{found.id} has {found.count} instances, and the pool takes up to {pool.max_nodes}"
        yield text, f"write max_nodes: {found.count}"


def _window(account: Account, pool: PoolPlan, found: Reservation, path: Path) -> Iterator[Finding]:
    """Look at the time in which a block's instances run."""
    code, now = Code.RESERVATION_WINDOW, account.now
    if found.state != "active" and found.starts is not None and found.starts > now:
        text = f"{found.id} starts at {found.starts:%Y-%m-%d %H:%M} UTC"
        remedy = f"wait for it: meks scale {pool.name} {pool.max_nodes} --at start"
        yield Finding(code, path, text, remedy, Level.WARNING)
    if found.ends is None:
        return
    left = found.ends - _SCALED_DOWN_BEFORE - now
    if left <= timedelta(0):
        text = f"{found.id} ends at {found.ends:%Y-%m-%d %H:%M} UTC, and takes no nodes any more"
        yield Finding(code, path, text, "name another block")
    elif left < _SOON:
        text = f"nodes of {found.id} go in {duration(left.total_seconds())}"
        remedy = "start nothing that cannot end, or save, before that"
        yield Finding(code, path, text, remedy, Level.WARNING)
    ends_at = pool.capacity.ends_at
    if ends_at is not None and abs(ends_at - found.ends) > _INACCURACY:
        text = f"the file says it ends at {ends_at:%Y-%m-%d %H:%M} UTC, EC2 says"
        text += f" {found.ends:%Y-%m-%d %H:%M} UTC"
        remedy = f"write ends_at: {found.ends:%Y-%m-%dT%H:%M:%SZ}"
        yield Finding(code, (*path, "ends_at"), text, remedy)


def _brings(account: Account) -> bool:
    return bool(account.plan.network.existing or account.plan.storage.existing)


def _has_cluster(account: Account) -> bool:
    return account.cluster is not None or "Cluster" not in account.plan.stacks


def _has_network(account: Account) -> bool:
    return account.cluster is not None or account.plan.network.existing is not None


CHECKS: tuple[Check[Account], ...] = (
    Check("identity", identity),
    Check("permissions", permissions),
    Check("names", names),
    Check("quotas", quotas),
    Check("zones offer the types", offered),
    Check(
        "reservations and Capacity Blocks",
        reservations,
        lambda account: any(pool.capacity.reservation_id for pool in account.plan.pools),
    ),
    Check("Kubernetes version supported", deployed_checks.support),
    Check("what the file brings along", network_checks.brought, _brings),
    Check("rules of existing groups", network_checks.rules, _brings),
    Check("free addresses", network_checks.addresses, _has_network),
    Check("default security group", network_checks.default_group, _has_network),
    Check("file systems", deployed_checks.file_systems, lambda account: bool(account.file_systems)),
    Check(
        "images",
        deployed_checks.images,
        lambda account: bool(account.cluster or deployed_checks.built_images(account)),
    ),
    Check(
        "S3 for jobs",
        deployed_checks.job_access,
        lambda account: bool(account.outputs.job_role and account.plan.data_access.is_named),
    ),
    Check("EKS cluster", deployed_checks.cluster, _has_cluster),
    Check("add-ons", deployed_checks.addons, _has_cluster),
    Check("node groups", deployed_checks.node_groups, _has_cluster),
)


def results(account: Account) -> list[Result]:
    """Make all checks; one that lacks what it needs says so."""
    return judged(CHECKS, account, _refused)


def _refused(error: Exception) -> Failure | None:
    """Say what AWS does not tell; without credentials no other question is answered either."""
    if not isinstance(error, ClientError):
        return None
    failure = explained(error)
    if error_code(error) == "UnauthorizedOperation":
        # EC2 names no action in clear; it is that of the request.
        failure.found = f"not allowed: ec2:{error.operation_name}"
    return None if failure.finding is Code.CREDENTIALS else failure
