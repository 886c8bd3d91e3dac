"""What holds for every object of every folder: valid, placed, unique, and nothing dangling."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import cdk8s
import pytest
import yaml

from charts import composition
from megatron_eks.plan.platform import GPU_TAINT
from megatron_eks.plan.quotas import SYSTEM_PRIORITIES
from tests.charts import rendered
from tests.charts.pod_security import violations
from tests.charts.rendered import Manifest, Pod, cluster, deployed, outputs, pods, training_job
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
NODE_LABELS = {"nvidia.com/gpu.present", "node.kubernetes.io/instance-type"}
# Pods that are not of this project's making, and the label that the operator sets.
FOREIGN_SELECTORS = {"k8s-app": "kube-dns", "training.kubeflow.org/job-name": "*"}

# A field of a pod spec that names another object, and that object's kind.
REFERENCES = (
    ("persistentVolumeClaim", "claimName", "PersistentVolumeClaim"),
    ("configMap", "name", "ConfigMap"),
    ("secret", "secretName", "Secret"),
    ("configMapKeyRef", "name", "ConfigMap"),
    ("secretKeyRef", "name", "Secret"),
    ("configMapRef", "name", "ConfigMap"),
    ("secretRef", "name", "Secret"),
)


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


def references(found: Pod) -> Iterator[tuple[str, str, str]]:
    """Yield the objects that a pod needs in its namespace."""
    for field, key, kind in REFERENCES:
        for reference in find(found.spec, field):
            yield kind, found.namespace, reference[key]
    if account := found.spec.get("serviceAccountName"):
        yield "ServiceAccount", found.namespace, account


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


def test_no_object_is_emitted_twice(everything):
    """Two objects of one name would overwrite each other in the cluster."""
    counts = Counter(
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in everything
    )
    assert {key: number for key, number in counts.items() if number > 1} == {}


def test_every_reference_of_a_pod_is_defined(everything):
    """Claims, config maps, secrets and service accounts exist in the pod's own namespace."""
    defined = names(everything)
    wanted = {reference for found in pods(everything) for reference in references(found)}
    # The one thing that a person makes, because no file of this project may hold a token.
    assert wanted - defined == {("Secret", "megatron-workshop", "hugging-face")}
    assert {kind for kind, _, _ in wanted} >= {"PersistentVolumeClaim", "ConfigMap"}


def test_every_priority_class_is_defined(everything):
    """The API server refuses a pod whose class it does not know, and only the pod."""
    defined = {item["metadata"]["name"] for item in everything if item["kind"] == "PriorityClass"}
    used = {found.spec.get("priorityClassName") for found in pods(everything)} - {None}
    assert defined <= used
    assert used <= defined | set(SYSTEM_PRIORITIES)


def test_every_volume_is_mounted_and_every_mount_has_a_volume(everything):
    """A volume without a mount is a mistake that Kubernetes accepts."""
    for found in pods(everything):
        volumes = {volume["name"] for volume in found.spec.get("volumes", ())}
        mounts = {
            mount["name"]
            for container in found.spec["containers"]
            for mount in container.get("volumeMounts", ())
        }
        assert mounts == volumes, found.owner["metadata"]["name"]


def test_every_selector_selects_something(everything):
    """Services, workloads and policies name labels that pods of their namespace carry."""
    labels = [(found.namespace, dict(found.labels)) for found in pods(everything)]
    for manifest in everything:
        spec = manifest.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector") or {}
        wanted = selector.get("matchLabels", selector if manifest["kind"] == "Service" else {})
        own = {key: value for key, value in wanted.items() if key not in FOREIGN_SELECTORS}
        namespace = manifest["metadata"].get("namespace")
        assert not own or any(
            own.items() <= pod_labels.items() and namespace == place for place, pod_labels in labels
        ), manifest["metadata"]["name"]


def test_every_node_selector_can_match(everything):
    """A label that no node carries leaves a pod Pending for ever."""
    pool_labels = {item for pool in cluster().pools for item in pool.labels.items()}
    for found in pods(everything):
        for key, value in found.spec.get("nodeSelector", {}).items():
            assert key in NODE_LABELS or (key, value) in pool_labels
        for requirement in find(found.spec, "matchExpressions"):
            assert {entry["key"] for entry in requirement} <= NODE_LABELS


def test_what_takes_a_gpu_tolerates_the_taint_of_its_nodes(everything):
    """GPU nodes keep every other pod away."""
    takers = [item for item in pods(everything) if "nvidia.com/gpu" in str(item.spec["containers"])]
    assert takers
    for found in takers:
        assert GPU_TAINT in {toleration["key"] for toleration in found.spec["tolerations"]}


def test_every_image_is_pinned(everything):
    """By digest, or by a tag that says a version."""
    images = [image for found in pods(everything) for image in find(found.spec, "image")]
    for image in images:
        reference, _, digest = image.partition("@")
        _, _, tag = reference.rpartition("/")[2].partition(":")
        assert digest.startswith("sha256:") or any(map(str.isdigit, tag)), image


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


def test_no_pod_is_given_a_secret_as_text(everything):
    """A value in a manifest ends in logs and in version control."""
    for found in pods(everything):
        for entries in find(found.spec, "env"):
            for entry in entries:
                assert not any(word in entry["name"] for word in ("TOKEN", "SECRET", "PASSWORD"))


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
    ]
    read = [item for file in files for item in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    assert read == platform


def test_each_job_is_a_file_of_its_own(tmp_path):
    """So that one can be submitted without the others, and none comes with the platform."""
    app = cdk8s.App(outdir=str(tmp_path), yaml_output_type=cdk8s.YamlOutputType.FILE_PER_CHART)
    composition.build_jobs(app, cluster(), [training_job()])
    app.synth()
    assert [file.name for file in tmp_path.iterdir()] == ["megatron-cpt-techpulse.k8s.yaml"]
