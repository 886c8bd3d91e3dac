"""`meks cost` on a real API server, operator and scheduler, beside a local AWS."""

import io
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.cluster import cost
from megatron_eks.ops.console import Console, SystemClock
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import holdings
from megatron_eks.plan.spending import RunningNode
from tests import command, schemas
from tests.annex import jobs

pytestmark = pytest.mark.control_plane

_PRICE = 21.957642
_NAMESPACE = "megatron-workshop"


class Later(SystemClock):
    """A clock that is ahead, so that what runs has run for some time."""

    def __init__(self, hours: float) -> None:
        self._ahead = timedelta(hours=hours)

    def now(self) -> datetime:
        """Return the time."""
        return super().now() + self._ahead


@pytest.fixture
def ask(client, loaded):
    """Return a function that prices the cluster some hours from now, and what was warned of."""

    def call(hours=0.0, *, only=None, instances=None, project=loaded):
        out, err = io.StringIO(), io.StringIO()
        console = Console(io.StringIO(), out, err, Later(hours))
        held = holdings.read(client, project.cluster, console.clock.now(), only)
        assert cost.run(project, held, instances, [], output="json", console=console) == 0
        shown = schemas.read("cost", out.getvalue())
        return shown, err.getvalue()

    return call


def pool_of(shown):
    """Return the line of the GPU nodes."""
    (found,) = [each for each in shown["nodes"] if each["pool"] == "p4d"]
    return found


def ages(client):
    """Return for how many hours each GPU node has been there: tests before may have made them."""
    now = datetime.now(tz=UTC)
    made = [
        datetime.fromisoformat(each["metadata"]["creationTimestamp"])
        for each in client.list("v1", "Node", labels="megatron-eks/pool=p4d")
    ]
    return [(now - each).total_seconds() / 3600 for each in made]


def test_nodes_without_a_job_are_said_loudly(client, ask):
    """How many, what they cost, and the command that gives them back."""
    hours = 4 + sum(ages(client))
    shown, warned = ask(1)
    pool = pool_of(shown)
    assert (pool["count"], pool["idle"], pool["capacity"]) == (4, 4, "on_demand")
    assert pool["usd_so_far"] == pytest.approx(hours * _PRICE, rel=0.05)
    assert warned == (
        "warning MEKS-0793 kubernetes gpu_pools.p4d: no job runs on its 4 nodes p4d.24xlarge: "
        "87.83 USD an hour - meks scale p4d 0\n"
    )
    standing = {each["item"]: each["usd_per_hour"] for each in shown["standing"]}
    assert standing.keys() == {"EKS control plane", "FSx for Lustre, GiB", "NAT gateway"}
    system = next(each for each in shown["nodes"] if not each["pool"])
    parts = [pool["usd_per_hour"], system["usd_per_hour"], *standing.values()]
    assert shown["usd_per_hour"] == pytest.approx(sum(parts))


def test_a_job_pays_for_its_nodes_from_their_start_to_its_end(client, ask, submit):
    """Two ranks on two nodes; the other two nodes are idle, and that is said too."""
    job = submit(jobs.training_job("costs-money"))
    pods = jobs.wait_for_pods(client, job, 2, "Running")
    shown, warned = ask(3)
    (line,) = shown["jobs"]
    assert (line["name"], line["phase"], line["ranks"]) == ("costs-money", "Running", 2)
    assert line["usd_per_hour"] == pytest.approx(2 * _PRICE, rel=0.01)
    assert line["node_hours"] == pytest.approx(6, rel=0.02)
    assert line["usd_so_far"] == pytest.approx(6 * _PRICE, rel=0.03)
    assert (
        "2 of its 4 nodes p4d.24xlarge run without a job: 43.92 USD an hour - meks scale p4d 2"
        in warned
    )
    for pod in pods:
        path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{pod['metadata']['name']}"
        patch = {"metadata": {"annotations": {"localcloud/complete-after": "1s"}}}
        client.request("PATCH", path, patch, None, "application/merge-patch+json")
    jobs.wait_for_condition(client, job, "Succeeded")

    def ended():
        # The job has succeeded as soon as its master has, and its worker is then removed.
        return all(pod["status"]["phase"] == "Succeeded" for pod in jobs.pods_of(client, job))

    wait_for("the worker to end", ended)
    shown, _ = ask(10, only="costs-money")
    (line,) = shown["jobs"]
    # Ten hours later it has cost what it had cost at its end.
    assert (line["phase"], line["usd_per_hour"]) == ("Succeeded", 0)
    assert 0 < line["node_hours"] < 1
    assert line["ended"] is not None
    assert pool_of(shown)["idle"] == 4


def test_a_job_that_nobody_knows_is_not_found(ask):
    """Once it is deleted nothing of it is left to be counted."""
    with pytest.raises(Failure, match="MEKS-0729 no job") as raised:
        ask(only="never-was")
    assert raised.value.code == 3


def test_an_instance_that_did_not_join_is_billed_all_the_same(ask):
    """EC2 knows it, and the API server does not."""
    since = datetime.now(tz=UTC) - timedelta(hours=2)
    lost = RunningNode("i-lost", "p4d", "p4d.24xlarge", "on_demand", since)
    shown, _ = ask(instances=[lost, replace(lost, name="i-other", pool="theirs")])
    pool = pool_of(shown)
    assert (pool["count"], pool["not_joined"], pool["idle"]) == (5, 1, 5)
    assert pool["since"].startswith(f"{since:%Y-%m-%dT%H:%M}")


def test_ec2_knows_better_since_when_a_node_is_billed(client, ask):
    """A node that joined late was billed from its launch; it is the same node."""
    path = "/api/v1/nodes/p4d-0"
    patch = "application/merge-patch+json"
    node = client.get("v1", "Node", "p4d-0")
    if not node["spec"].get("providerID"):
        spec = {"spec": {"providerID": "aws:///us-east-2b/i-0123"}}
        client.request("PATCH", path, spec, None, patch)
    since = datetime.now(tz=UTC) - timedelta(hours=7)
    hours = 7 + sum(sorted(ages(client))[:3])
    instance = RunningNode("i-0123", "p4d", "p4d.24xlarge", "on_demand", since)
    shown, _ = ask(instances=[instance])
    pool = pool_of(shown)
    assert (pool["count"], pool["not_joined"]) == (4, 0)
    assert pool["usd_so_far"] == pytest.approx(hours * _PRICE, rel=0.05)


def test_the_command_prints_tables_that_fit(client, control_plane, project):
    """In 80 columns, with the loud line on stderr; no account is asked for a local cluster."""
    assert client
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment = {**kept, "KUBECONFIG": str(control_plane.kubeconfig), "HOME": "/nonexistent"}
    environment["AWS_EC2_METADATA_DISABLED"] = "true"
    done = command.meks("cost", "--cluster", project / "cluster.yaml", env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert not [line for line in lines if len(line) > 80 and not line.startswith("note:")]
    assert any(line.startswith("p4d.24xlarge (p4d)") and " 87.83" in line for line in lines)
    assert "MEKS-0793" in done.stderr
    assert "note: this is a cluster of `meks local up`: nobody is billed for it" in lines
