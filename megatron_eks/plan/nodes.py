"""What is done to nodes before they join: proxy variables, certificates, Lustre over EFA."""

from dataclasses import dataclass

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.plan.egress import Variables, plan_egress
from megatron_eks.plan.storage import reaches_lustre_over_efa


@dataclass(frozen=True)
class NodeSetup:
    """What the user data of every node says besides the pool's own settings."""

    variables: Variables
    """Of every service of the node."""
    ca_bundle: str | None
    """Certificates in PEM that the node trusts besides the public ones."""
    lustre_efa_pools: tuple[str, ...]
    """Pools whose nodes reach the file servers over EFA."""


def plan_node_setup(config: ClusterConfig) -> NodeSetup:
    """Plan the nodes of a configuration that has passed the checks."""
    egress = plan_egress(config)
    over_efa = (
        pool.name
        for pool in config.gpu_pools
        if config.storage.lustre.efa and reaches_lustre_over_efa(pool.instance_type)
    )
    return NodeSetup(egress.node_variables, egress.ca_bundle, tuple(over_efa))
