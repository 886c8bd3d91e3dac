"""`meks nodes` against a real API server: the table, cordoning, suspects, and who may not."""

import contextlib
import json

import pytest

from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes.client import ApiError
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import nodes
from tests import consoles, hostile, schemas
from tests.annex.acting import acting_as

pytestmark = pytest.mark.control_plane

GOOD, BAD = "p4d-looked-after", "p4d-ill"
INSTANCE = "i-0123456789abcdef0"


@pytest.fixture
def console():
    """Return a console whose streams can be read."""
    return consoles.console()


@pytest.fixture
def pair(client, plan):
    """Make two nodes, one of which says that its GPU is lost."""
    made = gpu_node(plan.pools[0], 90)
    for name in (GOOD, BAD):
        spec = {**made["spec"]}
        if name == BAD:
            spec["providerID"] = f"aws:///us-east-2b/{INSTANCE}"
        client.create({**made, "metadata": {**made["metadata"], "name": name}, "spec": spec})
    condition = {
        "type": "AcceleratedHardwareReady",
        "status": "False",
        "reason": "NvidiaXID79Error",
        "message": "GPU 3 has fallen off the bus",
        "lastTransitionTime": "2026-11-22T10:00:00Z",
    }
    client.request(
        "PATCH",
        f"/api/v1/nodes/{BAD}/status",
        {"status": {"conditions": [condition]}},
        content_type="application/strategic-merge-patch+json",
    )
    yield
    for name in (GOOD, BAD):
        client.delete("v1", "Node", name)


def row(text, name):
    """Return a node's line."""
    return next(line for line in text.splitlines() if line.startswith(name))


@pytest.mark.usefixtures("pair")
def test_the_table_says_what_each_node_has(client, plan, console):
    """A node by its instance where Kubernetes knows it; the suspects are counted."""
    assert nodes.run(client, plan, "p4d", "table", console) == 0
    text = console.stdout.getvalue()
    assert row(text, "NODE").split()[4:] == ["STATE", "GPUS", "FREE", "EFA", "FAILED", "JOBS"]
    assert row(text, GOOD).split()[1:4] == ["p4d", "p4d.24xlarge", "us-east-2b"]
    assert row(text, GOOD).split()[-4:] == ["8", "8", "4", "0"]
    assert row(text, INSTANCE).split()[-1] == "1"
    assert text.endswith("1 suspect node: meks nodes --suspect\n")
    assert "system-0" not in text


@pytest.mark.usefixtures("pair")
def test_data_follow_the_published_schema(client, plan, console):
    """All nodes, those of no pool too."""
    assert nodes.run(client, plan, None, "json", console) == 0
    found = schemas.read("nodes", console.stdout.getvalue())
    by_name = {each["name"]: each for each in found["nodes"]}
    assert by_name["system-0"]["pool"] == ""
    assert by_name[BAD]["suspect"] is True
    assert by_name[BAD]["failures"][0]["what"] == (
        "AcceleratedHardwareReady is False: NvidiaXID79Error GPU 3 has fallen off the bus"
    )


@pytest.mark.usefixtures("pair")
def test_a_node_is_cordoned_with_a_reason_and_taken_back(client, plan, console):
    """By name or instance; twice does no harm."""
    for _ in range(2):
        assert nodes.cordon(client, plan, [INSTANCE, GOOD], "looks odd", console) == 0
    assert client.get("v1", "Node", GOOD)["spec"]["unschedulable"] is True
    nodes.run(client, plan, "p4d", "table", console)
    text = console.stdout.getvalue()
    assert "cordoned" in row(text, GOOD)
    assert f"{GOOD} is cordoned because: looks odd" in text
    for _ in range(2):
        assert nodes.uncordon(client, plan, [BAD, GOOD], console) == 0
    found = client.get("v1", "Node", GOOD)
    assert "unschedulable" not in found["spec"]
    assert nodes.REASON not in found["metadata"].get("annotations", {})
    assert f"{BAD} is suspect: AcceleratedHardwareReady" in console.stderr.getvalue()


@pytest.mark.usefixtures("pair")
def test_a_name_that_is_wrong_changes_nothing(client, plan, console):
    """Also not of those that are right."""
    with pytest.raises(Failure, match=r"MEKS-0865 no node p4d-9999, i-1 - nothing was") as raised:
        nodes.cordon(client, plan, [GOOD, "p4d-9999", "i-1"], "", console)
    assert raised.value.code == 3
    assert "unschedulable" not in client.get("v1", "Node", GOOD)["spec"]
    with pytest.raises(Failure, match=r"MEKS-0865 no pool 'p5' in the cluster file - known: p4d;"):
        nodes.run(client, plan, "p5", "table", console)


@pytest.mark.usefixtures("pair")
def test_suspects_are_named_with_the_command_that_keeps_jobs_away(client, plan, console):
    """Until that was run."""
    assert nodes.suspicious(client, plan, "table", console) == 4
    text = console.stdout.getvalue()
    assert text.startswith(f"MEKS-0866 {BAD} (p4d.24xlarge in us-east-2b, {INSTANCE}), ")
    assert f"--instance-id {INSTANCE} --no-should-decrement-desired-capacity" in text
    assert console.stderr.getvalue() == f"to keep jobs away: meks nodes cordon {BAD}\n"
    nodes.cordon(client, plan, [BAD], "it fails", console)
    data = consoles.console()
    assert nodes.suspicious(client, plan, "json", data) == 4
    found = schemas.read("nodes", consoles.written(data))
    assert [each["name"] for each in found["nodes"]] == [BAD]
    assert found["nodes"][0]["reason"] == "it fails"
    assert consoles.said(data) == ""


@pytest.mark.usefixtures("pair")
def test_what_nodes_say_does_not_act_on_a_terminal(client, plan, console):
    """Their conditions, and the reason that somebody gave."""
    condition = {
        "type": "AcceleratedHardwareReady",
        "status": "False",
        "reason": "NvidiaXID79Error",
        "message": hostile.ALL,
        "lastTransitionTime": "2026-11-22T10:00:00Z",
    }
    client.request(
        "PATCH",
        f"/api/v1/nodes/{BAD}/status",
        {"status": {"conditions": [condition]}},
        content_type="application/strategic-merge-patch+json",
    )
    nodes.cordon(client, plan, [GOOD], hostile.ALL, console)
    nodes.run(client, plan, "p4d", "table", console)
    assert nodes.suspicious(client, plan, "table", console) == 4
    nodes.uncordon(client, plan, [BAD], console)
    for stream in (console.stdout, console.stderr):
        assert "gone" in stream.getvalue()
        assert hostile.acting(stream.getvalue()) == []
    data = consoles.console()
    nodes.run(client, plan, "p4d", "json", data)
    by_name = {each["name"]: each for each in json.loads(consoles.written(data))["nodes"]}
    assert by_name[GOOD]["reason"] == hostile.ALL


def test_without_suspects_nothing_is_asked(client, plan, console):
    """And the exit code is 0."""
    assert nodes.suspicious(client, plan, "table", console) == 0
    assert console.stdout.getvalue() == "No node is suspect.\n"


def test_somebody_who_may_not_is_told(client, plan, console):
    """The server's words, and nothing changed."""
    with (
        contextlib.closing(acting_as(client, "nobody")) as nobody,
        pytest.raises(ApiError, match="forbidden"),
    ):
        nodes.cordon(nobody, plan, ["system-0"], "", console)
