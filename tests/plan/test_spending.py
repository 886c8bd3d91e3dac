"""What runs is priced as the plan prices it, and sums say when they do not know."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from megatron_eks.plan.cost import cluster_cost, standing_cost, total
from megatron_eks.plan.spending import (
    RankTime,
    RunningNode,
    hours_between,
    job_spending,
    node_costs,
)
from megatron_eks.project import ROOT, load_project

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def plan():
    """Plan the default cluster."""
    return load_project(ROOT / "cluster.yaml", date(2026, 11, 22)).cluster


def node(name, hours, **changes):
    """Return a node of the pool that has run for so long."""
    base = RunningNode(name, "p4d", "p4d.24xlarge", "on_demand", NOW - timedelta(hours=hours))
    return replace(base, **changes)


def test_the_whole_cluster_costs_what_the_plan_says(plan):
    """All nodes of the plan and what stands beside them: one price table."""
    system = replace(node("s", 1), pool="", instance_type=plan.system_nodes.instance_type)
    nodes = [node("a", 1), node("b", 1), *([system] * plan.system_nodes.count)]
    running = [each.usd_per_hour for each in node_costs(nodes, plan, NOW)]
    beside = [each.total for each in standing_cost(plan)]
    assert total([*running, *beside]) == pytest.approx(cluster_cost(plan).full_usd_per_hour)


def test_nodes_that_cost_the_same_are_one_line(plan):
    """Each has run for its own time; idle are those of pools without a job."""
    nodes = [
        node("a", 10, busy=True),
        node("b", 2),
        node("c", 1, joined=False),
        node("s", 5, pool="", instance_type="c5.2xlarge"),
    ]
    gpu, system = node_costs(nodes, plan, NOW)
    assert (gpu.count, gpu.idle, gpu.not_joined) == (3, 2, 1)
    assert gpu.usd_so_far == pytest.approx(13 * 21.957642)
    assert gpu.since == NOW - timedelta(hours=10)
    assert gpu.idle_usd_per_hour == pytest.approx(2 * 21.957642)
    # A system node waits for nobody.
    assert (system.pool, system.idle) == ("", 0)


def test_capacity_of_another_kind_is_another_line_without_a_list_price(plan):
    """Unless the configuration says what is paid."""
    nodes = [node("a", 1), node("b", 1, capacity="spot"), node("c", 1, capacity="capacity_block")]
    priced = {each.capacity: each.usd_per_hour for each in node_costs(nodes, plan, NOW)}
    assert priced == {"on_demand": 21.957642, "spot": None, "capacity_block": None}
    own = replace(plan, prices=replace(plan.prices, instances={"p4d.24xlarge": 9.0}))
    assert {each.usd_per_hour for each in node_costs(nodes, own, NOW)} == {9.0}


def test_a_clock_that_is_behind_makes_no_negative_cost():
    """The API server's time may be later than this machine's."""
    assert hours_between(NOW + timedelta(minutes=5), NOW) == 0


def test_a_job_pays_for_the_part_of_the_node_that_it_holds():
    """An ended rank costs nothing an hour any more; an unknown price makes the sum unknown."""
    ranks = [
        RankTime(hours=10, share=1.0, usd_each=20.0, runs=True),
        RankTime(hours=4, share=0.5, usd_each=20.0, runs=False),
    ]
    found = job_spending(ranks)
    assert (found.node_hours, found.usd_per_hour, found.usd_so_far) == (12, 20, 240)
    unknown = job_spending([*ranks, RankTime(1, 1.0, None, runs=True)])
    assert (unknown.node_hours, unknown.usd_per_hour, unknown.usd_so_far) == (13, None, None)
    assert job_spending([]).usd_so_far == 0
