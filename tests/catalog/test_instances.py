"""The instance catalogue, against what others publish of the same types."""

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from megatron_eks.catalog.instances import INSTANCES, REFUSED_FAMILIES
from megatron_eks.catalog.pricing import PriceList

# Karpenter v1.14, reference/instance-types: pods, and allocatable CPU and memory (MiB) of AL2023.
PUBLISHED = {
    "p4d.24xlarge": (737, 95690, 1082712),
    "p4de.24xlarge": (737, 95690, 1082712),
    "p5.4xlarge": (118, 15890, 240830),
    "p5.48xlarge": (100, 191450, 1938410),
    "p5en.48xlarge": (198, 191450, 1937332),
    "p6-b200.48xlarge": (198, 191450, 1937332),
    "p6-b300.48xlarge": (198, 191450, 3877198),
    "g5.xlarge": (58, 3920, 14162),
    "g5.8xlarge": (234, 31850, 118312),
    "g5.48xlarge": (345, 191450, 723299),
    "g6.12xlarge": (234, 47810, 178933),
    "g6e.12xlarge": (292, 47810, 360157),
    "g6e.48xlarge": (492, 191450, 1449132),
    "g7e.2xlarge": (254, 7910, 57471),
    "g7e.48xlarge": (632, 191450, 1932558),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_formulas_give_what_karpenter_publishes(name):
    """What the kubelet offers follows from the size of the instance and nodeadm's formulas."""
    found = INSTANCES[name]
    sizes = (found.primary_card_pods, found.allocatable_cpu_millis, found.allocatable_memory_mib)
    assert sizes == PUBLISHED[name]


def test_ec2_knows_every_type():
    """A name that EC2's own model lacks would be a slip."""
    ec2 = boto3.client("ec2", region_name="us-east-2", config=Config(signature_version=UNSIGNED))
    known = set(ec2.meta.service_model.shape_for("InstanceType").enum)
    assert set(INSTANCES) <= known
    assert {name.split(".")[0] for name in known} >= set(REFUSED_FAMILIES)


def test_no_family_is_known_and_refused_at_once():
    """One or the other."""
    assert not {name.split(".")[0] for name in INSTANCES} & set(REFUSED_FAMILIES)


@pytest.mark.parametrize("name", INSTANCES)
def test_facts_of_a_type_agree_with_each_other(name):
    """What one fact says of another, whoever adds a type."""
    found = INSTANCES[name]
    assert 0 < found.gpu.usable_memory_mib < found.gpu.memory_mib
    assert found.gpu.has_fp8 or found.gpu.tflops_fp8 is None
    assert 0 <= found.efa_interfaces <= found.network_cards
    assert found.efa_interfaces or found.efa_generation is None
    assert found.efa_interfaces or not found.gpu_direct_rdma
    assert found.efa_interfaces or found.allreduce_min_busbw_gb_s is None
    assert found.gpus > 1 or not found.nvlink_gb_s


def test_a_price_that_nobody_publishes_is_unknown():
    """No type and no region borrows another's price."""
    assert PriceList("us-east-2").instance("p5e.48xlarge") is None
    assert PriceList("eu-west-1").instance("p4d.24xlarge") is None
    assert PriceList("us-west-2").instance("p5.48xlarge") == pytest.approx(55.04)


@pytest.mark.parametrize(("gpus", "efa"), [(1, 1), (2, 1), (4, 2), (8, 4)])
def test_a_part_of_a_node_has_its_share_of_efa(gpus, efa):
    """One at least, and a number: a manifest takes no True."""
    assert [INSTANCES["p4d.24xlarge"].efa_beside(gpus)] == [efa]
    assert type(INSTANCES["p4d.24xlarge"].efa_beside(gpus)) is int
    assert INSTANCES["g5.2xlarge"].efa_beside(gpus) == 0
