"""Requests that a real API server refuses, or whose answers are lost."""

import json
import threading

import pytest
import yaml

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.cluster import apply
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import status, status_view
from megatron_eks.ops.kube import access as ways
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from tests.annex.fault_proxy import drop, lose_answer, refuse
from tests.annex.meks.faults.world import MAPS, NAMESPACE
from tests.consoles import console, said

pytestmark = pytest.mark.control_plane


@pytest.fixture
def put(proxy, loaded, tmp_path, client):
    """Return a function that applies three objects through the server in front."""
    file = tmp_path / "maps.yaml"
    file.write_text(yaml.safe_dump_all(MAPS))

    def call():
        made = console(yes=True)
        on = Opened(Access(proxy.client, is_local=True), loaded, made)
        code = apply.run([file], on, platform=tmp_path, wait_seconds=30)
        return code, said(made)

    yield call
    for each in MAPS:
        client.delete("v1", "ConfigMap", each["metadata"]["name"], NAMESPACE, missing_ok=True)


@pytest.mark.parametrize(
    ("act", "times", "code", "exit_code", "said"),
    [
        (refuse(409, "Conflict", "the object has been modified"), 1, "MEKS-0721", 1, "somebody"),
        (refuse(403, "Forbidden", 'forbidden: User "x"'), 1, "MEKS-0721", 1, "admin_role_arns"),
        (refuse(500, "InternalError", "etcd is gone"), 1, "MEKS-0721", 1, "etcd is gone"),
        (refuse(401, "Unauthorized"), 2, "MEKS-0721", 1, "this machine's clock"),
        (drop, 9, "MEKS-0720", 5, "check network"),
    ],
    ids=["conflict", "forbidden", "broken", "unauthorized", "cut"],
)
def test_an_apply_that_ends_in_the_middle_is_gone_on_with(  # noqa: PLR0917 -- its columns
    proxy, put, client, act, times, code, exit_code, said
):
    """The first object stays, the message says what happened, and a second run does the rest."""
    with (
        proxy.failing("PATCH", r"configmaps/extra-1\?(?!.*dryRun)", act, times),
        pytest.raises(ways.ERRORS) as raised,
    ):
        put()
    failure = ways.explained(raised.value)
    assert (str(failure.finding), failure.code) == (code, exit_code)
    assert said in str(failure)
    there = {each["metadata"]["name"] for each in client.list("v1", "ConfigMap", NAMESPACE)}
    assert "extra-0" in there
    assert not {"extra-1", "extra-2"} & there
    done, told = put()
    assert done == 0
    assert "2 to create, 1 object as it should be" in told
    assert "no changes, 3 objects as they should be" in put()[1]


def test_a_right_that_is_missing_is_found_before_anything_changes(proxy, put, client):
    """One of three objects is refused in the comparison: nothing is half done."""
    act = refuse(403, "Forbidden", 'configmaps "extra-2" is forbidden: User "x" cannot patch')
    with (
        proxy.failing("PATCH", r"configmaps/extra-2\?.*dryRun", act),
        pytest.raises(ways.ERRORS) as raised,
    ):
        put()
    assert "MEKS-0721 ConfigMap megatron-workshop/extra-2: " in str(ways.explained(raised.value))
    there = {each["metadata"]["name"] for each in client.list("v1", "ConfigMap", NAMESPACE)}
    assert not {"extra-0", "extra-1", "extra-2"} & there


def test_an_answer_that_is_lost_is_no_second_object(proxy, put, client):
    """The API server has done it; the connection is opened again, and the same is asked again."""
    with proxy.failing("PATCH", r"configmaps/extra-1\?(?!.*dryRun)", lose_answer):
        assert put()[0] == 0
        assert len(proxy.met) == 1
    assert client.get("v1", "ConfigMap", "extra-1", NAMESPACE)["data"] == {"key": "value"}


def test_a_submission_whose_answer_is_lost_starts_one_job(proxy, send, client):
    """The second request meets the job of the first, which is the same."""
    path = rf"/namespaces/{NAMESPACE}/pytorchjobs\?"
    # A connection that has carried nothing yet is not opened again: warm it first.
    with proxy.failing("POST", path, lose_answer):
        code, told = send(proxy.client, "lost-answer")
        assert len(proxy.met) == 1
    assert code == 0
    assert "lost-answer: " in told
    found = [
        each["metadata"]["name"] for each in client.list("kubeflow.org/v1", "PyTorchJob", NAMESPACE)
    ]
    assert found.count("lost-answer") == 1


def test_two_people_who_submit_at_once_start_one_job(proxy, send, client):
    """Both see it; who wants another specification is told, and nothing is changed."""
    ended: list[object] = []

    def one(way, *changes):
        try:
            ended.append(send(way, "both-of-us", *changes)[0])
        except Failure as failure:
            ended.append(str(failure.finding))

    threads = [threading.Thread(target=one, args=(way,)) for way in (client, proxy.client)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert ended == [0, 0]
    uid = client.get("kubeflow.org/v1", "PyTorchJob", "both-of-us", NAMESPACE)["metadata"]["uid"]
    one(proxy.client, "training.train_iters=9000")
    assert ended[-1] == "MEKS-0728"
    now = client.get("kubeflow.org/v1", "PyTorchJob", "both-of-us", NAMESPACE)["metadata"]["uid"]
    assert now == uid


def test_without_the_operators_definition_the_remedy_installs_it(proxy, send, client):
    """The API server knows no PyTorchJob: nothing of the job is started."""
    gone = refuse(404, "NotFound", "the server could not find the requested resource")
    with (
        proxy.failing("GET", r"^/apis/kubeflow\.org/v1$", gone, 99),
        pytest.raises((Failure, *ways.ERRORS)) as raised,
    ):
        send(proxy.client, "no-definition")
    failure = raised.value if isinstance(raised.value, Failure) else ways.explained(raised.value)
    assert "MEKS-0730" in str(failure)
    assert "meks apply" in failure.remedy
    assert client.find("kubeflow.org/v1", "PyTorchJob", "no-definition", NAMESPACE) is None


def test_half_of_the_ranks_are_shown_as_what_they_are(client, loaded, send):
    """Two of four nodes take no pods: each rank has its own state, and the others their reason."""
    patch = "application/merge-patch+json"
    cordoned = ["p4d-0", "p4d-1"]

    def cordon(value):
        for node in cordoned:
            spec = {"spec": {"unschedulable": value}}
            client.request("PATCH", f"/api/v1/nodes/{node}", spec, None, patch)

    cordon(value=True)
    try:
        send(client, "half-of-it", "nodes=4")

        def now():
            seen = status.read(client, loaded, "half-of-it")
            found = json.loads(json.dumps(status_view.as_json(seen)))
            phases = [each["phase"] for each in found["ranks"]]
            # Before the scheduler has come to them, they wait for their pods.
            reasons = [
                rank
                for why in found["waits_for"]
                for rank in why["ranks"]
                if why["why"].startswith("waits for a node: ")
            ]
            whole = len(phases) == 4 and phases.count("Running") == len(reasons) == 2
            return found if whole else None

        found = wait_for("two ranks, and why the others wait", now, 90)
    finally:
        cordon(value=None)
    assert found["phase"] == "Starting"
    for each in found["ranks"]:
        assert (each["phase"] == "Running") is (each.get("node") in {"p4d-2", "p4d-3"})
    waiting = sorted(rank for why in found["waits_for"] for rank in why["ranks"])
    assert waiting == [each["rank"] for each in found["ranks"] if each["phase"] != "Running"]
