"""Names, selectors, namespaces and network policies."""

import pytest

from megatron_eks.config.codes import Code
from megatron_eks.guards.check import check_bodies, check_manifests
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import body_at
from tests.guards.slips import ABSENT, in_manifest, manifests, without

_FETCH = "Job/fetch-tokenizer"
_POD = "spec template spec"
_NAMESPACE = "Namespace/megatron-workshop"
_LABEL = "metadata labels pod-security.kubernetes.io"
_SELECTOR = "spec selector app.kubernetes.io/name"
_DNS, _HTTPS = "NetworkPolicy/allow-dns", "NetworkPolicy/allow-https"
_IDENTITY, _OPERATOR = "NetworkPolicy/allow-pod-identity", "NetworkPolicy/training-operator"
_RANKS = "NetworkPolicy/ranks-of-megatron-gpt-7b"
_GPT = "PyTorchJob/megatron-gpt-7b"
_CLUSTER = "metadata annotations megatron-eks/cluster"
_PORT, _TO = "spec egress 0 ports 0 port", "spec egress 0 to 0"
_ONE_PORT = [{"port": 29500, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_FETCH, f"{_POD} serviceAccountName", "job", Rule.MISSING_OBJECT),
        (_FETCH, f"{_POD} priorityClassName", "training", Rule.MISSING_OBJECT),
        ("ConfigMap/ddp-llama-3-2-1b-5fb41d77", "metadata name", "ddp", Rule.MISSING_OBJECT),
        ("ConfigMap/dcgm-exporter", "data", ABSENT, Rule.MONITOR),
        (_FETCH, "metadata namespace", "megatron-workshp", Rule.MISSING_OBJECT),
        (_FETCH, "metadata namespace", ABSENT, Rule.MISSING_OBJECT),
        (_FETCH, f"{_POD} tolerations", lambda old: [*old, old[0]], Rule.DUPLICATE_IN_POD),
        ("ServiceAccount/jobs", "automountServiceAccountToken", True, Rule.NEEDLESS_PRIVILEGE),
        ("DaemonSet/dcgm-exporter", "spec selector matchLabels", {"a": "b"}, Rule.SELECTOR),
        ("Service/dcgm-exporter", _SELECTOR, "dcgm", Rule.SELECTOR),
        ("Service/dcgm-exporter", "spec ports 0 targetPort", "http", Rule.SERVICE),
        (_FETCH, _CLUSTER, "other", Code.OWNED_BY_ANOTHER),
        ("Namespace/megatron-system", _CLUSTER, ABSENT, Code.OWNED_BY_ANOTHER),
        (_NAMESPACE, f"{_LABEL}/enforce", "baseline", Rule.NAMESPACE_LEVEL),
        (_NAMESPACE, f"{_LABEL}/warn", "privileged", Rule.NAMESPACE_LEVEL),
        # What jobs and the operator must reach, and what nobody may.
        ("NetworkPolicy/default-deny", "spec policyTypes", ["Ingress"], Rule.POLICY_MEANING),
        (_DNS, _PORT, 54, Rule.RANKS_CUT_OFF),
        (_DNS, "spec egress 0 ports", lambda old: old[:1], Rule.RANKS_CUT_OFF),
        (_DNS, f"{_TO} podSelector", ABSENT, Rule.RANKS_CUT_OFF),
        (_HTTPS, _PORT, 80, Rule.RANKS_CUT_OFF),
        (_HTTPS, f"{_TO} ipBlock except", ABSENT, Rule.POLICY_MEANING),
        (_HTTPS, "spec policyTypes", ["Ingress"], Rule.POLICY_MEANING),
        (_IDENTITY, "spec egress 0 to", ABSENT, Rule.POLICY_MEANING),
        (_IDENTITY, f"{_TO} ipBlock cidr", "169.254.170.2/32", Rule.RANKS_CUT_OFF),
        (_RANKS, "spec egress", ABSENT, Rule.RANKS_CUT_OFF),
        (_OPERATOR, "spec ingress 0 from 0 ipBlock cidr", "192.168.0.0/16", Rule.RANKS_CUT_OFF),
        ("Job/fetch-tokenizer", "metadata name", "fetch-llama-3-1-8b", Rule.DUPLICATE_IN_POD),
        (_GPT, "spec runPolicy", {"ttlSecondsAfterFinish": 1}, Rule.JOB_FIELDS),
        (_GPT, "spec runPolicy", {"ttlSecondsAfterFinished": 1, "x": 1}, Rule.JOB_FIELDS),
        (_RANKS, "spec ingress 0 from 0 podSelector matchLabels", {"a": "b"}, Rule.RANKS_CUT_OFF),
        (_RANKS, "spec podSelector matchLabels", {"app": "other"}, Rule.RANKS_CUT_OFF),
        (_RANKS, "spec ingress 0 ports", lambda _: _ONE_PORT, Rule.RANKS_CUT_OFF),
        (_OPERATOR, "spec ingress 0 ports 0 port", 443, Rule.RANKS_CUT_OFF),
        (_OPERATOR, _PORT, 6443, Rule.RANKS_CUT_OFF),
        ("NetworkPolicy/job-records", _PORT, 6443, Rule.RANKS_CUT_OFF),
        (_OPERATOR, "spec egress", lambda old: old[:1], Rule.RANKS_CUT_OFF),
    ],
)
def test_a_wrong_reference_or_policy_is_reported(name, path, value, code):
    """Pods wait for what is not there, are refused, or are cut off."""
    assert code.name in in_manifest(name, path, value)


