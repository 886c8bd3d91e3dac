"""The network interfaces of a GPU node, and how many pods they leave room for."""

from dataclasses import dataclass
from typing import Literal

from megatron_eks.catalog.instances import InstanceType

# Managed node groups take no more (EKS User Guide, "Create a managed node group").
_MAX_PODS = 250
_MAX_PODS_OF_SMALL_NODES = 110
_SMALL_VCPUS = 30


@dataclass(frozen=True)
class NetworkInterface:
    """One interface of a launch template."""

    card: int
    device: int
    type: Literal["interface", "efa-only"]


def network_interfaces(instance: InstanceType) -> tuple[NetworkInterface, ...]:
    """Lay out one ordinary interface for IP traffic and an EFA-only one on every EFA card.

    EC2 User Guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network
    cards": EFA-only interfaces take no IP address and cannot be the primary interface.
    """
    primary = NetworkInterface(card=0, device=0, type="interface")
    cards = range(instance.first_efa_card, instance.network_cards)
    # Card 0's first device is the primary interface, so its EFA-only interface is the second.
    efa = (NetworkInterface(card, 1 if card == 0 else 0, "efa-only") for card in cards)
    return (primary, *efa)


def max_pods(instance: InstanceType) -> int:
    """Return the most pods the VPC CNI can address on card 0.

    EKS's own formula counts every interface slot of the card; an EFA-only interface takes one.
    """
    taken = sum(
        1 for nic in network_interfaces(instance) if nic.card == 0 and nic.type == "efa-only"
    )
    addressed = instance.primary_card_pods - taken * (instance.ipv4_per_interface - 1)
    ceiling = _MAX_PODS_OF_SMALL_NODES if instance.vcpus < _SMALL_VCPUS else _MAX_PODS
    return min(ceiling, addressed)
