"""Rules over what templates of others have: resources of the CDK, nested stacks, neighbours."""

from megatron_eks.rules.cloudformation import (
    cdk_resources,
    intrinsics,
    neighbours,
    nested_stacks,
)

RULES = (
    cdk_resources.charts,
    cdk_resources.clusters,
    neighbours.batch,
    neighbours.builders,
    neighbours.health,
    neighbours.pipelines,
)
OF_THE_WHOLE = (
    intrinsics.functions,
    intrinsics.loops,
    intrinsics.mappings,
    nested_stacks.outputs,
    nested_stacks.stacks,
)
"""These look at a template as it is written, whatever its conditions choose."""
