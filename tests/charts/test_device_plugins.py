"""The DaemonSets of GPU nodes: where they run, with which rights, and what they offer."""

import csv
from dataclasses import replace

import pytest

from megatron_eks.catalog import pins
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


def test_the_exporter_measures_what_its_config_map_lists(platform):
    """Argument, mount and key name one file, and every line of it is a counter."""
    data = only(platform, "ConfigMap", DCGM)["data"]
    found = pod(only(platform, "DaemonSet", DCGM))
    (volume,) = [item for item in found.spec["volumes"] if "configMap" in item]
    assert volume["configMap"]["name"] == DCGM
    (mount,) = [item for item in found.container["volumeMounts"] if item["name"] == volume["name"]]
    ((file, text),) = data.items()
    assert found.container["args"] == ["-f", f"{mount['mountPath']}/{file}"]
    rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
    assert all(len(row) == 3 and row[0].startswith("DCGM_FI_") for row in rows)
    assert {row[1] for row in rows} == {"gauge", "counter"}
    assert len({row[0] for row in rows}) == len(rows)


def test_the_exporter_can_be_left_out():
    """A cluster with monitoring of its own sets `dcgm_exporter: false`."""
    manifests = rendered.platform(other_platform(dcgm_exporter=False))
    assert all(item["metadata"]["name"] != DCGM for item in manifests)


def test_images_are_the_pinned_ones(platform):
    """Versions stand in the catalogue alone."""
    images = {
        name: pod(only(platform, "DaemonSet", name)).container["image"] for name in (NVIDIA, DCGM)
    }
    assert images == {NVIDIA: pins.NVIDIA_DEVICE_PLUGIN_IMAGE, DCGM: pins.DCGM_EXPORTER_IMAGE}
