"""Names that a cluster's stacks give, and which living stacks of others hold them."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, dotted
from megatron_eks.ops.aws.stacks import Stacks
from megatron_eks.plan.cluster.cluster import ClusterPlan

REPOSITORY = "AWS::ECR::Repository"
_PREFIX: Path = ("images", "prefix")
_NAME: Path = ("name",)


def given(plan: ClusterPlan) -> Iterator[tuple[str, str, Path]]:
    """Yield the names that stand in the templates; every other one is CloudFormation's choice.

    Each is that of the only one of a type in account and region, with the key of the cluster file
    that gives another one.
    """
    logs = [f"/megatron-eks/{plan.name}/flow-logs", f"/aws/eks/{plan.name}/cluster"]
    for image in plan.images:
        yield REPOSITORY, image.repository, _PREFIX
        yield "AWS::CodeBuild::Project", f"{plan.name}-{image.name}", _NAME
        logs.append(f"/megatron-eks/{plan.name}/build/{image.name}")
    for group in logs:
        yield "AWS::Logs::LogGroup", group, _NAME
    if "Cluster" in plan.stacks:
        yield "AWS::EKS::Cluster", plan.name, _NAME


def taken(plan: ClusterPlan, stacks: Stacks) -> list[Finding]:
    """Return a finding for each name that a living stack holds which is not the cluster's."""
    own = {plan.stack(part) for part in plan.stacks}
    found = []
    for kind, name, key in given(plan):
        holder = stacks.holder(kind, name)
        if holder is not None and holder not in own:
            text = f"{kind.rpartition('::')[2]} {name} belongs to stack {holder}"
            remedy = f"set {dotted(key)} to something else in this cluster's file"
            found.append(Finding(Code.NAME_TAKEN, key, text, remedy))
    return found
