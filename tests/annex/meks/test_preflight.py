"""`meks preflight cluster` and `meks fix` on a real API server, with a cluster made wrong."""

from contextlib import contextmanager

import pytest

from megatron_eks.config.codes import Code
from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import wait_for
from megatron_eks.localcloud.kubernetes import nodes
from megatron_eks.ops import checks
from megatron_eks.ops.cluster import preflight
from megatron_eks.ops.cluster.inside.live import parts
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import fix
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from tests import schemas
from tests.annex.acting import acting_as

pytestmark = pytest.mark.control_plane

_ODD = "odd-node"


@pytest.fixture
def look(client, loaded, console):
    """Return a function that checks the cluster, and gives codes with their paths."""

    def call(*, is_local=True, user=None):
        asked = client if user is None else acting_as(client, user)
        try:
            results = preflight.cluster(Access(asked, is_local), loaded)
        finally:
            asked.close()
        start = len(console.stdout.getvalue())
        checks.report(loaded.cluster, results, "json", console)
        shown = schemas.read("preflight", console.stdout.getvalue()[start:])
        found = [one for each in shown["checks"] for one in each["findings"]]
        return {f"{one['code']} {one['path']}": one["found"] for one in found}

    return call


@pytest.fixture
def mend(client, loaded, emitted, console):
    """Return a function that fixes a code."""
    assert emitted == loaded.file.with_name("dist")
    on = Opened(Access(client, is_local=True), loaded, console)
    return lambda code: fix.run(code, on, previews=True, wait_seconds=60)


@contextmanager
def odd_node(client, plan, *, allocatable=(), taints=None, labels=()):
    """Let a node of the pool differ from the others."""
    node = gpu_node(plan.pools[0], 9000)
    node["metadata"]["name"] = _ODD
    for part in ("capacity", "allocatable"):
        node["status"][part] |= dict(allocatable)
    node["metadata"]["labels"] |= {**dict(labels), "kubernetes.io/hostname": _ODD}
    if taints is not None:
        node["spec"]["taints"] = taints
    client.create(node)
    try:
        wait_for("the node", lambda: nodes.is_ready(client.get("v1", "Node", _ODD)))
        yield
    finally:
        client.delete("v1", "Node", _ODD, missing_ok=True)


def test_the_platform_as_it_was_applied_has_no_error(look):
    """What is left needs a kubelet: no Job runs on simulated nodes to its end."""
    left = {"MEKS-0848", "MEKS-0853", "MEKS-0854"}
    # A claim is bound a moment after it was applied.
    wait_for("nothing else", lambda: {each.split()[0] for each in look()} <= left)


@pytest.mark.parametrize(
    ("allocatable", "code", "text"),
    [
        ({"nvidia.com/gpu": "7"}, "MEKS-0842", "7 of 8 nvidia.com/gpu"),
        ({"vpc.amazonaws.com/efa": "0"}, "MEKS-0843", "0 of 4 vpc.amazonaws.com/efa"),
        ({"hugepages-2Mi": "0"}, "MEKS-0844", "0 MiB of hugepages-2Mi, and a pod asks for 5120"),
    ],
)
def test_a_node_that_offers_less_than_its_type_is_named(  # noqa: PLR0917 -- fixtures
    client, plan, look, allocatable, code, text
):
    """GPUs, EFA interfaces and huge pages against the catalogue."""
    with odd_node(client, plan, allocatable=allocatable):
        assert look()[f"{code} Node/{_ODD}.status.allocatable"] == text


def test_a_node_of_another_type_is_named(client, plan, look):
    """As after somebody changed the launch template by hand."""
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    with odd_node(client, plan, labels=labels):
        found = look()
    path = f"MEKS-0841 Node/{_ODD}.node.kubernetes.io/instance-type"
    assert found[path] == "p5.48xlarge, and pool p4d says p4d.24xlarge"


def test_a_missing_taint_is_found_and_put_back(client, plan, look, mend, console):
    """Beside the taints that the node has."""
    other = {"key": "team", "value": "nlp", "effect": "NoSchedule"}
    with odd_node(client, plan, taints=[other]):
        assert f"MEKS-0845 Node/{_ODD}.spec.taints" in look()
        assert mend("0845") == 0
        keys = {each["key"] for each in client.get("v1", "Node", _ODD)["spec"]["taints"]}
        assert {"team", "nvidia.com/gpu"} <= keys
        assert not any(each.startswith("MEKS-0845") for each in look())
    assert f"taint node {_ODD} with nvidia.com/gpu=true:NoSchedule" in console.stdout.getvalue()


def daemon_set(name, image):
    """Return a DaemonSet as somebody's Helm release makes it."""
    labels = {"app": name}
    container = {"name": "plugin", "image": image}
    tolerations = [{"operator": "Exists"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "tolerations": tolerations},
            },
        },
    }


