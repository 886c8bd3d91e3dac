"""Which of the actions that commands and stacks need a principal's policies do not allow."""

from functools import partial

from megatron_eks.catalog.permissions import NEEDS, Need, Principal
from megatron_eks.catalog.regions import PARTITIONS
from megatron_eks.ops.aws.cdk import is_bootstrapped
from megatron_eks.ops.aws.identity import caller_role
from megatron_eks.ops.aws.session import if_there
from megatron_eks.ops.cluster.account.facts import Asking, Caller, Denied
from megatron_eks.plan.cluster.cluster import ClusterPlan

_EXECUTION_ROLE = "cdk-hnb659fds-cfn-exec-role-{account}-{region}"


def denied(ask: Asking, plan: ClusterPlan, caller: Caller) -> tuple[Denied, ...]:
    """Return what is not allowed, by simulation: it covers every service, and writes nothing.

    Dry runs are EC2's alone. Neither sees what a session's own policy takes away.
    """
    if caller.is_root:
        return ()
    found: list[Denied] = []
    for principal, arn in _principals(ask, plan, caller).items():
        needs = [each for each in NEEDS if each.principal == principal and _applies(each, plan)]
        what = "permissions of " + arn.rpartition("/")[2]
        found += ask(what, partial(_refused, ask, arn, needs, plan)) or []
    return tuple(dict.fromkeys(found))


def _applies(need: Need, plan: ClusterPlan) -> bool:
    return need.stack is None or need.stack in plan.stacks


def _principals(ask: Asking, plan: ClusterPlan, caller: Caller) -> dict[Principal, str]:
    """Return who does what: the caller, and CloudFormation's role where the CDK has made it."""
    own = caller_role(ask.aws) or caller.arn
    found: dict[Principal, str] = {"caller": own}
    if not ask("the CDK's bootstrap", lambda: is_bootstrapped(ask.aws)):
        # What it makes for CloudFormation may do everything.
        return {**found, "bootstrap": own}
    name = _EXECUTION_ROLE.format(account=caller.account, region=plan.region)
    arn = ask("CloudFormation's role", lambda: _role(ask, name))
    return {**found, "cloudformation": arn} if arn else found


def _role(ask: Asking, name: str) -> str | None:
    found = if_there(ask.client("iam").get_role, "NoSuchEntity", RoleName=name)
    return found and str(found["Role"]["Arn"])


def _refused(ask: Asking, arn: str, needs: list[Need], plan: ClusterPlan) -> list[Denied]:
    account = arn.split(":")[4]
    pool = plan.pools[0].name if plan.pools else "pool"
    names = {
        "account": account,
        "eks": plan.eks_name,
        "name": plan.name,
        "partition": PARTITIONS[plan.region],
        "pool": pool,
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
        for page in pages:
            for each in page["EvaluationResults"]:
                if each["EvalDecision"] != "allowed":
                    explicit = each["EvalDecision"] == "explicitDeny"
                    action = str(each["EvalActionName"])
                    found.append(Denied(arn, action, need.what_for, explicit))
    return found
