"""Every resource type that local AWS can make."""

from megatron_eks.localcloud.aws.cloudformation.errors import ResourceError
from megatron_eks.localcloud.aws.resources import (
    buckets,
    builds,
    ec2_groups,
    ec2_network,
    ec2_nodes,
    eks,
    files,
    iam,
    keys_and_logs,
    nodegroup,
    watching,
)
from megatron_eks.localcloud.aws.resources.handler import Handler

_MODULES = (
    *(buckets, builds, ec2_groups, ec2_network, ec2_nodes, eks),
    *(files, iam, keys_and_logs, nodegroup, watching),
)
_HANDLERS: dict[str, Handler] = {
    handler.kind: handler for module in _MODULES for handler in module.HANDLERS
}


def handler_of(kind: str) -> Handler:
    """Return what makes resources of a type. Raises ResourceError if nothing does."""
    if kind not in _HANDLERS:
        raise ResourceError(f"Unrecognized resource type, or one that local AWS lacks: [{kind}]")
    return _HANDLERS[kind]
