"""The layout of network interfaces, and what it leaves for pods."""

import pytest

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.interfaces import max_pods, network_interfaces

# EC2 User Guide, "Maximize network bandwidth on instances with multiple network cards", for each
# type: an ordinary interface first, EFA-only behind it where the first card has EFA, and EFA-only at
# device 0 of every other card.
FIRST = (0, 0, "interface")
BEHIND = (0, 1, "efa-only")


def others(last):
    """Return the EFA-only interfaces of cards 1 to the last."""
    return {(card, 0, "efa-only") for card in range(1, last + 1)}


LAYOUTS = {
    "p4d.24xlarge": {FIRST, BEHIND, *others(3)},
    "p4de.24xlarge": {FIRST, BEHIND, *others(3)},
    "p5.4xlarge": {FIRST, BEHIND},
    "p5.48xlarge": {FIRST, BEHIND, *others(31)},
    "p5e.48xlarge": {FIRST, BEHIND, *others(31)},
    "p5en.48xlarge": {FIRST, BEHIND, *others(15)},
    "p6-b200.48xlarge": {FIRST, BEHIND, *others(7)},
    "p6-b300.48xlarge": {FIRST, *others(16)},
    "g5.xlarge": {FIRST},
    "g5.8xlarge": {FIRST, BEHIND},
    "g5.12xlarge": {FIRST, BEHIND},
    "g6.4xlarge": {FIRST},
    "g6.48xlarge": {FIRST, BEHIND},
    "g6e.12xlarge": {FIRST, BEHIND},
    "g6e.24xlarge": {FIRST, BEHIND, *others(1)},
    "g6e.48xlarge": {FIRST, BEHIND, *others(3)},
    "g7e.4xlarge": {FIRST},
    "g7e.48xlarge": {FIRST, BEHIND, *others(3)},
}


def layout(name):
    """Return the interfaces of a type as tuples."""
    return [(nic.card, nic.device, nic.type) for nic in network_interfaces(INSTANCES[name])]


@pytest.mark.parametrize("name", LAYOUTS)
def test_interfaces_are_those_that_ec2_recommends(name):
    """Exactly these, each once."""
    assert set(layout(name)) == LAYOUTS[name]
    assert len(layout(name)) == len(LAYOUTS[name])


@pytest.mark.parametrize("name", INSTANCES)
def test_every_efa_device_has_its_interface_and_its_slot(name):
    """No slot twice, none beyond what the card holds, and as many EFA devices as EC2 has."""
    slots = [(card, device) for card, device, _ in layout(name)]
    assert len(slots) == len(set(slots))
    assert max(device for _, device in slots) < INSTANCES[name].interfaces_per_card
    efa = [type_ for _, _, type_ in layout(name) if type_ == "efa-only"]
    assert len(efa) == INSTANCES[name].efa_interfaces


@pytest.mark.parametrize(
    ("name", "pods"),
    [
        ("p4d.24xlarge", 250),  # 14 interfaces x 49 addresses, capped
        ("p5.48xlarge", 51),  # the EFA-only interface takes the second slot of card 0
        ("p5en.48xlarge", 149),  # 3 x 49 + 2
        ("p6-b300.48xlarge", 198),  # no EFA on card 0: 4 x 49 + 2
        ("p5.4xlarge", 89),  # 3 x 29 + 2
        ("g5.xlarge", 58),  # 4 x 14 + 2
        ("g5.4xlarge", 110),  # 234 addresses, and a managed node group's limit below 30 vCPUs
        ("g5.8xlarge", 205),  # 7 x 29 + 2
    ],
)
def test_max_pods_counts_slots_taken_by_efa(name, pods):
    """EKS's own table counts slots that EFA-only interfaces take."""
    assert max_pods(INSTANCES[name]) == pods
