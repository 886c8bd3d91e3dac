"""Which resources of a template are there already, and may be taken over with it."""

from collections.abc import Iterable, Mapping

from megatron_eks.localcloud.aws.cloudformation import schemas
from megatron_eks.localcloud.aws.cloudformation.errors import ValidationError
from megatron_eks.localcloud.aws.cloudformation.stacks import KEEP, Stack
from megatron_eks.localcloud.aws.cloudformation.work import Tools
from megatron_eks.localcloud.aws.resources.table import handler_of
from megatron_eks.localcloud.aws.values import Object


def existing(
    stack: Stack, resources: Mapping[str, Object], others: Iterable[Stack], tools: Tools
) -> dict[str, str]:
    """Return the physical ids of what a change set with ImportExistingResources takes over.

    Only a static name in the template is looked for; what is to be taken over must be kept when
    its stack goes, and be in no other stack (CloudFormation User Guide, "Import AWS resources into
    a CloudFormation stack automatically"). Raises ValidationError where it is not so.
    """
    taken = {
        (each.kind, each.physical_id): other.name
        for other in others
        for each in other.resources.values()
    }
    found = {}
    for name, body in resources.items():
        kind, properties = body["Type"], body.get("Properties", {})
        keys = [properties.get(key) for key in schemas.identifiers(stack.region, kind)]
        if name in stack.resources or not keys or not all(isinstance(key, str) for key in keys):
            continue
        physical_id = "|".join(keys)
        if not handler_of(kind).exists(tools.context(name), physical_id):
            continue
        if (kind, physical_id) in taken:
            owner = taken[kind, physical_id]
            raise ValidationError(f"{kind} {physical_id} already belongs to stack {owner}")
        if body.get("DeletionPolicy") not in KEEP:
            raise ValidationError(
                "CloudFormation is attempting to import some resources because they already exist "
                "in your account. The resources must have the DeletionPolicy attribute set to "
                f"'Retain' or 'RetainExceptOnCreate'. The affected resources are {name}"
            )
        found[name] = physical_id
    return found
