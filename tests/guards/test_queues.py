"""Queues, and the controller that they are nothing without."""

import json
from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest

from megatron_eks.catalog import kueue
from megatron_eks.guards.check import check_manifests
from megatron_eks.guards.codes import Rule
from tests.charts import rendered
from tests.guards.slips import ABSENT, in_objects

_QUEUE, _NAME = "megatron-workshop", "kueue-controller-manager"
_JOB, _LABEL = "TrainJob/megatron-cpt-techpulse", "metadata labels kueue.x-k8s.io/"
_RUNTIME = "TrainingRuntime/megatron-cpt-techpulse"
_PODS = "spec template spec replicatedJobs 0 template spec template"
_GROUP = "spec resourceGroups 0"
_MUTATES = "MutatingWebhookConfiguration/kueue-mutating-webhook-configuration"
_ARGS = "spec template spec containers 0 args"
_SHARE = f"{_GROUP} flavors 0 resources"
_CHECK, _SCALER = "spec admissionChecksStrategy admissionChecks 0", "pool-scaler"
_USER, _ACCOUNT = "spec template spec securityContext", "spec template spec serviceAccountName"
_LIMITED = json.dumps({"integrations": {"frameworks": [*kueue.FRAMEWORKS.values()]}})
_DEFINED = "CustomResourceDefinition/workloads.kueue.x-k8s.io"


@cache
def _objects():
    """Render a platform with queues and a pool that they scale, and a job in one."""
    plan = rendered.other_platform(workload="trainjob", kueue=True)
    plan = replace(plan, pools=(replace(plan.pools[0], idle_minutes=15),))
    job = replace(rendered.training_job(), queue=_QUEUE, workload="trainjob")
    return [*rendered.platform(plan), *rendered.jobs(job, plan=plan)]


def test_ours_have_no_finding():
    """With the controllers of all kinds beside each other."""
    assert check_manifests(_objects()) == []


def test_nodes_of_whose_network_ec2_tells_nothing():
    """Their only level is the node itself: ranks cannot be asked to be nearer."""
    objects = deepcopy(_objects())
    (network,) = (each for each in objects if each["kind"] == "Topology")
    del network["spec"]["levels"][:-1]
    (runtime,) = (each for each in objects if each["kind"] == "TrainingRuntime")
    (group,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    notes = group["template"]["spec"]["template"]["metadata"]["annotations"]
    del notes[kueue.PREFERRED_ANNOTATION]
    assert check_manifests(objects) == []


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_JOB, f"{_LABEL}queue-name", "x", 0),
        (_JOB, f"{_LABEL}queue-name", ABSENT, 0),
        (_JOB, f"{_LABEL}priority-class", "x", 0),
        (_JOB, f"{_LABEL}priority-class", ABSENT, Rule.QUEUE_SHARE),
        (_RUNTIME, f"{_PODS} metadata annotations", {}, Rule.QUEUE_SHARE),
        (f"LocalQueue/{_QUEUE}", "spec clusterQueue", "x", 0),
        (f"ClusterQueue/{_QUEUE}", "spec resourceGroups 0 flavors 0 name", "x", 0),
        ("ResourceFlavor/p4d", "spec topologyName", "x", 0),
        (f"ClusterQueue/{_QUEUE}", "spec resourceGroups", ABSENT, 0),
        (f"ClusterQueue/{_QUEUE}", "spec preemption withinClusterQueue", ABSENT, 0),
        (f"ClusterQueue/{_QUEUE}", "spec preemption reclaimWithinCohort", "Never", 0),
        (f"ClusterQueue/{_QUEUE}", "spec namespaceSelector matchLabels", {"x": _QUEUE}, 0),
        ("ResourceFlavor/p4d", "spec nodeLabels", {"megatron-eks/pool": "p5"}, Rule.FLAVOR),
        ("ResourceFlavor/p4d", "spec tolerations", ABSENT, Rule.FLAVOR),
        (f"ClusterQueue/{_QUEUE}", f"{_GROUP} coveredResources 1", ABSENT, Rule.QUEUE_SHARE),
        (f"ClusterQueue/{_QUEUE}", f"{_SHARE} 0 nominalQuota", 17, Rule.QUEUE_SHARE),
        (f"ClusterQueue/{_QUEUE}", f"{_SHARE} 0 nominalQuota", 8, Rule.ABOVE_QUOTA),
        (f"ConfigMap/{_NAME}", "data configuration.json", "{}", Rule.UNQUEUED),
        (f"ConfigMap/{_NAME}", "data configuration.json", _LIMITED, Rule.UNQUEUED),
        (_MUTATES, "webhooks", ABSENT, Rule.UNQUEUED),
        (_MUTATES, "webhooks 0 failurePolicy", ABSENT, Rule.WEBHOOK),
        (_MUTATES, "webhooks 0 clientConfig service name", "x", Rule.WEBHOOK),
        (_MUTATES, "webhooks 0 clientConfig service path", "/mutate", Rule.WEBHOOK),
        (_MUTATES, "webhooks 0 rules 0 apiVersions", ["v1"], Rule.WEBHOOK),
        (_MUTATES, "webhooks 5 namespaceSelector", {}, Rule.WEBHOOK),
        (_MUTATES, "webhooks 5 objectSelector", {}, Rule.WEBHOOK),
        (_DEFINED, "spec conversion webhook clientConfig service name", "x", Rule.WEBHOOK),
        (f"ClusterRole/{_NAME}", "rules 0 resources", ["nodes"], Rule.RIGHTS),
        (f"Role/{_NAME}", "rules 0 verbs", ["get"], Rule.RIGHTS),
        (f"Deployment/{_NAME}", "spec replicas", 2, Rule.OPERATOR),
        (f"Deployment/{_NAME}", f"{_ARGS} 0", "--config=x", Rule.OPERATOR),
        ("Secret/kueue-webhook-server-cert", "metadata name", "other", Rule.OPERATOR),
        (f"ClusterQueue/{_QUEUE}", f"{_CHECK} name", "x", 0),
        (f"ClusterQueue/{_QUEUE}", f"{_CHECK} onFlavors", ["x"], 0),
        ("AdmissionCheck/megatron-eks-nodes", "spec controllerName", "x", Rule.OPERATOR),
        (f"Deployment/{_SCALER}", _ARGS, ABSENT, Rule.OPERATOR),
        (f"Deployment/{_SCALER}", _ACCOUNT, "default", Rule.RIGHTS),
        (f"ConfigMap/{_SCALER}", "data aws.py", ABSENT, Rule.OPERATOR),
        (f"Deployment/{_SCALER}", f"{_USER} runAsNonRoot", False, Rule.OPERATOR),
        (f"ClusterRole/{_SCALER}", "rules 1 verbs", ["list"], Rule.RIGHTS),
        (_DEFINED, "metadata name", "x", Rule.OPERATOR),
    ],
)
def test_a_slip_is_reported(name, path, value, code):
    """A job would wait for ever, or none would wait."""
    assert (code or Rule.MISSING_OBJECT).name in in_objects(_objects(), name, path, value)


def test_the_pool_scaler_resolves_names():
    """Without them it reaches no AWS, and no node of a pool comes or goes."""
    found = in_objects(_objects(), f"NetworkPolicy/{_SCALER}", "spec egress 2", ABSENT)
    assert Rule.RANKS_CUT_OFF.name in found
