"""What is done to nodes before they join: proxy variables, certificates, Lustre over EFA."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_eks.plan.egress import plan_egress

if TYPE_CHECKING:
    from megatron_eks.config.cluster import ClusterConfig
    from megatron_eks.plan.egress import Variables


@dataclass(frozen=True)
class NodeSetup:
    """What the user data of every node says besides the pool's own settings."""

    variables: "Variables"
    """Of every service of the node."""
    ca_bundle: str | None
    """Certificates in PEM that the node trusts besides the public ones."""
    lustre_efa: bool
    """Whether Lustre's client of GPU nodes uses EFA."""


def plan_node_setup(config: "ClusterConfig") -> NodeSetup:
    """Plan the nodes of a configuration that has passed the checks."""
    egress = plan_egress(config)
    return NodeSetup(egress.node_variables, egress.ca_bundle, config.storage.lustre.efa)
