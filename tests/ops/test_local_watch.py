"""What `meks local up --watch` refuses, and what it says where its Prometheus is silent."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from megatron_eks.config.cluster import Observability
from megatron_eks.config.codes import Code
from megatron_eks.localcloud.kubernetes.processes import free_port
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.local_watch import alerts, check_watched, write_watch
from megatron_eks.plan.cluster.alerts import rule_groups
from tests.charts.rendered import cluster

WATCHED = replace(cluster(), observability=Observability())


@pytest.mark.parametrize(
    ("plan", "has_processes"), [(cluster(), True), (WATCHED, False)], ids=["off", "simulated"]
)
def test_watching_nothing_is_refused(plan, has_processes):
    """Before anything is built, with both things that are needed."""
    with pytest.raises(Failure, match="only jobs of a watched cluster") as refused:
        check_watched(plan, Path("mine.yaml"), has_processes=has_processes)
    assert (refused.value.finding, refused.value.code) == (Code.NOT_WATCHED, 2)
    assert "observability.enabled: true in mine.yaml" in str(refused.value)
    assert "--nodes 1" in str(refused.value)
    check_watched(WATCHED, Path("mine.yaml"), has_processes=True)


def test_rules_are_those_of_the_stack(tmp_path):
    """What fires here would fire there."""
    _, rules = write_watch(tmp_path, WATCHED)
    assert yaml.safe_load(rules.read_text()) == rule_groups()


def test_a_prometheus_that_does_not_answer_is_said():
    """Nobody takes silence for health."""
    (line,) = alerts(free_port())
    assert line.startswith("alerts are not known: ")
