"""Device plugins and the metrics exporter."""

import pytest

from megatron_eks.config.codes import Code
from tests.guards.slips import ABSENT, in_manifest, without

_GPU, _EFA = "DaemonSet/nvidia-device-plugin", "DaemonSet/aws-efa-k8s-device-plugin"
_METRICS = "DaemonSet/dcgm-exporter"
_POD, _BOX = "spec template spec", "spec template spec containers 0"
_OLD = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.7"
_MIRROR = "registry.example.com/nvidia/k8s-device-plugin:v0.21.0"


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_EFA, f"{_POD} tolerations 0 key", "nvidia.com/gpus", Code.DEVICE_PLUGIN),
        (_GPU, f"{_POD} nodeSelector", ABSENT, Code.DEVICE_PLUGIN),
        (_GPU, f"{_POD} volumes 0 hostPath path", "/var/lib/kubelet", Code.DEVICE_PLUGIN),
        (_EFA, f"{_BOX} volumeMounts 1 mountPath", "/dev/efa", Code.DEVICE_PLUGIN),
        (_GPU, f"{_BOX} env 3 value", "true", Code.DEVICE_PLUGIN),
        (_EFA, f"{_BOX} securityContext privileged", ABSENT, Code.DEVICE_PLUGIN),
        (_EFA, f"{_BOX} image", _OLD, Code.DEVICE_PLUGIN),
        (_EFA, f"{_POD} affinity", ABSENT, Code.NODE_SELECTOR),
        (_METRICS, f"{_BOX} image", _MIRROR, Code.DEVICE_PLUGIN),
        (_METRICS, f"{_BOX} args 1", "/etc/counters.csv", Code.MONITOR),
        ("Service/dcgm-exporter", "metadata annotations prometheus.io/port", "80", Code.MONITOR),
    ],
)
def test_a_wrong_plugin_is_reported(name, path, value, code):
    """A node without its plugin offers no device, and pods stay Pending."""
    assert code.name in in_manifest(name, path, value)


def test_old_plugin_of_p6():
    """Old plugins take the NVLink controllers of P6 nodes for EFA devices."""
    assert in_manifest(_EFA, f"{_BOX} image", _OLD, "p6-b200") == {Code.DEVICE_PLUGIN.name}


@pytest.mark.parametrize("name", [_GPU, _EFA])
def test_a_plugin_that_is_gone_is_missed(name):
    """Pods ask for what no node offers then."""
    assert Code.DEVICE_PLUGIN.name in without(name)


def test_a_mirror_is_right():
    """A company's registry, and a later version, are the user's to choose."""
    assert in_manifest(_GPU, f"{_BOX} image", _MIRROR) == set()
