"""All checks of an account; those of who asks, of quotas, and of whether nodes can be had."""

from collections.abc import Iterator
from datetime import timedelta

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.ops.checks import Check, Result, in_aws, judged
from megatron_eks.ops.cluster.account import deployed_checks, network_checks
from megatron_eks.ops.cluster.account.facts import Subject
from megatron_eks.ops.cluster.capacity import OVER, Reservation
from megatron_eks.ops.console import duration
from megatron_eks.plan.cluster.pools import PoolPlan


def _brings(subject: Subject) -> bool:
    plan = subject.plan
    return bool(plan.network.existing or plan.storage.existing or plan.storage.kms_key_arn)


def _has_cluster(subject: Subject) -> bool:
    return subject.facts.cluster is not None or "Cluster" not in subject.plan.stacks


def _has_network(subject: Subject) -> bool:
    return subject.facts.cluster is not None or subject.plan.network.existing is not None


def _has_images(subject: Subject) -> bool:
    built = any(not each.preview for each in subject.outputs.images.values())
    return built or subject.facts.cluster is not None


_SHOWN_ACTIONS = 12


def identity(subject: Subject) -> Iterator[Finding]:
    """Compare the caller's account with that of the administrators' roles."""
    caller = subject.facts.caller
    roles = subject.plan.access.admin_role_arns
    accounts = {role.split(":")[4] for role in roles}
    if roles and caller.account not in accounts:
        found = f"you are in account {caller.account}, and the administrators in {min(accounts)}"
        remedy = "choose another profile with AWS_PROFILE, or run `meks init` for this account"
        yield Finding(Code.IDENTITY, ("access", "admin_role_arns"), found, remedy)
    if caller.is_root:
        found = "you are the root of the account, whom nothing restricts"
        remedy = "assume a role: access entries take roles, and root's keys should not exist"
        yield in_aws(Code.IDENTITY, ("sts",), found, remedy, Level.WARNING)


def permissions(subject: Subject) -> Iterator[Finding]:
    """Name what a principal may not do, by what it is needed for."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in subject.facts.denied:
        shown = f"{each.action} (denied explicitly)" if each.explicit else each.action
        groups.setdefault((each.principal, each.what_for), []).append(shown)
    for (principal, what_for), actions in groups.items():
        more = f" and {len(actions) - _SHOWN_ACTIONS} more" if len(actions) > _SHOWN_ACTIONS else ""
        found = f"not allowed, for {what_for}: {', '.join(actions[:_SHOWN_ACTIONS])}{more}"
        remedy = "ask who administers the account for them, or deploy as another role"
        yield in_aws(Code.PERMISSION, ("iam", principal.rpartition("/")[2]), found, remedy)


def quotas(subject: Subject) -> Iterator[Finding]:
    """Compare what the account may have with what the cluster needs."""
    for quota in subject.facts.quotas:
        wanted = quota.used + quota.needed
        if wanted <= quota.allowed:
            continue
        used = f", {quota.used:g} are in use" if quota.used else ""
        vcpus = quota.service == "ec2" and "nstance" in quota.name
        unit, code = (" vCPUs", Code.INSTANCE_QUOTA) if vcpus else ("", Code.NETWORK_QUOTA)
        found = f"{quota.name!r} is {quota.allowed:g}{unit}{used}, and {quota.needed:g} are needed"
        remedy = (
            f"aws service-quotas request-service-quota-increase --service-code {quota.service} "
            f"--quota-code {quota.code} --desired-value {int(wanted)}"
        )
        yield in_aws(code, ("service-quotas", quota.code), found, remedy)


# EC2 begins to end a block's instances half an hour before its end, EKS scales down ten minutes
# earlier (EKS User Guide, "Create a managed node group with Capacity Blocks for ML").
_SCALED_DOWN_BEFORE = timedelta(minutes=40)
_SOON = timedelta(hours=6)
_INACCURACY = timedelta(minutes=1)


def offered(subject: Subject) -> Iterator[Finding]:
    """Compare each pool's zone with those that offer its type."""
    offers, region = subject.facts.offered, subject.plan.region
    for index, pool in enumerate(subject.plan.pools):
        name = pool.instance.name
        zones = offers.get(name)
        if zones is None or pool.zone in zones:
            continue
        path: Path = ("gpu_pools", index, "availability_zone")
        if not zones:
            found = f"no zone of {region} offers {name}"
            remedy = "take another region or type: aws ec2 describe-instance-type-offerings"
        else:
            found = f"{pool.zone} does not offer {name}"
            remedy = f"use {' or '.join(zones)}"
        yield Finding(Code.TYPE_NOT_OFFERED, path, found, remedy)
    system = subject.plan.system_nodes.instance_type
    zones = offers.get(system)
    # One zone is enough for them.
    elsewhere = zones is not None and set(zones).isdisjoint(subject.plan.availability_zones)
    if "Cluster" in subject.plan.stacks and elsewhere:
        found = f"none of the cluster's zones offers {system}"
        remedy = "use another type of the same size"
        yield Finding(Code.TYPE_NOT_OFFERED, ("system_nodes", "instance_type"), found, remedy)


