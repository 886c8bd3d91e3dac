"""Plans of the shipped cluster and job, and of variations of them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from megatron_eks.config.errors import has_errors
from megatron_eks.config.load import read_mapping
from megatron_eks.config.outputs import read_outputs
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.plan.cluster.cluster import ClusterPlan, plan_cluster
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.table import check_job, plan_job

ROOT = Path(__file__).parents[2]
TAGS = {"megatron": "a" * 20, "fsdp": "b" * 20}


def changed(text: str, changes: Mapping[str, str]) -> str:
    """Replace parts of a text, each of which must be there."""
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    return text


@pytest.fixture
def cluster() -> Callable[..., ClusterPlan]:
    """Plan the shipped cluster with changes."""

    def plan(changes: Mapping[str, str] | None = None) -> ClusterPlan:
        text = changed((ROOT / "cluster.yaml").read_text(), changes or {})
        config, findings = parse_cluster(read_mapping(text, "cluster.yaml"))
        assert config is not None, findings
        return plan_cluster(config, TAGS)

    return plan


@pytest.fixture
def job(cluster) -> Callable[..., JobPlan]:
    """Plan the shipped job with changes, on the shipped cluster with changes."""

    def plan(
        changes: Mapping[str, str] | None = None, on: Mapping[str, str] | None = None
    ) -> JobPlan:
        text = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
        parsed, findings = parse_job(read_mapping(changed(text, changes or {}), "job.yaml"))
        cluster_text = changed((ROOT / "cluster.yaml").read_text(), on or {})
        config, _ = parse_cluster(read_mapping(cluster_text, "cluster.yaml"))
        assert parsed is not None, findings
        assert config is not None
        assert not has_errors([*findings, *check_job(parsed, config)])
        outputs, _ = read_outputs(None, "techpulse", {"megatron": "m:1", "fsdp": "f:1"})
        return plan_job(parsed, cluster(on), outputs.images)

    return plan
