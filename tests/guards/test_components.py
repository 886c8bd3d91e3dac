"""Device plugins, the metrics exporter, the training operator and etcd."""

import pytest

from megatron_eks.guards.codes import Rule
from tests.guards.slips import ABSENT, in_manifest, without

_GPU, _EFA = "DaemonSet/nvidia-device-plugin", "DaemonSet/aws-efa-k8s-device-plugin"
_METRICS, _NAME, _ETCD = "DaemonSet/dcgm-exporter", "training-operator", "Deployment/etcd"
_OPERATOR, _RECORDS = f"Deployment/{_NAME}", "Deployment/job-records"
_HOOK = "ValidatingWebhookConfiguration/validator.training-operator.kubeflow.org"
_POD, _BOX = "spec template spec", "spec template spec containers 0"
_OLD = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.7"
_MIRROR = "registry.example.com/nvidia/k8s-device-plugin:v0.21.0"


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_EFA, f"{_POD} tolerations 0 key", "nvidia.com/gpus", Rule.DEVICE_PLUGIN),
        (_GPU, f"{_POD} nodeSelector", ABSENT, Rule.DEVICE_PLUGIN),
        (_GPU, f"{_POD} volumes 0 hostPath path", "/var/lib/kubelet", Rule.DEVICE_PLUGIN),
        (_EFA, f"{_BOX} volumeMounts 1 mountPath", "/dev/efa", Rule.DEVICE_PLUGIN),
        (_EFA, f"{_BOX} securityContext privileged", ABSENT, Rule.DEVICE_PLUGIN),
        (_EFA, f"{_BOX} image", _OLD, Rule.DEVICE_PLUGIN),
        (_EFA, f"{_POD} affinity", ABSENT, Rule.DEVICE_PLUGIN),
        (_METRICS, f"{_BOX} image", _MIRROR, Rule.DEVICE_PLUGIN),
        (_METRICS, f"{_BOX} args 1", "/etc/counters.csv", Rule.MONITOR),
        ("Service/dcgm-exporter", "metadata annotations prometheus.io/port", "80", Rule.MONITOR),
        (_METRICS, f"{_BOX} image", "nvidia/dcgm-exporter:4.2.3-4.1.3", Rule.MONITOR),
        (_OPERATOR, "spec replicas", 2, Rule.OPERATOR),
        (_OPERATOR, f"{_BOX} args 0", "--enable-scheme=tfjob", Rule.OPERATOR),
        (_OPERATOR, f"{_BOX} args 1", "--namespace=other", Rule.OPERATOR),
        (_OPERATOR, f"{_BOX} volumeMounts 1 mountPath", "/config", Rule.OPERATOR),
        (_RECORDS, "spec strategy type", "RollingUpdate", Rule.OPERATOR),
        (_RECORDS, f"{_BOX} args 1", "--volumes=/shared", Rule.OPERATOR),
        (_RECORDS, f"{_POD} securityContext runAsUser", 1000, Rule.OPERATOR),
        ("Role/job-records", "rules 0 verbs", ["list"], Rule.RIGHTS),
        ("ClusterRole/job-records", "rules 0 verbs", ["list"], Rule.RIGHTS),
        (f"Role/{_NAME}", "rules 0 verbs", ["get"], Rule.RIGHTS),
        (f"Role/{_NAME}", "rules 1 resourceNames", ABSENT, Rule.RIGHTS),
        (f"RoleBinding/{_NAME}", "subjects 0 namespace", "default", Rule.RIGHTS),
        (_HOOK, "webhooks 0 clientConfig service path", "/validate", Rule.WEBHOOK),
        (_HOOK, "webhooks 0 clientConfig service name", "operator", Rule.WEBHOOK),
        (f"Service/{_NAME}", "spec ports 0 port", 8443, Rule.WEBHOOK),
    ],
)
def test_a_wrong_part_is_reported(name, path, value, code):
    """A node offers no device, a job gets no pods, or each gets them twice."""
    assert code.name in in_manifest(name, path, value)


def test_old_plugin_of_p6():
    """Old plugins take the NVLink controllers of P6 nodes for EFA devices."""
    assert in_manifest(_EFA, f"{_BOX} image", _OLD, "p6-b200") == {Rule.DEVICE_PLUGIN.name}


@pytest.mark.parametrize(("path", "value"), [("spec replicas", 2), (f"{_BOX} command", ["sh"])])
def test_etcd(path, value):
    """Ranks meet in one etcd."""
    assert Rule.OPERATOR.name in in_manifest(_ETCD, path, value, "without_a_way_out")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (_GPU, Rule.DEVICE_PLUGIN),
        (_EFA, Rule.DEVICE_PLUGIN),
        *((f"{kind}/{_NAME}", Rule.RIGHTS) for kind in ("Role", "ClusterRoleBinding")),
        (_OPERATOR, Rule.SELECTOR),
        (_HOOK, Rule.OPERATOR),
        ("CustomResourceDefinition/pytorchjobs.kubeflow.org", Rule.OPERATOR),
    ],
)
def test_a_part_that_is_gone_is_missed(name, code):
    """Pods ask for what no node offers, or nobody makes them."""
    assert code.name in without(name)


def test_other_settings_are_right():
    """A company's registry, more threads and another right do no harm."""
    assert in_manifest(_GPU, f"{_BOX} image", _MIRROR) == set()
    assert in_manifest(_OPERATOR, f"{_BOX} args 4", "--controller-threads=16") == set()
    more = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    assert in_manifest(f"Role/{_NAME}", "rules", lambda old: [*old, more]) == set()
