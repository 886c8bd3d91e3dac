"""Why a job waits in a queue, in words, and who comes next."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from megatron_eks.kubernetes.client import Client
from megatron_eks.ops.jobs import queue, queues
from megatron_eks.ops.jobs.expected import in_turn
from megatron_eks.ops.jobs.queues import Entry, Queues, Share
from tests import hostile
from tests.ops.kube.looks import NOW, stamp


def _entry(job, team, gpus, *, runs=False, priority=0, age=0):
    since = NOW - timedelta(minutes=age)
    told = "told by Kueue"
    return Entry(job, team, team, "p5", gpus, priority, since, has_place=runs, uid=job, told=told)


def _queues(*entries, lender_borrows=True, own=16, spare=0):
    """Return two teams of 16 GPUs, with what their jobs use."""
    used = {
        team: sum(each.gpus for each in entries if each.has_place and each.team == team)
        for team in ("vision", "nlp")
    }
    shares = (
        Share("vision", "p5", own, used["vision"], lender_borrows),
        Share("nlp", "p5", 16, used["nlp"], may_borrow=True),
    )
    return Queues(tuple(entries), shares, {"p5": spare})


_LARGE = _entry("llama", "nlp", 32, runs=True)
_OWN = _entry("vit", "vision", 16, runs=True)
_WAITS = _entry("wait", "vision", 16)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            _queues(_LARGE, _WAITS),
            "16 of 16 GPUs of team vision are lent to team nlp until llama ends",
        ),
        (
            _queues(_OWN, _WAITS, lender_borrows=False),
            "team vision uses 16 of its 16 GPUs of pool p5 until vit ends, and may not borrow",
        ),
        (
            _queues(_OWN, _entry("bert", "nlp", 8, runs=True), _WAITS),
            "it takes 16 GPUs, and 8 of 32 of pool p5 are idle until bert or vit ends",
        ),
        # By shares it could start, so nodes are missing.
        (_queues(_WAITS), "told by Kueue"),
        (replace(_queues(_LARGE, _WAITS), shares=()), "told by Kueue"),
    ],
)
def test_why_a_job_waits(found, why):
    """For its own team, for another that borrows, for both, or for what only Kueue knows."""
    assert found.why(_WAITS) == why


def test_who_comes_next():
    """Whoever stays within its share, then the higher class, then who came first."""
    borrows = _entry("borrows", "nlp", 32, priority=9, age=9)
    old, new = _entry("old", "vision", 8, age=5), _entry("new", "vision", 8, age=1)
    higher = _entry("higher", "vision", 8, priority=1)
    found = _queues(borrows, new, old, higher)
    assert [each.job for each in found.waiting] == ["higher", "old", "new", "borrows"]
    assert found.next_ones == {"higher"}


def test_of_two_that_borrow_whose_team_borrows_less_comes_next():
    """Of all pools together, and against its share; in a team a class still comes first."""
    less, more = _entry("less", "vision", 24), _entry("more", "nlp", 24, priority=9, age=9)
    low = _entry("low", "vision", 17, priority=-1)
    found = _queues(more, less, low)
    assert [each.job for each in found.waiting] == ["more", "less", "low"]
    elsewhere = Share("nlp", "p4d", 8, 16, may_borrow=True)
    found = replace(found, shares=(*found.shares, elsewhere))
    assert [each.job for each in found.waiting] == ["less", "low", "more"]


@pytest.mark.parametrize(
    ("found", "ends", "nodes", "expected"),
    [
        (
            _queues(_LARGE, _WAITS),
            {"llama": 5400},
            32,
            "it starts in about 90 min, when llama ends",
        ),
        (
            _queues(replace(_LARGE, leaves_in=90), _WAITS),
            {"llama": 90},
            32,
            "it starts in about 90 s, when llama has given its place back",
        ),
        (
            _queues(_LARGE, _WAITS),
            {},
            32,
            "when it starts is not known: nothing predicts the end of llama",
        ),
        # The job before it takes what becomes free first.
        (
            _queues(_OWN, _entry("old", "vision", 16, age=9), _WAITS, lender_borrows=False),
            {"vit": 60, "old": 7200},
            32,
            "it starts in about 2 h 01 min, when old ends",
        ),
        # Of the pool's nodes only some are there.
        (
            _queues(_OWN, _WAITS),
            {"vit": 60},
            8,
            "when it starts is not known: it takes 16 GPUs, and the nodes of pool p5 have 8",
        ),
        (
            _queues(_WAITS),
            {},
            32,
            "when it starts is not known: GPUs enough are free, and Kueue has not let it in yet",
        ),
        (
            replace(_queues(_LARGE, _WAITS), entries=(_WAITS,)),
            {},
            32,
            "when it starts is not known: jobs that you may not see have the rest",
        ),
    ],
)
def test_when_a_job_starts(found, ends, nodes, expected):
    """By the ends of what runs, in the order in which those that wait are tried."""
    assert str(dict(in_turn(found, "p5", ends, nodes))["wait"]) == expected


def test_of_one_team_its_shares_and_jobs():
    """The order and the reasons are those of all."""
    found = _queues(_LARGE, _WAITS, _entry("bert", "nlp", 8))
    cases = {"vision": [["vision"], ["wait"]], "nlp": [["nlp"], ["bert"]]}
    for team, both in cases.items():
        shown = "\n".join(queue.lines(found, {}, NOW, team=team)).split("\n\n")
        assert [[e.split()[0] for e in p.splitlines()[1:] if ":" not in e] for p in shown] == both
        data: Any = queue.as_json("c", found, {}, NOW, team=team)
        assert [[e["team"] for e in data["teams"]], [e["job"] for e in data["waiting"]]] == both
        assert [each["job"] for each in data["running"]] == ["llama"] * (team == "nlp")


def test_a_job_that_brings_its_nodes_waits_for_them_and_comes_first():
    """In the words of whoever starts them, or of AWS that does not."""
    brings = replace(_entry("brings", "vision", 16, priority=-1), nodes="waits for 2 more nodes")
    later = _entry("later", "nlp", 32, age=9)
    found = _queues(later, brings)
    assert (found.why(brings), found.next_ones) == ("waits for 2 more nodes", {"brings"})
    assert [each.job for each in found.waiting] == ["brings", "later"]
    # Its GPUs are counted as used, and none of the pool's nodes need be there yet.
    shares = tuple(replace(each, used=16) for each in found.shares if each.team == "vision")
    others = tuple(each for each in found.shares if each.team != "vision")
    scaled = replace(found, shares=shares + others, scaled=frozenset({"p5"}))
    start = dict(in_turn(scaled, "p5", {brings.uid: 3600, later.uid: 60}, 0))
    assert {uid: each.seconds for uid, each in start.items()} == {later.uid: 3600}


def test_words_of_others_stay_on_one_line():
    """What a cluster says reaches no terminal as it is."""

    class Fake:
        """Answers with one Workload, which somebody wrote by hand."""

        def list(self, _, kind, *__, **___):
            """Return it."""
            condition = {"type": "QuotaReserved", "status": "False", "message": hostile.ALL}
            lost = {"type": "Evicted", "status": "True", "reason": "NodeFailures"}
            lost["message"] = "there was no replacement for unhealthy node(s): n-1"
            metadata = {"name": "w", "namespace": "nlp", "creationTimestamp": stamp(NOW)}
            workload = {"metadata": metadata, "status": {"conditions": [lost, condition]}}
            return [workload] if kind == "Workload" else []

    shown = list(queue.lines(queues.read(cast("Client", Fake())), {}, NOW))
    assert "w: no other node could replace failed n-1; " in shown[-1]
    assert [hostile.acting(line) for line in shown if hostile.acting(line)] == []


def test_a_thousand_gpus_are_read_as_kubernetes_writes_them():
    """As `1k`, which is no number of Python's."""
    of_gpu = {"name": "nvidia.com/gpu"}
    quotas = [{**of_gpu, "nominalQuota": "2k", "borrowingLimit": "0"}]
    queue_of = {
        "metadata": {"name": "vision"},
        "spec": {"resourceGroups": [{"flavors": [{"name": "p5", "resources": quotas}]}]},
        "status": {
            "flavorsReservation": [{"name": "p5", "resources": [{**of_gpu, "total": "1k"}]}]
        },
    }

    class Fake:
        """Answers with one queue."""

        def list(self, _version, kind, _namespace=None, **_more):
            """Return it."""
            return [queue_of] if kind == "ClusterQueue" else []

    found = queues.read(cast("Client", Fake()))
    assert found.shares == (Share("vision", "p5", 2000, 1000, may_borrow=False),)
