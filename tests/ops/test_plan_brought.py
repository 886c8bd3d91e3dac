"""`meks plan` of clusters that bring things along: what is made, what it costs, what to see to."""

import json
from datetime import date

import pytest
import yaml

from megatron_eks.ops.planning import plan
from tests.stacks.synthesis import cluster_file
from tests.variations import LUSTRE, VARIATIONS, VPC

BLOCK = {
    "type": "capacity_block",
    "id": "cr-0123456789abcdef0",
    "ends_at": "2026-12-01T12:30:00+01:00",
}


@pytest.fixture
def planned(tmp_path, capsys):
    """Return a function that plans a variation, as text or as JSON."""

    def run(name, output="json"):
        cluster = cluster_file()
        if name == "block":
            cluster["gpu_pools"][0] |= {"instance_type": "p5en.48xlarge", "capacity": BLOCK}
        else:
            VARIATIONS[name](cluster)
        (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster))
        assert plan.run(tmp_path / "cluster.yaml", output, date(2026, 11, 21)) == 0
        text = capsys.readouterr().out
        return json.loads(text) if output == "json" else text

    return run


def items(made):
    """Return what is billed by the hour."""
    return {item["item"]: item["count"] for item in made["cost"]["items"]}


def test_an_existing_vpc_costs_no_nat_gateway_and_asks_for_addresses(planned):
    """Two p4d nodes and both system nodes may stand in the pool's zone: 21 addresses each."""
    made = planned("existing_vpc")
    assert made["cluster"]["vpc_id"] == VPC
    assert items(made)["Interface endpoints"] == 2
    assert "NAT gateway" not in items(made)
    assert (
        "subnet-0123456789abcdef1 needs 84 free addresses for nodes and pods"
        in (made["cluster"]["notes"])
    )


def test_an_existing_cluster_costs_what_is_added_and_says_how_to_label_nodes(planned):
    """Jobs find nodes by the label and nothing else."""
    made = planned("existing_cluster")
    assert made["cluster"]["eks_cluster"] == "theirs"
    assert made["cluster"]["stacks"] == ["techpulse-Storage", "techpulse-Images"]
    assert set(items(made)) == {"FSx for Lustre, GiB", "p4d.24xlarge (p4d)"}
    [labels] = [note for note in made["cluster"]["notes"] if "--labels" in note]
    assert "--cluster-name theirs" in labels
    assert "addOrUpdateLabels={megatron-eks/pool=p4d}" in labels
    assert "key=nvidia.com/gpu,value=true,effect=NO_SCHEDULE" in labels


def test_an_existing_file_system_costs_nothing_more(planned):
    """And is said to be there."""
    assert "FSx for Lustre, GiB" not in items(planned("existing_lustre"))
    text = planned("existing_lustre", "table")
    assert f"{LUSTRE['id']} must admit the nodes on TCP 988 and 1018-1023" in text
    assert (
        f"on {LUSTRE['id']} the set-up Job of `meks apply` makes what is missing of /shared/data, "
        "/shared/tokenizer, /shared/checkpoints, /shared/logs, /shared/cache, for user 10001, and "
        "changes nothing else"
    ) in text


def test_each_zones_file_system_is_billed_by_itself(planned):
    """Twice the storage, and no synchronisation."""
    made = planned("two_zones")
    assert [each["claim"] for each in made["cluster"]["storage"]["file_systems"]] == [
        "fsx-shared-pvc",
        "fsx-shared-pvc-us-east-2a",
    ]
    assert {name for name in items(made) if name.startswith("FSx")} == {
        "FSx for Lustre in us-east-2a, GiB",
        "FSx for Lustre in us-east-2b, GiB",
    }


def test_scratch_is_slower_and_cheaper(planned):
    """200 MB/s for each TiB, whatever the file says, at 0.14 USD a GiB and month."""
    made = planned("scratch")
    [lustre] = made["cluster"]["storage"]["file_systems"]
    assert lustre["throughput_mb_s"] == pytest.approx(234.375)
    assert made["cost"]["idle_per_hour"] == pytest.approx(0.1 + 0.68 + 0.045 + 1200 * 0.14 / 730)


def test_queues_say_what_they_have_of_each_pool(planned):
    """A cluster without teams has one; without Kueue there is none."""
    share = {"pool": "p4d", "gpus": 16, "efa": 8}
    queues = [{"name": "megatron-workshop", "shares": [share]}]
    assert planned("without_a_way_out")["cluster"]["queues"] == queues
    assert "queues" not in planned("homes")["cluster"]


def test_a_mirror_is_told_what_to_hold(planned):
    """By the addresses at which nodes will look."""
    made = planned("without_a_way_out")
    mirrored = made["cluster"]["mirrored_images"]
    assert len(mirrored) == 10
    assert all(".amazonaws.com/mirror/" in image for image in mirrored)
    assert items(made)["Bastion"] == 1
    assert planned("homes")["cluster"]["mirrored_images"] == []


def test_efs_is_priced_by_what_it_holds(planned):
    """Which nobody knows before."""
    assert "EFS: 0.30 USD a month for each GiB" in planned("homes", "table")


def test_add_ons_without_a_pinned_version_are_named(planned):
    """Another day may bring another one."""
    chosen = "EKS chooses the version of eks-node-monitoring-agent, aws-efs-csi-driver.\n"
    assert chosen in planned("homes", "table")
    assert "EKS chooses" not in planned("existing_cluster", "table")


def test_a_capacity_block_has_an_end_and_no_price(planned):
    """What was paid for it is not made up, and why is said."""
    lines = planned("block", "table").splitlines()
    assert "p4d: capacity block cr-0123456789abcdef0, until 2026-12-01 12:30+01:00" in lines
    made = planned("block")
    [pool] = made["cluster"]["gpu_pools"]
    assert pool["capacity"]["ends_at"] == BLOCK["ends_at"]
    assert pool["placement_group"] is False
    assert made["cost"]["full_per_hour"] is None
    [note] = made["cost"]["notes"]
    assert note.endswith("(p4d): unknown here; a Capacity Block was paid when it was bought.")
    assert note in " ".join(" ".join(lines).split())
