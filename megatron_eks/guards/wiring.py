"""Guards of what holds templates together: imports, and things that are there once."""

from collections.abc import Iterator
from pathlib import PurePath

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.templates import Resource, Templates, template_guard
from megatron_eks.guards.values import Value

_ONE = {
    "EC2::Route": ("RouteTableId", "DestinationCidrBlock"),
    "EC2::SubnetRouteTableAssociation": ("SubnetId",),
    "EC2::NatGateway": ("AllocationId",),
    "EC2::VPCEndpoint": ("ServiceName", "VpcId", "VpcEndpointType"),
    "EKS::AccessEntry": ("PrincipalArn", "ClusterName"),
    "EKS::Addon": ("AddonName", "ClusterName"),
    "EKS::Nodegroup": ("NodegroupName", "ClusterName"),
    "EKS::PodIdentityAssociation": ("ServiceAccount", "Namespace", "ClusterName"),
}


@template_guard
def one_of_each(templates: Templates) -> Iterator[Finding]:
    """Nothing is made twice (Create* of each resource in the APIs of EC2 and EKS)."""
    for kind, keys in _ONE.items():
        seen: dict[str, Resource] = {}
        for each in templates.of(kind):
            first = seen.setdefault(str([each[key].raw for key in keys]), each)
            if first is not each and each[keys[0]]:
                found = f"{first.name} has the same {keys[0]}: AWS refuses the second one"
                yield each[keys[0]].finding(Code.TWICE, found, "remove one of the two")


@template_guard
def lists_and_policies(templates: Templates) -> Iterator[Finding]:
    """No list names anything twice; policies have a version (IAM User Guide, "Version")."""
    for part in (part for each in templates.resources for part in _inside(each.body)):
        raw = part.raw if isinstance(part.raw, list) else []
        again = [at for at, each in enumerate(raw) if each in raw[:at]]
        for at in again if not part.name.startswith("Fn::") else ():
            found = f"the same as an element of {part.name} before it: AWS refuses one"
            yield part[at].finding(Code.TWICE, found, "remove one of the two", Level.WARNING)
        if part["Statement"]:
            version, why = part["Version"], "variables in the policy are plain text"
            yield from version.must_be(Code.POLICY, "2012-10-17", why=why, level=Level.WARNING)


@template_guard
def imports(templates: Templates) -> Iterator[Finding]:
    """Stacks export what others import (CloudFormation User Guide, "Fn::ImportValue")."""
    stacks = {PurePath(each.file).name.split(".")[0] for each in templates.resources}
    stacks |= {each.rpartition("-")[2] for each in stacks}
    every = (part for each in templates.resources for part in _inside(each.properties))
    for value in (part["Fn::ImportValue"] for part in every if part["Fn::ImportValue"]):
        stack, _, name = value.text.partition(":")
        if {stack, stack.rpartition("-")[2]} & stacks and not templates.exports(value.text):
            found = f"{stack} exports no {name}: CloudFormation refuses the stack"
            yield value.finding(Code.REFERENCE, found, f"correct it, or add the output to {stack}")


def _inside(value: Value) -> Iterator[Value]:
    yield value
    for inner in [*value, *(each for _, each in value.items())]:
        yield from _inside(inner)
