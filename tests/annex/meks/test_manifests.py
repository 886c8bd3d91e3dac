"""Everything that the default cluster emits, before a real API server."""

import pytest

from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import ApiError, Object, wait_for
from megatron_eks.synthesis import FOLDERS
from tests.annex import jobs
from tests.annex.acting import acting_as

pytestmark = pytest.mark.control_plane


def _identity(manifest: Object) -> tuple[str, str, str, str | None]:
    metadata = manifest["metadata"]
    return (
        manifest["apiVersion"],
        manifest["kind"],
        metadata["name"],
        metadata.get("namespace"),
    )


def _content(found: Object) -> Object:
    """Leave out what controllers change while one looks."""
    moving = {"resourceVersion", "managedFields"}
    metadata = {key: each for key, each in found["metadata"].items() if key not in moving}
    return {key: each for key, each in found.items() if key != "status"} | {"metadata": metadata}


def test_every_object_is_accepted_in_the_namespace_that_enforces_its_level(client, emitted):
    """Strict: a field that the server does not know would be an error here and lost elsewhere."""
    everything = [each for name in FOLDERS for each in manifests.read(emitted / name)]
    assert {each["kind"] for each in everything} >= {"DaemonSet", "Deployment", "Job", "PyTorchJob"}
    for manifest in everything:
        client.apply(manifest, dry_run=True)
    levels = {
        each["metadata"]["name"]: each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in client.list("v1", "Namespace")
        if "pod-security.kubernetes.io/enforce" in each["metadata"].get("labels", {})
    }
    assert levels == {
        "kubeflow": "restricted",
        "megatron-system": "baseline",
        "megatron-workshop": "restricted",
    }


def test_applying_the_platform_again_changes_nothing(client, emitted):
    """A person may run `kubectl apply` at any time, on a cluster at work."""
    for manifest in manifests.read(emitted / "platform"):
        before = client.get(*_identity(manifest))
        client.apply(manifest)
        assert _content(client.get(*_identity(manifest))) == _content(before), _identity(manifest)


def test_every_workload_of_the_platform_gets_its_pods(client):
    """A DaemonSet or Deployment is accepted even where each of its pods is refused."""

    def finished() -> bool:
        sets = client.list("apps/v1", "DaemonSet")
        deployments = client.list("apps/v1", "Deployment")
        tasks = client.list("batch/v1", "Job", "megatron-system")
        assert sets
        assert deployments
        assert tasks
        return (
            # More, while pods of a node that another test took away wait to be collected.
            all(each["status"].get("numberReady", 0) >= jobs.NODES for each in sets)
            and all(each["status"].get("readyReplicas") for each in deployments)
            and all(each["status"].get("succeeded") for each in tasks)
        )

    wait_for("the workloads of the platform", finished)


@pytest.mark.parametrize("namespace", ["megatron-workshop", "megatron-system"])
def test_the_claim_of_each_namespace_is_bound(client, namespace):
    """Each to the volume that names it, none to the other's."""
    name = "fsx-shared-pvc"

    def bound() -> Object | None:
        claim = client.get("v1", "PersistentVolumeClaim", name, namespace)
        return claim if claim["status"]["phase"] == "Bound" else None

    claim = wait_for("the claim to be bound", bound)
    assert claim["spec"]["volumeName"] == f"techpulse-{namespace}-{name}"


def test_an_unknown_field_is_refused(client):
    """In the PyTorchJob's own schema as in the pod's inside of it."""
    job = jobs.training_job("unknown-field")
    jobs.pod_specs(job)[0]["hostNetwrk"] = True
    with pytest.raises(ApiError, match="hostNetwrk: field not declared in schema"):
        client.apply(job)


def test_a_container_of_another_name_is_refused_by_the_webhook(client):
    """The operator's own check, asked by the server over TLS."""
    job = jobs.training_job("other-name")
    for pod in jobs.pod_specs(job):
        pod["containers"][0]["name"] = "main"
    with pytest.raises(ApiError, match="at least one container with name pytorch"):
        client.apply(job)


def test_a_pod_without_a_security_context_is_refused(client):
    """The namespace of jobs enforces `restricted`, it does not only announce it."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bare", "namespace": "megatron-workshop"},
        "spec": {"containers": [{"name": "pytorch", "image": "busybox"}]},
    }
    with pytest.raises(ApiError, match='violates PodSecurity "restricted:'):
        client.create(pod)


def test_a_user_without_a_role_may_not_submit(client):
    """Roles decide, here as in any cluster."""
    developer = acting_as(client, "developer")
    with pytest.raises(ApiError, match=r"\"developer\" cannot patch"):
        developer.apply(jobs.training_job("no-role"))
    developer.close()
