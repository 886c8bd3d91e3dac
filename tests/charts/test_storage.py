"""The shared file system: volumes that bind, and directories that pods can write to."""

import json
from dataclasses import replace

import pytest

from megatron_eks.plan.shared_directories import SharedDirectories
from tests.charts import rendered
from tests.charts.pod_security import violations
from tests.charts.rendered import (
    STORAGE,
    TAGGED,
    Manifest,
    Pod,
    cluster,
    deployed,
    only,
    other_platform,
    outputs,
    pod,
)

PLATFORM = cluster().platform
NAMESPACES = (PLATFORM.namespace, PLATFORM.system_namespace)


def claim(manifests: list[Manifest], namespace: str) -> Manifest:
    """Return the claim of a namespace."""
    claims = [item for item in manifests if item["kind"] == "PersistentVolumeClaim"]
    (found,) = [item for item in claims if item["metadata"]["namespace"] == namespace]
    return found


def volume(manifests: list[Manifest], namespace: str) -> Manifest:
    """Return the volume that a namespace's claim asks for."""
    wanted = claim(manifests, namespace)["spec"]["volumeName"]
    return only(manifests, "PersistentVolume", wanted)


def set_up(manifests: list[Manifest]) -> Pod:
    """Return the pod of the set-up Job."""
    return pod(only(manifests, "Job"))


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_claim_and_volume_are_made_for_each_other(platform, namespace):
    """Each names the other, so neither can bind to anything else."""
    wanted, offered = claim(platform, namespace), volume(platform, namespace)
    reference = offered["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"]) == (namespace, "fsx-shared-pvc")
    assert wanted["metadata"]["name"] == "fsx-shared-pvc"
    for field in ("accessModes", "storageClassName"):
        assert wanted["spec"][field] == offered["spec"][field]
    assert wanted["spec"]["resources"]["requests"] == offered["spec"]["capacity"]
    assert offered["spec"]["capacity"] == {"storage": "1200Gi"}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_volumes_are_static_and_kept(platform, namespace):
    """No provisioner touches the file system, and deleting a volume deletes no data."""
    spec = volume(platform, namespace)["spec"]
    assert spec["storageClassName"] == ""
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert spec["accessModes"] == ["ReadWriteMany"]
    assert spec["mountOptions"] == ["flock"]


def test_volumes_mount_one_file_system_under_two_handles(platform):
    """The kubelet takes two volumes of one driver and handle for the same volume."""
    sources = [volume(platform, namespace)["spec"]["csi"] for namespace in NAMESPACES]
    attributes = {"dnsname": STORAGE["LustreDnsName"], "mountname": STORAGE["LustreMountName"]}
    assert all(source["driver"] == "fsx.csi.aws.com" for source in sources)
    assert all(source["volumeAttributes"] == attributes for source in sources)
    handles = [source["volumeHandle"] for source in sources]
    assert handles == [STORAGE["LustreId"], f"{STORAGE['LustreId']}::megatron-system"]


def test_volume_names_carry_the_cluster(platform):
    """Volumes have no namespace, so their names say whose they are."""
    for namespace in NAMESPACES:
        assert volume(platform, namespace)["metadata"]["name"].startswith("techpulse-")


@pytest.mark.parametrize(
    ("outs", "marked"),
    [
        (outputs(), {"PersistentVolume"}),
        (outputs(json.dumps(TAGGED)), set()),
        (deployed(), set()),
    ],
    ids=["no deployment", "tags only", "digests"],
)
def test_only_volumes_of_placeholders_are_previews(outs, marked):
    """A claim names its volume, not the file system, so it is never a preview."""
    manifests = rendered.platform(outs=outs)
    previews = [
        manifest
        for manifest in manifests
        if manifest["metadata"].get("annotations", {}).get("megatron-eks/preview") == "true"
    ]
    assert {manifest["kind"] for manifest in previews} == marked
    assert len(previews) == 2 * len(marked)


def test_the_set_up_job_is_root_with_three_capabilities(platform):
    """Baseline lets it in; giving files away needs no more than this."""
    found = set_up(platform)
    assert violations(found.spec, "baseline") == []
    assert found.spec["securityContext"]["runAsUser"] == 0
    context = found.container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]}
    assert context["allowPrivilegeEscalation"] is False


def test_the_set_up_job_stays_off_gpu_nodes(platform):
    """It runs before any GPU node exists."""
    found = set_up(platform)
    assert "tolerations" not in found.spec
    assert found.namespace == PLATFORM.system_namespace


def test_a_finished_set_up_job_stays(platform):
    """With a time to live every `kubectl apply` would run it again."""
    assert "ttlSecondsAfterFinished" not in only(platform, "Job")["spec"]


def test_the_set_up_job_is_renamed_with_its_content():
    """A Job's template cannot change, and a new file system has no directories yet."""
    other = replace(
        deployed(), file_systems=(replace(deployed().lustre, id="fs-11111111111111111"),)
    )
    directories = SharedDirectories(("/shared",), (), ())
    variants = [
        rendered.platform(),
        rendered.platform(other_platform(shared_directories=directories)),
        rendered.platform(other_platform(pod_uid=10002)),
        rendered.platform(outs=other),
    ]
    names = {only(manifests, "Job")["metadata"]["name"] for manifests in variants}
    assert len(names) == len(variants)
    assert only(rendered.platform(), "Job")["metadata"]["name"] in names
