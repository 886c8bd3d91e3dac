"""What teams cost, by the namespaces of their jobs."""

from datetime import UTC, datetime

from megatron_eks.ops.cluster import cost
from megatron_eks.ops.jobs.holdings import JobHoldings
from megatron_eks.ops.kube.teams import of_team
from megatron_eks.plan.spending import JobSpending, NodeCost
from megatron_eks.project import ROOT, load_project
from tests import examples, schemas

NOW = datetime(2026, 11, 3, tzinfo=UTC)


def _found(project, *jobs):
    """Return what is printed of jobs, each by its namespace and price, and of three idle nodes."""
    told = []
    for space, price in jobs:
        held = JobHoldings("j", "Running", "p5", (), NOW, None, None, space)
        told.append(cost.JobCostNow(held, JobSpending(1, price, 1), None, measured=False))
    nodes = (NodeCost("p5", "p5.48xlarge", "on_demand", 4, 3, 0, 10.0, NOW, 0.0),)
    return cost.CostNow(project, NOW, nodes, (), tuple(told), ())


def test_jobs_cost_the_team_of_their_namespace(tmp_path):
    """What others run is no team's; a price that is not known stays unknown."""
    project = load_project(examples.copy("two-teams", tmp_path), NOW.date())
    nlp, vision = (each.namespace for each in project.cluster.teams)
    found = _found(project, (nlp, 10), (nlp, 5), (vision, None), ("elsewhere", 1))
    teams = [("nlp", 15), ("vision", None), (None, 30)]
    assert [(each.team, each.usd_per_hour) for each in found.teams] == teams
    shown = schemas.checked("cost", cost.as_json(found, []))
    assert shown["teams"][0] == {"team": "nlp", "usd_per_hour": 15}


def test_where_one_team_is_seen_the_other_costs_nothing_to_tell(tmp_path):
    """And a cluster without teams has none of it."""
    project = load_project(examples.copy("two-teams", tmp_path), NOW.date())
    assert [each.team for each in _found(of_team(project, "nlp")).teams] == ["nlp", None]
    default = load_project(ROOT / "cluster.yaml", NOW.date())
    assert _found(default).teams == []
