"""What holds for every object of every folder: valid, placed, unique, and nothing dangling."""

from collections.abc import Iterator
from typing import Any

import cdk8s
import pytest
import yaml

from charts import composition
from tests.charts import rendered
from tests.charts.pod_security import violations
from tests.charts.rendered import Manifest, cluster, deployed, outputs, pods, training_job
from tests.charts.validation import assert_valid

CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
    "PersistentVolume",
    "PriorityClass",
    "ValidatingWebhookConfiguration",
}
BUILT_IN_NAMESPACES = {"kube-system"}


# Set by the AMI, by EKS or by the kubelet, not by a pool.
# Pods that are not of this project's making, and the label that the operator sets.
# A field of a pod spec that names another object, and that object's kind.
def names(manifests: list[Manifest]) -> set[tuple[str, str, str]]:
    """Return kind, namespace and name of each object."""
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for item in manifests
    }


def find(value: Any, key: str) -> Iterator[Any]:
    """Yield every value of a key, however deep."""
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        for item in value.values():
            yield from find(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from find(item, key)


def test_the_api_server_would_accept_every_object(everything):
    """Types, unknown fields and list keys, by the schemas of the cluster's version."""
    for manifest in everything:
        assert_valid(manifest)


def test_every_object_has_a_place_that_exists(everything):
    """Namespaced objects name a namespace of this project or of Kubernetes; others name none."""
    known = {name for kind, _, name in names(everything) if kind == "Namespace"}
    for manifest in everything:
        namespace = manifest["metadata"].get("namespace")
        if manifest["kind"] in CLUSTER_SCOPED:
            assert namespace is None, manifest["metadata"]["name"]
        else:
            assert namespace in known | BUILT_IN_NAMESPACES, manifest["metadata"]["name"]


def test_every_pod_passes_its_namespace(everything):
    """Pod Security would refuse the pod, not the workload, so the mistake shows only there."""
    enforced = {
        item["metadata"]["name"]: item["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for item in everything
        if item["kind"] == "Namespace"
    }
    judged = [found for found in pods(everything) if found.namespace in enforced]
    assert {found.namespace for found in judged} == set(enforced)
    for found in judged:
        assert violations(found.spec, enforced[found.namespace]) == []


@pytest.mark.parametrize("outs", [outputs(), deployed()], ids=["preview", "deployed"])
def test_previews_are_marked_and_nothing_else_is(outs):
    """An object that holds a placeholder says so; an object that holds none does not."""
    plans = rendered.shipped_jobs(*(["null"] if outs.lustre.preview else []))
    for manifest in [*rendered.platform(outs=outs), *rendered.jobs(*plans)]:
        holds = "preview.invalid" in str(manifest) or "fs-preview" in str(manifest)
        annotations = manifest["metadata"].get("annotations", {})
        assert (annotations.get("megatron-eks/preview") == "true") == holds


def test_files_are_named_in_the_order_of_application(tmp_path, platform):
    """`kubectl apply -f DIRECTORY` goes by name: namespaces come first, the operator last."""
    app = cdk8s.App(outdir=str(tmp_path), yaml_output_type=cdk8s.YamlOutputType.FILE_PER_CHART)
    composition.build_platform(app, cluster(), deployed())
    app.synth()
    files = sorted(tmp_path.iterdir())
    assert [file.name.removesuffix(".k8s.yaml") for file in files] == [
        "00-namespaces",
        "10-network-policies",
        "11-quotas",
        "20-storage",
        "30-nvidia-device-plugin",
        "31-efa-device-plugin",
        "32-dcgm-exporter",
        "40-training-operator",
        "41-job-records",
    ]
    read = [item for file in files for item in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    assert read == platform


def test_each_job_is_a_file_of_its_own(tmp_path):
    """So that one can be submitted without the others, and none comes with the platform."""
    app = cdk8s.App(outdir=str(tmp_path), yaml_output_type=cdk8s.YamlOutputType.FILE_PER_CHART)
    composition.build_jobs(app, cluster(), [training_job()])
    app.synth()
    assert [file.name for file in tmp_path.iterdir()] == ["megatron-cpt-techpulse.k8s.yaml"]
