"""Names that templates give: each is known, so that it can be looked for before a deployment."""

from megatron_eks.localcloud.aws.cloudformation.schemas import identifiers
from megatron_eks.ops.cluster.names import given


def test_every_fixed_name_is_one_that_is_looked_for(assembly):
    """What identifies a resource and stands in a template, by CloudFormation's own schemas."""
    fixed = set()
    for template in assembly.templates().values():
        for resource in template.resources.values():
            kind, properties = resource["Type"], resource.get("Properties", {})
            # CodeBuild's own identifier is chosen by AWS; its name is one all the same.
            keys = identifiers("us-east-2", kind) if "Name" not in properties else ["Name"]
            values = [properties.get(key) for key in keys]
            if values and all(isinstance(value, str) for value in values):
                fixed.add((kind, *values))
    assert fixed == {(kind, name) for kind, name, _ in given(assembly.plan)}
