"""The layout of network interfaces, and what it leaves for pods."""

from dataclasses import replace

import pytest

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.plan.interfaces import max_pods, network_interfaces

P4D = INSTANCES["p4d.24xlarge"]
# A chassis whose first card has no EFA, as p6-b300 is documented to be.
FIRST_CARD_WITHOUT_EFA = replace(P4D, network_cards=17, first_efa_card=1, interfaces_per_card=4)
# Two interfaces a card, as on p5.48xlarge.
TWO_A_CARD = replace(P4D, network_cards=32, interfaces_per_card=2)


def layout(instance):
    """Return the interfaces as tuples."""
    return {(nic.card, nic.device, nic.type) for nic in network_interfaces(instance)}


@pytest.mark.parametrize("name", ["p4d.24xlarge", "p4de.24xlarge"])
def test_p4_has_one_ip_interface_and_four_for_efa(name):
    """Card 0 carries both kinds, so its EFA-only interface is device 1."""
    assert layout(INSTANCES[name]) == {
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        (1, 0, "efa-only"),
        (2, 0, "efa-only"),
        (3, 0, "efa-only"),
    }


def test_a_first_card_without_efa_carries_ip_alone():
    """A card that cannot do EFA gets no EFA interface."""
    found = layout(FIRST_CARD_WITHOUT_EFA)
    assert len(found) == 17
    assert [nic for nic in found if nic[0] == 0] == [(0, 0, "interface")]
    assert FIRST_CARD_WITHOUT_EFA.efa_interfaces == 16


def test_no_slot_is_used_twice():
    """EC2 refuses two interfaces on one card and device."""
    for instance in (*INSTANCES.values(), FIRST_CARD_WITHOUT_EFA, TWO_A_CARD):
        slots = [(nic.card, nic.device) for nic in network_interfaces(instance)]
        assert len(slots) == len(set(slots))


@pytest.mark.parametrize(
    ("instance", "pods"),
    [
        (P4D, 250),  # 14 interfaces x 49 addresses, capped
        (TWO_A_CARD, 51),  # the EFA-only interface takes the second slot of card 0
        (FIRST_CARD_WITHOUT_EFA, 198),  # 4 x 49 + 2
    ],
)
def test_max_pods_counts_slots_taken_by_efa(instance, pods):
    """EKS's own table counts slots that EFA-only interfaces take."""
    assert max_pods(instance) == pods
