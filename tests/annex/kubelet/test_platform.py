"""The platform of our charts on nodes that run it, and the nodes themselves."""

from pathlib import Path

import pytest

from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Object, wait_for

pytestmark = pytest.mark.control_plane


def test_a_node_offers_what_its_instance_type_has(cluster):
    """Under the labels and taints of its node group, and as a kubelet of its own."""
    node = cluster.client.list("v1", "Node", labels="megatron-eks/pool=p4d")[0]
    allocatable = node["status"]["allocatable"]
    offered = {key: allocatable[key] for key in ("nvidia.com/gpu", "vpc.amazonaws.com/efa", "pods")}
    assert offered == {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4", "pods": "250"}
    assert allocatable["hugepages-2Mi"] == "10256Mi"
    assert node["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] == "p4d"
    assert "localcloud/simulated" not in node["metadata"]["labels"]
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    assert taint in node["spec"]["taints"]


def test_every_workload_of_the_platform_runs(cluster):
    """On each GPU node the device plugins and the exporter, as far as they can be played."""

    def running() -> bool:
        sets: list[Object] = cluster.client.list("apps/v1", "DaemonSet")
        wanted = [each["status"].get("desiredNumberScheduled", 0) for each in sets]
        ready = [each["status"].get("numberAvailable", 0) for each in sets]
        return len(sets) == 3 and min(wanted) >= 4 and ready == wanted

    wait_for("the DaemonSets", running, 90)


def test_the_set_up_job_prepares_the_shared_directories_twice(cluster, emitted):
    """The second run finds everything as the first has left it, and changes nothing."""
    (job,) = (each for each in manifests.read(emitted / "platform") if each["kind"] == "Job")
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    client = cluster.client

    def ended() -> Object | None:
        status = client.get("batch/v1", "Job", name, namespace)["status"]
        return status if status.get("succeeded") or status.get("failed") else None

    assert wait_for("the Job", ended)["succeeded"] == 1
    folder = cluster.shared()
    (folder / "data" / "kept").write_text("corpus")
    made = dict.fromkeys(("cache", "checkpoints", "data", "logs", "tokenizer"), 0o770)
    assert modes(folder).items() >= made.items()
    client.delete("batch/v1", "Job", name, namespace)
    wait_for("its end", lambda: client.find("batch/v1", "Job", name, namespace) is None)
    client.apply(job)
    assert wait_for("the Job", ended)["succeeded"] == 1
    assert modes(folder).items() >= made.items()
    assert (folder / "data" / "kept").read_text() == "corpus"


def modes(folder: Path) -> dict[str, int]:
    """Return the permissions of each entry; other tests have left some of their own."""
    return {each.name: each.stat().st_mode & 0o7777 for each in folder.iterdir()}


def test_the_validation_job_succeeds(cluster, emitted, submit):
    """Its program is played, its pod is real."""
    (job,) = manifests.read_file(emitted / "validation" / "nvidia-smi-p4d.k8s.yaml")
    submit(job)
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]

    def succeeded() -> bool:
        status = cluster.client.get("batch/v1", "Job", name, namespace)["status"]
        return bool(status.get("succeeded"))

    wait_for("the validation", succeeded, 60)


def test_a_pod_reaches_the_api_server_as_its_own_account(cluster, run_pod, ended):
    """At the Service's address and with its projected token, as an operator in a pod would."""
    look = (
        "d=/var/run/secrets/kubernetes.io/serviceaccount;"
        ' $PYTHON -c "import ssl, urllib.request as u;'
        " r = u.Request('https://kubernetes.default.svc/apis/authentication.k8s.io/v1/'"
        " 'selfsubjectreviews', method='POST', data=b'{}', headers={'Content-Type':"
        " 'application/json', 'Authorization': 'Bearer ' + open('$d/token').read()});"
        " print(u.urlopen(r, context=ssl.create_default_context(cafile='$d/ca.crt')).read())\""
    )
    pod = ended(run_pod(look))
    assert "system:serviceaccount:default:default" in cluster.logs(pod, "main")
