"""How many nodes a pool is asked for, whose turn it is, and which node goes."""

import math
from collections.abc import Sequence

import pytest

from megatron_eks.programs.scaling.demand import Decision, Job, Node, Pool, decide

NOW = 1_000_000.0
POOL = Pool("p5", gpus=8, max_nodes=4, idle_seconds=900)
WHOLE, HALF = (8,), (4,)


def node(number: int, free: int = 8, **more) -> Node:
    """Return a node that has been there for long, busy where some GPUs are not free."""
    facts = {"ready": True, "busy": free < 8, "joined": NOW - 9999, **more}
    return Node(f"n{number}", f"i-{number}", free, **facts)


def job(name: str, *pods: int, waits: bool = True, since: float = 60) -> Job:
    """Return a job that got its place in the queue some seconds ago."""
    return Job(name, NOW - since, pods, waits)


def decided(nodes: Sequence[Node], *jobs: Job, size: int | None = None, **more) -> Decision:
    """Decide about a pool with as many instances as nodes, unless told otherwise."""
    pool = more.pop("pool", POOL)
    return decide(pool, nodes, jobs, len(nodes) if size is None else size, now=NOW, **more)


@pytest.mark.parametrize(
    ("nodes", "jobs", "size", "wanted"),
    [
        ([], [job("a", 8, 8)], 0, 2),
        ([], [job("a", 8, 8)], 2, None),
        ([], [job("a", 8, 8)], 1, 2),
        ([], [job("a", 8, 8), job("b", 8)], 2, 3),
        ([], [job("a", 4), job("b", 4)], 0, 1),
        ([], [job("a", 4, 4, 4)], 0, 2),
        ([node(1)], [job("a", 8, 8)], 1, 2),
        ([node(1, 4)], [job("a", 4)], 1, None),
        ([node(1, 4)], [job("a", 8)], 1, 2),
        ([node(1, 4), node(2, 4)], [job("a", 8)], 2, 3),
        ([node(1, cordoned=True)], [job("a", 8)], 1, 2),
        ([node(1, ready=False, joined=NOW - 60)], [job("a", 8)], 1, None),
        ([node(1, ready=False)], [job("a", 8)], 1, 2),
        ([node(1, leaving_since=NOW - 9, cordoned=True)], [job("a", 8)], 1, None),
        ([node(1, ended_at=NOW - 9, cordoned=True)], [job("a", 8)], 0, 1),
        ([], [job("a", *[8] * 5)], 0, 4),
        ([node(e, cordoned=True) for e in range(4)], [job("a", 8)], 4, None),
        ([node(e) for e in range(3)], [], 3, None),
    ],
)
def test_a_pool_has_the_nodes_that_its_jobs_take_and_never_fewer(nodes, jobs, size, wanted):
    """Those that start, and come back, count; those that somebody holds or that ended do not."""
    assert decided(nodes, *jobs, size=size).size == wanted


def test_a_job_starts_when_all_of_it_fits_behind_those_before_it():
    """A small one behind a large one does not take the node that this waits for."""
    nodes = [node(1)]
    small, large = job("small", 8, since=10), job("large", 8, 8, since=20)
    assert decided(nodes, small).ready == ["small"]
    both = decided(nodes, small, large)
    assert (both.ready, both.size) == ([], 3)
    assert decided(nodes, job("let-go", 8, waits=False), small).ready == []


def test_what_a_job_waits_for_is_told_and_after_half_an_hour_it_gives_its_place_away():
    """With AWS's reason, where it has one, and with the nodes that nobody can use."""
    new = decided([], job("a", 8, 8))
    assert new.told == {"a": "waits for 2 more nodes of pool p5 to start"}
    refused = decided([], job("a", 8, since=1801), size=1, trouble="no capacity")
    text = "waits for 1 more node of pool p5; AWS started none: no capacity"
    assert (refused.told, refused.given_up) == ({}, {"a": text})
    held = decided([node(e, cordoned=e < 2) for e in range(4)], job("a", 8, 8, 8))
    assert held.told["a"].endswith(", which has its 4, of which n0, n1 cannot be used")


@pytest.mark.parametrize(
    ("more", "went"),
    [
        ({"idle_since": NOW - 900}, "cordon"),
        ({"idle_since": NOW - 899}, ""),
        ({"idle_since": None}, ""),
        ({"idle_since": NOW - 9999, "busy": True}, ""),
        ({"idle_since": NOW - 9999, "cordoned": True}, ""),
        ({"idle_since": NOW - 9999, "cordoned": True, "leaving_since": NOW - 59}, ""),
        ({"idle_since": NOW - 9999, "cordoned": True, "leaving_since": NOW - 60}, "end"),
        ({"busy": True, "cordoned": True, "leaving_since": NOW - 60}, "uncordon"),
        ({"idle_since": NOW - 9999, "cordoned": True, "ended_at": NOW - 60}, ""),
        ({"idle_since": NOW - 9999, "cordoned": True, "ended_at": NOW - 9999}, "end"),
        ({"busy": True, "cordoned": True, "ended_at": NOW - 9999}, ""),
    ],
)
def test_a_node_goes_after_its_time_and_never_with_a_pod_on_it(more, went):
    """It is cordoned in one round, and ended in a later one; another's cordon holds it."""
    found = decided([node(1, **more)])
    done = {"cordon": found.cordon, "uncordon": found.uncordon, "end": found.end}
    assert [name for name, nodes in done.items() if nodes] == ([went] if went else [])


@pytest.mark.parametrize("waits", [True, False])
def test_nothing_goes_while_a_job_is_on_its_way(waits):
    """Its pods may be meant for that node, and what was about to go comes back."""
    idle = [node(1, idle_since=0.0), node(2, idle_since=0.0, cordoned=True, leaving_since=1.0)]
    found = decided(idle, job("a", 4, waits=waits))
    assert (found.cordon, found.end, found.uncordon) == ([], [], ["n2"])


@pytest.mark.parametrize(("until", "goes"), [(NOW - 1, True), (NOW + 1, False), (math.inf, False)])
def test_what_is_paid_anyway_stays(until, goes):
    """A Capacity Block until its end, and a reservation until somebody says manual."""
    pool = Pool("p5", 8, 4, 900, keep_until=until)
    assert bool(decided([node(1, idle_since=0.0)], pool=pool).cordon) is goes


def test_since_when_a_node_is_idle_is_noted_once_and_forgotten_with_the_next_pod():
    """A new pod of the program goes on where the last one was."""
    nodes = [node(1), node(2, idle_since=5.0), node(3, 0, idle_since=5.0), node(4, 0)]
    assert decided(nodes).idle == {"n1": NOW, "n3": None}
