"""What `meks plan` says of nodes that are not bought on demand."""

import json
from datetime import date

import pytest

from megatron_eks.ops.planning import plan
from tests.ops.test_cli import CLUSTER, JOB

TODAY = date(2026, 11, 21)
BLOCK = "{type: capacity_block, id: cr-0123456789abcdef0, ends_at: 2026-12-01T12:30:00+01:00}"


@pytest.fixture
def block(tmp_path):
    """Write the shipped project with its pool in a Capacity Block of p5en."""
    (tmp_path / "jobs").mkdir()
    text = CLUSTER.replace("max_nodes: 2", f"max_nodes: 2\n    capacity: {BLOCK}")
    text = text.replace("instance_type: p4d.24xlarge", "instance_type: p5en.48xlarge")
    (tmp_path / "cluster.yaml").write_text(text)
    (tmp_path / "jobs" / "job.yaml").write_text(JOB)
    return tmp_path / "cluster.yaml"


def test_the_table_says_until_when_a_block_lasts(block, capsys):
    """With its zone, as the file has it; and its price is not made up."""
    assert plan.run(block, "table", TODAY, everything=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "p4d: capacity block cr-0123456789abcdef0, until 2026-12-01 12:30+01:00" in lines
    [sums] = [line for line in lines if line.startswith("Sum with all GPU nodes")]
    assert sums.split()[-1] == "unknown"


def test_json_has_capacity_and_the_reasons_of_unknown_prices(block, capsys):
    """The same content, for programs."""
    assert plan.run(block, "json", TODAY) == 0
    value = json.loads(capsys.readouterr().out)
    [pool] = value["cluster"]["gpu_pools"]
    assert pool["capacity"] == {
        "type": "capacity_block",
        "reservation_id": "cr-0123456789abcdef0",
        "ends_at": "2026-12-01T12:30:00+01:00",
    }
    assert pool["placement_group"] is False
    assert value["cost"]["full_per_hour"] is None
    assert value["cost"]["notes"] == [
        "p5en.48xlarge (p4d): unknown here; a Capacity Block was paid when it was bought."
    ]
