"""Rule over parts of a cluster that name it by a text, and so are made without waiting for it."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.cloudformation.addon_order import made_before
from megatron_eks.rules.cloudformation.properties import after, named
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent

_CLUSTER = "AWS::EKS::Cluster"
_PARTS = tuple(
    f"AWS::EKS::{name}"
    for name in ("AccessEntry", "Addon", "FargateProfile", "Nodegroup", "PodIdentityAssociation")
)


def order(templates: TemplateSet) -> Iterator[Finding]:
    """Require of what is part of a cluster that it is made after the cluster of its template.

    CloudFormation User Guide, "DependsOn": only a Ref, a Fn::GetAtt or DependsOn makes one wait for
    the other; EKS answers ResourceNotFoundException ("No cluster found for name").
    """
    for part in templates.resources(*_PARTS):
        name = part.properties.get("ClusterName")
        beside = [each for each in templates.resources(_CLUSTER) if each.file == part.file]
        same = [each for each in beside if each.properties.get("Name") == name]
        # Of two clusters under opposite conditions it waits for either.
        waits = any(each in made_before(part, templates, _names) for each in same)
        if same and not waits and not is_absent(name):
            found = f"the name of {same[0].id} and no reference, so it does not wait for the "
            found += "cluster, and EKS finds none of this name"
            remedy = f"write Ref {same[0].id}, in YAML !Ref {same[0].id}"
            yield part.find(Code.START_ORDER, ("ClusterName",), found, remedy)


def _names(resource: Resource) -> Iterator[tuple[tuple[str | int, ...], str]]:
    yield from after(resource)
    yield from named(dict(resource.properties), ())