def test_an_account_that_is_gone_is_missed():
    """No pod of a job is made without it."""
    assert Rule.MISSING_OBJECT.name in without("ServiceAccount/jobs")


def test_other_names_are_right():
    """More tolerations, and another Pod Security version of all modes, are right."""
    more = {"key": "own", "operator": "Exists"}
    assert in_manifest(_FETCH, f"{_POD} tolerations", lambda old: [*old, more]) == set()


@pytest.mark.parametrize("name", [_DNS, _IDENTITY, _HTTPS, _RANKS])
def test_a_policy_that_is_gone_is_missed(name):
    """Each of the ways is needed."""
    assert without(name) == {Rule.RANKS_CUT_OFF.name}


def test_clusters_that_are_checked_together():
    """One finding says so, and not one for each object."""
    both = [*manifests(), *manifests("two-teams")]
    assert [each.code for each in check_manifests(both)] == [Code.OWNED_BY_ANOTHER]


def test_a_pool_that_the_templates_lack():
    """Pods that select it stay Pending."""
    bodies = [body_at(each, "") for each in manifests()]
    assert check_bodies(bodies, {"p4d": "p4d.24xlarge"}) == []
    found = check_bodies(bodies, {"p5": "p4d.24xlarge"})
    assert {each.code for each in found} == {Rule.NODE_SELECTOR}


def test_a_type_that_the_efa_plugin_leaves_out():
    """It is told once, at the plugin."""
    bodies = [body_at(each, "") for each in manifests()]
    (found,) = check_bodies(bodies, {"p4d": "p4de.24xlarge"})
    assert found.path[0] == "DaemonSet/aws-efa-k8s-device-plugin"
    types = f"{_POD} affinity nodeAffinity requiredDuringSchedulingIgnoredDuringExecution "
    types += "nodeSelectorTerms 0 matchExpressions 0 values"
    assert in_manifest(found.path[0], types, ["p5.48xlarge"]) == {Rule.DEVICE_PLUGIN.name}


def test_another_way_out_is_right():
    """A team may let its jobs reach a server of its own."""
    ports = [{"port": 5000, "protocol": "TCP"}]
    rule = {"to": [{"ipBlock": {"cidr": "10.9.0.4/32"}}], "ports": ports}
    assert in_manifest(_HTTPS, "spec egress", lambda old: [*old, rule]) == set()
    (https,) = (each for each in manifests() if each["metadata"]["name"] == "allow-https")
    pods = {"podSelector": {"matchLabels": {"app": "megatron-training"}}}
    own = {**https, "metadata": {**https["metadata"], "name": "own"}}
    own["spec"] = {**pods, "egress": [rule], "policyTypes": ["Egress"]}
    assert check_manifests([*manifests(), own]) == []


@pytest.mark.parametrize(
    ("namespaces", "codes"),
    [
        ({"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}, set()),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, set()),
        ({}, {Rule.POLICY_MEANING.name}),
    ],
)
def test_a_namespace_is_named_by_its_labels(namespaces, codes):
    """Prometheus may ask jobs for their metrics at one port; every namespace may not."""
    rule = {"from": [{"namespaceSelector": namespaces}], "ports": _ONE_PORT}
    assert in_manifest(_RANKS, "spec ingress", lambda old: [*old, rule]) == codes
