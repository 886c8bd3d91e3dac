"""Priorities and quotas: who comes first, and how much all jobs together may hold."""

from dataclasses import replace

import pytest

from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster
from megatron_eks.plan.cluster.platform import plan_quotas
from megatron_eks.project import ROOT
from tests.charts import rendered
from tests.charts.rendered import training_job

GPU, EFA = "requests.nvidia.com/gpu", "requests.vpc.amazonaws.com/efa"
CLUSTER = (ROOT / "cluster.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("nodes", "gpus", "efa"), [(2, 16, 8), (450, 3600, 1800)], ids=["shipped", "ceiling"]
)
def test_jobs_may_hold_what_the_pools_have_at_their_largest(nodes, gpus, efa):
    """More can never run; a job that asks for it is refused instead of waiting for ever."""
    text = CLUSTER.replace("max_nodes: 2", f"max_nodes: {nodes}")
    config, _ = parse_cluster(read_mapping(text, "cluster.yaml"))
    assert config is not None
    limits = {quota.name: dict(quota.hard) for quota in plan_quotas(config)}
    assert limits["training"] == limits["all-but-training"] == {GPU: gpus, EFA: efa}
    assert limits["pods"] == {"pods": gpus + 100}


def test_a_job_may_name_another_class():
    """`runtime.priority_class`, on every rank."""
    plan = replace(training_job(), priority_class="nightly")
    found = rendered.pods(rendered.jobs(plan))
    assert {each.spec["priorityClassName"] for each in found} == {"nightly"}