def test_a_second_device_plugin_is_found(client, look):
    """Beside the platform's, on the same nodes."""
    client.create(daemon_set("their-plugin", "mirror.example/nvidia/k8s-device-plugin:v0.17.1"))
    try:
        found = look()
        text = found["MEKS-0850 DaemonSet/kube-system/their-plugin"]
        assert "kube-system/nvidia-device-plugin" in text
        assert "both offer nvidia.com/gpu on" in text
    finally:
        client.delete("apps/v1", "DaemonSet", "their-plugin", "kube-system", missing_ok=True)


def test_a_missing_daemon_set_is_found_and_applied_again(client, look, mend):
    """The EFA plugin: without it NCCL would use TCP."""
    name = "aws-efa-k8s-device-plugin"
    client.delete("apps/v1", "DaemonSet", name, "kube-system")
    wait_for("no plugin", lambda: not client.find("apps/v1", "DaemonSet", name, "kube-system"))
    assert look()[f"MEKS-0847 DaemonSet/kube-system/{name}"] == "it is missing"
    assert mend("0847") == 0
    assert client.find("apps/v1", "DaemonSet", name, "kube-system")


def test_on_eks_every_part_of_the_add_ons_is_asked_for(look, plan):
    """A cluster without add-ons lacks each of them, and says which add-on brings it."""
    found = look(is_local=False)
    missing = {each for each in found if each.startswith("MEKS-0847")}
    wanted = {
        f"MEKS-0847 {part.kind}/kube-system/{part.name}"
        for part in parts(plan, is_local=False)
        if part.addon
    }
    assert wanted <= missing
    assert "MEKS-0847 DaemonSet/kube-system/fsx-csi-node" in wanted


def test_a_missing_webhook_is_found(client, look):
    """Mistakes in jobs would show when they run."""
    kind = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
    name = "validator.training-operator.kubeflow.org"
    before = client.get(*kind, name)
    client.delete(*kind, name)
    try:
        found = look()
    finally:
        del before["metadata"]["resourceVersion"], before["metadata"]["uid"]
        before["metadata"].pop("managedFields", None)
        client.create({**before, "apiVersion": kind[0], "kind": kind[1]})
    path = f"MEKS-0849 ValidatingWebhookConfiguration/{name}"
    assert found[path] == f"there is no ValidatingWebhookConfiguration {name}"


def _mounts(deployment):
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    return any("persistentVolumeClaim" in each for each in volumes)


def test_a_claim_without_a_volume_is_found(client, look, emitted):
    """Every job would wait for it."""
    platform = list(manifests.read(emitted / "platform"))
    claim = next(
        each
        for each in platform
        if each["kind"] == "PersistentVolumeClaim"
        and each["metadata"]["namespace"] == "megatron-workshop"
    )
    metadata, name = claim["metadata"], claim["spec"]["volumeName"]
    # The pod that keeps records holds the claim as long as it is there.
    records = next(each for each in platform if each["kind"] == "Deployment" and _mounts(each))
    where = ("apps/v1", "Deployment", records["metadata"]["name"], metadata["namespace"])
    client.delete(*where)
    volume = next(each for each in platform if each["metadata"]["name"] == name)
    client.delete("v1", "PersistentVolumeClaim", metadata["name"], metadata["namespace"])
    path = f"MEKS-0852 PersistentVolumeClaim/{metadata['namespace']}/{metadata['name']}"
    try:
        found = wait_for("no claim", lambda: path in (now := look()) and now)
        assert found[path] == "it is missing"
    finally:
        # A volume that was bound once takes no new claim.
        client.delete("v1", "PersistentVolume", name)
        wait_for("no volume", lambda: client.find("v1", "PersistentVolume", name) is None)
        client.apply(volume)
        client.apply(claim)
        client.apply(records)
        where = ("v1", "PersistentVolumeClaim", metadata["name"], metadata["namespace"])
        wait_for("the claim", lambda: client.get(*where)["status"].get("phase") == "Bound")


def test_who_may_not_look_is_told_and_sees_the_rest(look):
    """A user without rights: each check says that it was not made."""
    found = look(user="system:serviceaccount:megatron-workshop:jobs")
    assert "MEKS-0822 nodes" in found
    assert all(each.startswith(("MEKS-0822", "MEKS-0846")) for each in found)


def test_a_code_without_a_remedy_here_is_a_mistake_of_usage(mend):
    """It names those that there are."""
    with pytest.raises(Failure) as caught:
        mend("MEKS-0823")
    assert caught.value.code == 2
    assert "MEKS-0845" in str(caught.value)


def test_what_is_not_found_is_not_fixed(mend, console):
    """Nothing is asked, nothing is changed."""
    assert mend("0845") == 0
    assert "MEKS-0845 is not found in this cluster" in console.stderr.getvalue()


def test_an_api_server_that_is_gone_is_one_finding(loaded, console):
    """With the exit code of a failed check, beside what AWS said."""
    failure = Failure(Code.KUBERNETES_NOT_REACHABLE, "no answer", "try again")
    (result,) = preflight.cluster_if_reached(failure, loaded)
    assert result.verdict == "failed"
    assert checks.report(loaded.cluster, [result], "table", console) == 4
