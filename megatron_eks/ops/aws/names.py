"""Names that a cluster's stacks give, and which living stacks of others hold them."""

from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.ops.aws.stacks import Stacks
from megatron_eks.plan.cluster import ClusterPlan

REPOSITORY = "AWS::ECR::Repository"
_PREFIX: Path = ("images", "prefix")
_NAME: Path = ("name",)


@dataclass(frozen=True)
class Name:
    """A name in the account and region, which nothing else of its kind may have."""

    kind: str
    """As CloudFormation calls it."""
    text: str
    key: Path
    """What in the cluster file gives another one."""


def given(plan: ClusterPlan) -> Iterator[Name]:
    """Yield the names that stand in the templates; every other one is CloudFormation's choice."""
    logs = [f"/megatron-eks/{plan.name}/flow-logs", f"/aws/eks/{plan.name}/cluster"]
    for image in plan.images:
        yield Name(REPOSITORY, image.repository, _PREFIX)
        yield Name("AWS::CodeBuild::Project", f"{plan.name}-{image.name}", _NAME)
        logs.append(f"/megatron-eks/{plan.name}/build/{image.name}")
    for group in logs:
        yield Name("AWS::Logs::LogGroup", group, _NAME)
    if "Cluster" in plan.stacks:
        yield Name("AWS::EKS::Cluster", plan.name, _NAME)


def taken(plan: ClusterPlan, stacks: Stacks) -> list[Finding]:
    """Return a finding for each name that a living stack holds which is not the cluster's."""
    own = {plan.stack(part) for part in plan.stacks}
    found = []
    for name in given(plan):
        holder = stacks.holder(name.kind, name.text)
        if holder is not None and holder not in own:
            what = name.kind.rpartition("::")[2]
            text = f"{what} {name.text} belongs to stack {holder}"
            remedy = f"set {'.'.join(map(str, name.key))} to something else in this cluster's file"
            found.append(Finding(Code.NAME_TAKEN, name.key, text, remedy))
    return found