def reservations(subject: Subject) -> Iterator[Finding]:
    """Compare each pool's reservation with the pool."""
    for index, pool in enumerate(subject.plan.pools):
        number = pool.capacity.reservation_id
        if number is None or number not in subject.facts.reservations:
            continue
        path: Path = ("gpu_pools", index, "capacity", "id")
        found = subject.facts.reservations[number]
        if found is None:
            text = f"this account has no reservation {number} in {subject.plan.region}"
            remedy = "correct it: aws ec2 describe-capacity-reservations"
            yield Finding(Code.RESERVATION, path, text, remedy)
        else:
            yield from _mismatches(pool, found, path)
            yield from _window(subject, pool, found, path[:-1])


def _mismatches(pool: PoolPlan, found: Reservation, path: Path) -> Iterator[Finding]:
    if found.state in OVER:
        text, remedy = f"{found.id} is {found.state}", "name another reservation"
        yield Finding(Code.RESERVATION, path, text, remedy)
        return
    if found.instance_type != pool.instance.name:
        text = f"{found.id} is for {found.instance_type}, and the pool for {pool.instance.name}"
        yield Finding(Code.RESERVATION, path, text, "make both the same")
    if found.zone != pool.zone:
        text = f"{found.id} is in {found.zone}, and the pool in {pool.zone}"
        remedy = f"write availability_zone: {found.zone}"
        yield Finding(Code.RESERVATION, path, text, remedy)
    if found.count < pool.max_nodes:
        text = f"{found.id} has {found.count} instances, and the pool takes up to {pool.max_nodes}"
        yield Finding(Code.RESERVATION, path, text, f"write max_nodes: {found.count}")


def _window(subject: Subject, pool: PoolPlan, found: Reservation, path: Path) -> Iterator[Finding]:
    """Look at the time in which a block's instances run."""
    if found.state in OVER:
        return
    code, now = Code.RESERVATION_WINDOW, subject.now
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


CHECKS: tuple[Check[Subject], ...] = (
    Check("identity", identity),
    Check("permissions", permissions),
    Check("names", lambda subject: subject.facts.taken),
    Check("quotas", quotas),
    Check("zones offer the types", offered),
    Check(
        "reservations and Capacity Blocks",
        reservations,
        lambda subject: any(pool.capacity.reservation_id for pool in subject.plan.pools),
    ),
    Check("Kubernetes version supported", deployed_checks.support),
    Check("what the file brings along", network_checks.brought, _brings),
    Check("rules of existing groups", network_checks.rules, _brings),
    Check("free addresses", network_checks.addresses, _has_network),
    Check("default security group", network_checks.default_group, _has_network),
    Check(
        "file systems",
        deployed_checks.file_systems,
        lambda subject: any(not each.preview for each in subject.outputs.file_systems),
    ),
    Check("images", deployed_checks.images, _has_images),
    Check(
        "S3 for jobs",
        deployed_checks.job_access,
        lambda subject: bool(subject.outputs.job_role and subject.plan.data_access.is_named),
    ),
    Check("EKS cluster", deployed_checks.cluster, _has_cluster),
    Check("API endpoint from here", deployed_checks.endpoint, _has_cluster),
    Check("add-ons", deployed_checks.addons, _has_cluster),
    Check("node groups", deployed_checks.node_groups, _has_cluster),
)


def results(subject: Subject) -> list[Result]:
    """Make all checks; one that lacks what it needs says so."""
    return judged(CHECKS, subject, subject.facts.unknown)
