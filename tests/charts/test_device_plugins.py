"""The DaemonSets of GPU nodes: which there are, and from where."""

from dataclasses import replace

import pytest

from tests.charts import rendered
from tests.charts.rendered import cluster, only, other_platform, pod

NVIDIA = "nvidia-device-plugin"
EFA = "aws-efa-k8s-device-plugin"
DCGM = "dcgm-exporter"


def test_a_cluster_without_efa_has_no_efa_plugin():
    """An affinity without values is refused by the API server."""
    manifests = rendered.platform(other_platform(efa_instance_types=()))
    names = {item["metadata"]["name"] for item in manifests if item["kind"] == "DaemonSet"}
    assert names == {NVIDIA, DCGM}


@pytest.mark.parametrize(
    ("region", "registry"),
    [
        ("us-east-2", "602401143452.dkr.ecr.us-east-2.amazonaws.com"),
        ("ap-northeast-1", "602401143452.dkr.ecr.ap-northeast-1.amazonaws.com"),
        ("eu-south-1", "590381155156.dkr.ecr.eu-south-1.amazonaws.com"),
        ("us-gov-west-1", "013241004608.dkr.ecr.us-gov-west-1.amazonaws.com"),
    ],
)
def test_the_efa_plugin_comes_from_the_region_s_registry(region, registry):
    """EKS keeps its images in every region, in another account where regions are opt-in."""
    manifests = rendered.platform(replace(cluster(), region=region))
    image = pod(only(manifests, "DaemonSet", EFA)).container["image"]
    assert image.startswith(f"{registry}/eks/aws-efa-k8s-device-plugin:v")


def test_the_exporter_can_be_left_out():
    """A cluster with monitoring of its own sets `dcgm_exporter: false`."""
    manifests = rendered.platform(other_platform(dcgm_exporter=False))
    assert all(item["metadata"]["name"] != DCGM for item in manifests)
