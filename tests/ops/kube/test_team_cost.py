"""What teams cost, by the namespaces of their jobs."""

from datetime import UTC, datetime, timedelta

from megatron_eks.ops.cluster import cost
from megatron_eks.ops.cluster.team_cost import TeamCost, by_team, lines
from megatron_eks.ops.jobs.holdings import JobHoldings
from megatron_eks.ops.kube.teams import of_team
from megatron_eks.plan.spending import JobSpending, NodeCost
from megatron_eks.project import load_project
from tests import examples, schemas

NOW = datetime(2026, 11, 3, tzinfo=UTC)
OWNERS = {"ns-nlp": "nlp", "vision": "vision"}


def _job(
    space: str, hours: float, per_hour: float, *, ended: float = 0
) -> tuple[JobHoldings, JobSpending]:
    """Return a job that began some hours ago, and what it has cost."""
    end = NOW - timedelta(hours=ended) if ended else None
    begun = NOW - timedelta(hours=hours)
    held = JobHoldings("j", "Running", "p5", (), begun, end, None, space)
    spent = per_hour * (hours - ended)
    return held, JobSpending(1, 0 if ended else per_hour, spent)


def _nodes(idle):
    return NodeCost("p5", "p5.48xlarge", "on_demand", 4, idle, 0, 10.0, NOW, 0.0)


def test_a_month_begins_on_its_first_day():
    """Of a job that runs since October two days count; what others run is another team's."""
    jobs = [_job("ns-nlp", 96, 10), _job("ns-nlp", 12, 10, ended=2), _job("elsewhere", 1, 1)]
    found = [*by_team(OWNERS, jobs, [_nodes(3)], NOW)]
    assert found == [
        TeamCost("nlp", 10, 48 * 10 + 10 * 10),
        TeamCost("vision", 0, 0),
        TeamCost(None, 30, None),
    ]
    nlp, _, idle = [line for line in lines(found, NOW) if line][1:4]
    assert nlp.split() == ["nlp", "10.00", "580.00"]
    assert idle.split() == ["nodes", "without", "a", "job", "30.00"]


def test_a_price_that_is_not_known_stays_unknown():
    """As in all other sums; and a cluster without teams has none of it."""
    held, _ = _job("vision", 1, 1)
    (_, vision, _) = by_team(OWNERS, [(held, JobSpending(1, None, None))], [], NOW)
    assert vision == TeamCost("vision", None, None)
    assert [*by_team({}, [], [_nodes(1)], NOW)] == []
    assert [*lines([], NOW)] == []


def test_its_json_is_as_the_schema_has_it(tmp_path):
    """Of the example with two teams; where only one is seen, the other costs nothing to tell."""
    project = load_project(examples.copy("two-teams", tmp_path), NOW.date())
    jobs = tuple(
        cost.JobCostNow(held, spent, None, measured=False)
        for held, spent in (_job(each.namespace, 1, 2) for each in project.cluster.teams)
    )
    for seen, teams in (
        (project, ["nlp", "vision", None]),
        (of_team(project, "nlp"), ["nlp", None]),
    ):
        found = cost.CostNow(seen, NOW, (_nodes(1),), (), jobs, ())
        shown = schemas.checked("cost", cost.as_json(found, []))
        assert [each["team"] for each in shown["teams"]] == teams
    assert shown["teams"][0] == {"team": "nlp", "usd_per_hour": 2, "usd_this_month": 2}
