"""How the VPC is carved, and what fits into it."""

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_eks.plan.cluster.network import addresses, carve, node_addresses, smallest_prefix

ZONES = tuple(f"us-east-2{letter}" for letter in "abcdef")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_subnets_lie_in_the_vpc_and_apart(count):
    """No subnet overlaps another, whatever the number of zones."""
    vpc = IPv4Network("10.0.0.0/16")
    subnets = carve(str(vpc), ZONES[:count])
    ranges = [IPv4Network(c) for s in subnets for c in (s.private_cidr, s.public_cidr)]
    assert len(ranges) == 2 * count
    assert all(cidr.subnet_of(vpc) for cidr in ranges)
    assert not any(a.overlaps(b) for i, a in enumerate(ranges) for b in ranges[i + 1 :])


def test_a_third_zone_moves_no_subnet():
    """A changed range would replace the subnet and everything in it."""
    assert carve("10.0.0.0/16", ZONES[:3])[:2] == carve("10.0.0.0/16", ZONES[:2])


@given(nodes=st.integers(1, 600), zones=st.integers(1, 6))
def test_the_smallest_prefix_is_enough_and_needed(nodes, zones):
    """The remedy of the address check works, and the next smaller VPC does not."""
    needed = node_addresses(nodes)
    prefix = smallest_prefix(needed, zones)
    fits = addresses(carve(f"10.0.0.0/{prefix}", ZONES[:zones])[0].private_cidr)
    short = addresses(carve(f"10.0.0.0/{prefix + 1}", ZONES[:zones])[0].private_cidr)
    assert fits >= needed > short
