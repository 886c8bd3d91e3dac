"""Every GPU family and every kind of capacity, as templates that EKS takes."""

import json
import re
from itertools import product

import pytest

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.guards.check import check_templates
from tests.stacks.synthesis import cluster_file, linted, synthesise

RESERVATION = "cr-0123456789abcdef0"
CAPACITIES = {
    "on_demand": {"type": "on_demand"},
    "reservation": {"type": "reservation", "id": RESERVATION},
    "capacity_block": {
        "type": "capacity_block",
        "id": RESERVATION,
        "ends_at": "2026-12-01T11:30:00Z",
    },
    "spot": {"type": "spot"},
}
ZONES = ("us-east-2a", "us-east-2b", "us-east-2c")
LARGEST = [name for name in INSTANCES if name.startswith(("p4", "p5", "p6"))]

# In each cluster all pools stand side by side: every type on demand, then the P types otherwise.
NAMES = sorted(INSTANCES)
CLUSTERS = {
    "first types": list(product(NAMES[:19], ["on_demand"])),
    "last types": list(product(NAMES[19:], ["on_demand"])),
    "other capacity": list(product(LARGEST, ["reservation", "capacity_block", "spot"])),
}


def name_of(instance_type, kind):
    """Name a pool after what it is: a DNS label of at most 20 characters."""
    short = re.sub(r"[^a-z0-9]", "", instance_type.removesuffix("large"))
    return f"{short}-{kind[:5].replace('_', '')}"


def pools_of(cluster):
    """Describe the pools of one cluster, spread over its zones."""
    return [
        {
            "name": name_of(instance_type, kind),
            "instance_type": instance_type,
            "availability_zone": ZONES[index % 3],
            "max_nodes": 4,
            "capacity": CAPACITIES[kind],
        }
        for index, (instance_type, kind) in enumerate(CLUSTERS[cluster])
    ]


@pytest.fixture(scope="module")
def assemblies(sources, tmp_path_factory):
    """Synthesise the clusters, each once."""
    return {
        name: synthesise(
            {**cluster_file(), "gpu_pools": pools_of(name)}, sources, tmp_path_factory.mktemp("f")
        )
        for name in CLUSTERS
    }


def pool(assembly, instance_type, kind):
    """Return node group and launch template of a pool, and its plan."""
    template = assembly.template("Cluster")
    name = name_of(instance_type, kind)
    groups = template.properties("AWS::EKS::Nodegroup")
    [group] = [each for each in groups if each.get("NodegroupName") == name]
    launch = template.resources[group["LaunchTemplate"]["Id"]["Ref"]]["Properties"]
    return group, launch["LaunchTemplateData"], assembly.plan.pool(name)


EVERY = [(cluster, *each) for cluster, members in CLUSTERS.items() for each in members]


@pytest.mark.parametrize(("cluster", "instance_type", "kind"), EVERY)
def test_a_pool_is_rendered_as_planned(assemblies, cluster, instance_type, kind):
    """Type, interfaces and pods are the plan's; nothing of another family's leaks in."""
    group, launch, plan = pool(assemblies[cluster], instance_type, kind)
    assert launch["InstanceType"] == instance_type
    assert "InstanceTypes" not in group
    layout = [
        (nic["NetworkCardIndex"], nic["DeviceIndex"], nic["InterfaceType"])
        for nic in launch["NetworkInterfaces"]
    ]
    assert layout == [(nic.card, nic.device, nic.type) for nic in plan.interfaces]
    user_data = launch["UserData"]["Fn::Base64"]
    assert f'"maxPods": {plan.max_pods}' in user_data
    assert '"strategy": "RAID0"' in user_data
    assert len(group["Subnets"]) == 1


NAMED = {"CapacityReservationTarget": {"CapacityReservationId": RESERVATION}}
BOUGHT = {
    # On-demand capacity to EKS, and no market.
    "reservation": ("ON_DEMAND", NAMED, None),
    # EKS User Guide, "Create a managed node group with Capacity Blocks for ML".
    "capacity_block": ("CAPACITY_BLOCK", NAMED, {"MarketType": "capacity-block"}),
    # EKS refuses the market option in a launch template.
    "spot": ("SPOT", None, None),
}


@pytest.mark.parametrize(("instance_type", "kind"), [*product(LARGEST, BOUGHT)])
def test_node_group_and_launch_template_buy_together(assemblies, instance_type, kind):
    """Each says what EKS takes there, and nothing starts by itself."""
    group, launch, _ = pool(assemblies["other capacity"], instance_type, kind)
    keys = ("CapacityReservationSpecification", "InstanceMarketOptions")
    assert (group["CapacityType"], *map(launch.get, keys)) == BOUGHT[kind]
    assert group["ScalingConfig"]["DesiredSize"] == 0


@pytest.mark.parametrize(("cluster", "instance_type", "kind"), EVERY)
def test_only_on_demand_nodes_with_efa_share_a_rack(assemblies, cluster, instance_type, kind):
    """By default; without EFA nothing is gained by it."""
    _, launch, _ = pool(assemblies[cluster], instance_type, kind)
    wanted = kind == "on_demand" and INSTANCES[instance_type].efa_interfaces > 0
    assert ("Placement" in launch) == wanted


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_no_rule_has_anything_to_say(assemblies, cluster):
    """The guards read the same catalogue, and count for themselves."""
    files = assemblies[cluster].directory.glob("*.template.json")
    templates = {file.name: json.loads(file.read_text()) for file in files}
    assert len(templates) == 4
    assert [str(finding) for finding in check_templates(templates)] == []


def test_the_linter_has_nothing_to_say_of_other_capacity(assemblies):
    """All P types, reserved, in Capacity Blocks and on spot."""
    # Which types a region has is EC2's to say.
    assert linted(assemblies["other capacity"].text("Cluster"), "E3628") == []
