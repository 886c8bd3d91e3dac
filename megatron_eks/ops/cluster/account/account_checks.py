"""Checks of who asks, what they may do, and how much the account may have."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.ops.checks import in_aws
from megatron_eks.ops.cluster.account.facts import Quota, Subject

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
        if quota.used + quota.needed > quota.allowed:
            yield _too_small(quota)


def _too_small(quota: Quota) -> Finding:
    wanted = int(quota.used + quota.needed)
    used = f", {quota.used:g} are in use" if quota.used else ""
    vcpus = quota.service == "ec2" and "nstance" in quota.name
    unit = " vCPUs" if vcpus else ""
    found = f"{quota.name!r} is {quota.allowed:g}{unit}{used}, and {quota.needed:g} are needed"
    remedy = (
        f"aws service-quotas request-service-quota-increase --service-code {quota.service} "
        f"--quota-code {quota.code} --desired-value {wanted}"
    )
    code = Code.INSTANCE_QUOTA if vcpus else Code.NETWORK_QUOTA
    return in_aws(code, ("service-quotas", quota.code), found, remedy)
