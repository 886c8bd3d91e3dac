"""Queues, and the controller that they are nothing without."""

from copy import deepcopy
from dataclasses import replace

import pytest

from megatron_eks.guards.check import check_manifests
from megatron_eks.guards.codes import Rule
from tests.charts import rendered
from tests.guards.slips import ABSENT, change

_QUEUE, _NAME = "megatron-workshop", "kueue-controller-manager"
_JOB, _LABEL = "TrainJob/megatron-cpt-techpulse", "metadata labels kueue.x-k8s.io/"
_ARGS = "spec template spec containers 0 args 0"
_DEFINED = "CustomResourceDefinition/workloads.kueue.x-k8s.io"


@pytest.fixture(scope="module")
def objects():
    """Render a platform with queues, and a job in one."""
    plan = rendered.other_platform(workload="trainjob", kueue=True)
    job = replace(rendered.training_job(), queue=_QUEUE, workload="trainjob")
    return [*rendered.platform(plan), *rendered.jobs(job, plan=plan)]


def test_ours_have_no_finding(objects):
    """With the controllers of all kinds beside each other."""
    assert check_manifests(objects) == []


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_JOB, f"{_LABEL}queue-name", "x", 0),
        (_JOB, f"{_LABEL}queue-name", ABSENT, 0),
        (
            "TrainJob/megatron-cpt-techpulse",
            "metadata labels kueue.x-k8s.io/priority-class",
            "x",
            0,
        ),
        (f"LocalQueue/{_QUEUE}", "spec clusterQueue", "x", 0),
        (f"ClusterQueue/{_QUEUE}", "spec resourceGroups 0 flavors 0 name", "x", 0),
        ("ResourceFlavor/p4d", "spec topologyName", "x", 0),
        (f"ClusterQueue/{_QUEUE}", "spec resourceGroups", ABSENT, 0),
        (f"ClusterQueue/{_QUEUE}", "spec preemption withinClusterQueue", ABSENT, 0),
        (f"ClusterQueue/{_QUEUE}", "spec namespaceSelector matchLabels", {"x": _QUEUE}, 0),
        (f"ClusterRole/{_NAME}", "rules 0 resources", ["nodes"], Rule.RIGHTS),
        (f"Role/{_NAME}", "rules 0 verbs", ["get"], Rule.RIGHTS),
        (f"Deployment/{_NAME}", "spec replicas", 2, Rule.OPERATOR),
        (
            f"Deployment/{_NAME}",
            "spec template spec containers 0 args 0",
            "--config=x",
            Rule.OPERATOR,
        ),
        ("Secret/kueue-webhook-server-cert", "metadata name", "other", Rule.OPERATOR),
        (_DEFINED, "metadata name", "x", Rule.OPERATOR),
    ],
)
def test_a_slip_is_reported(objects, name, path, value, code):
    """A job would wait for ever, or none would wait."""
    changed = deepcopy(objects)
    titles = [f"{each['kind']}/{each['metadata']['name']}" for each in changed]
    change(changed[titles.index(name)], path, value)
    assert {each.code for each in check_manifests(changed)} >= {code or Rule.MISSING_OBJECT}
