"""Rule over public addresses of nodes."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.launch_templates import launch_templates
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import truth


def public_address(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse public addresses of nodes; with several interfaces EC2 assigns none.

    EC2 API, AssociatePublicIpAddress: for a single, primary interface only
    (terraform-aws-eks issue 3533); EKS Best Practices, "Deploy workers onto private subnets".
    """
    for template in launch_templates(templates):
        interfaces = template.interfaces or []
        for interface in interfaces:
            if truth(interface.body.get("AssociatePublicIpAddress")) is not True:
                continue
            path = (*interface.path, "AssociatePublicIpAddress")
            remedy = "remove it, and put the nodes into private subnets"
            if len(interfaces) > 1:
                found = f"EC2 assigns none to an instance with {len(interfaces)} interfaces"
                yield template.resource.find(Code.PUBLIC_ADDRESS, path, found, remedy)
            elif template.node_groups:
                found = "nodes of the cluster get public addresses"
                yield template.resource.find(
                    Code.PUBLIC_ADDRESS, path, found, remedy, Level.WARNING
                )
