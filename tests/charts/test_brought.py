"""Manifests of clusters that bring things along: volumes, certificates, proxies, mirrors."""

from dataclasses import replace
from typing import Any

import pytest

from megatron_eks.catalog import pins
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.job import MegatronJob
from megatron_eks.config.load import Document, read_mapping
from megatron_eks.config.outputs import Outputs, read_outputs
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.config.storage import ExistingLustre
from megatron_eks.guards.check import check_manifests
from megatron_eks.plan.cluster.cluster import ClusterPlan, plan_cluster
from megatron_eks.plan.jobs.table import plan_job
from tests.charts import rendered
from tests.charts.network import outside, policies, reaches
from tests.charts.rendered import Manifest, only, pod, pods
from tests.charts.test_network_policies import MASTER
from tests.charts.validation import assert_valid
from tests.stacks.synthesis import ROOT, TAGS, cluster_file
from tests.variations import CERTIFICATE, LUSTRE, VARIATIONS


class Rendered:
    """The manifests of a variation, with a job on a pool."""

    def __init__(self, variation: str, pool: str = "p4d") -> None:
        cluster = cluster_file()
        VARIATIONS[variation](cluster)
        config, findings = parse_cluster(Document("cluster.yaml", value=cluster))
        assert config is not None, findings
        self.plan: ClusterPlan = plan_cluster(config, TAGS)
        self.outputs = _outputs(self.plan, config)
        text = (ROOT / "jobs/megatron-cpt-techpulse.yaml").read_text()
        job, _ = parse_job(read_mapping(text.replace("pool: p4d", f"pool: {pool}"), "job.yaml"))
        assert isinstance(job, MegatronJob)
        self.platform = rendered.platform(self.plan, self.outputs)
        self.validation = rendered.validation(self.plan)
        planned = plan_job(job, self.plan, self.outputs.images)
        self.jobs = rendered.jobs(planned, plan=self.plan)

    @property
    def everything(self) -> list[Manifest]:
        """All objects of all folders."""
        return [*self.platform, *self.validation, *self.jobs]

    @property
    def job_pod(self) -> dict[str, Any]:
        """The pod specification of the job's master."""
        job = only(self.jobs, "PyTorchJob")
        return dict(job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"])


def _outputs(plan: ClusterPlan, config: ClusterConfig) -> Outputs:
    """Return what a deployment of the plan would have written."""
    values = {"EfsId": "fs-0000000e", "EfsAccessPointId": "fsap-0000000a"}
    for each in plan.storage.file_systems:
        name = f"fs-0000000{each.zone[-1]}"
        values[f"LustreId{each.output_suffix}"] = name
        values[f"LustreDnsName{each.output_suffix}"] = f"{name}.fsx.us-east-2.amazonaws.com"
        values[f"LustreMountName{each.output_suffix}"] = "abcdefgh"
    outputs, findings = read_outputs(
        Document("outputs.json", value={f"{plan.name}-Storage": dict(values)}),
        plan.name,
        {"megatron": "m:1", "fsdp": "f:1"},
        suffixes=[each.output_suffix for each in plan.storage.file_systems],
        existing=config.storage.lustre.existing,
    )
    assert not findings
    return outputs


def images(manifests: list[Manifest]) -> set[str]:
    """Return the images of all containers."""
    return {each["image"] for owner in pods(manifests) for each in owner.spec["containers"]}


@pytest.mark.sweep
@pytest.mark.parametrize("variation", VARIATIONS)
def test_every_object_is_valid_and_no_guard_finds_anything(variation):
    """Also what their namespaces enforce."""
    made = Rendered(variation)
    for item in made.everything:
        assert_valid(item)
    assert [str(each) for each in check_manifests(made.everything)] == []


def test_a_job_mounts_the_file_system_of_its_pools_zone():
    """Both see it at the same path, and each zone's directories are set up."""
    claims = set()
    for pool in ("p4d", "other"):
        made = Rendered("two_zones", pool)
        [shared] = [each for each in made.job_pod["volumes"] if each["name"] == "shared"]
        claims.add(shared["persistentVolumeClaim"]["claimName"])
    assert claims == {"fsx-shared-pvc", "fsx-shared-pvc-us-east-2a"}
    handles = {
        item["spec"]["csi"]["volumeHandle"]
        for item in made.platform
        if item["kind"] == "PersistentVolume"
    }
    assert handles == {
        "fs-0000000a",
        "fs-0000000a::megatron-system",
        "fs-0000000b",
        "fs-0000000b::megatron-system",
    }
    jobs = [item for item in made.platform if item["kind"] == "Job"]
    assert {pod(job).spec["volumes"][0]["persistentVolumeClaim"]["claimName"] for job in jobs} == (
        claims
    )


def test_placeholders_of_two_file_systems_are_two():
    """One handle twice would be one volume to the kubelet."""
    outputs, _ = read_outputs(
        None, "c", {"megatron": "m:1", "fsdp": "f:1"}, suffixes=["", "Useast2a"]
    )
    assert len({each.id for each in outputs.file_systems}) == 2
    assert all(each.preview for each in outputs.file_systems)


def test_an_existing_file_system_is_known_before_any_deployment():
    """Its volumes are no preview."""
    outputs, _ = read_outputs(
        None, "c", {"megatron": "m:1", "fsdp": "f:1"}, existing=ExistingLustre(**LUSTRE)
    )
    assert (outputs.lustre.id, outputs.lustre.preview) == (LUSTRE["id"], False)


def test_of_a_folder_of_an_existing_file_system_jobs_mount_nothing_else():
    """The set-up Job sees the whole, or it could not make the folder; another folder is another."""
    made = Rendered("folder_of_existing_lustre")
    claims = {
        item["metadata"]["namespace"]: item["spec"]["volumeName"]
        for item in made.platform
        if item["kind"] == "PersistentVolumeClaim"
    }
    sources = {
        space: only(made.platform, "PersistentVolume", volume)["spec"]["csi"]
        for space, volume in claims.items()
    }
    mounted = {space: each["volumeAttributes"]["mountname"] for space, each in sources.items()}
    assert mounted == {
        "megatron-workshop": "abcdefgh/teams/nlp",
        "megatron-system": "abcdefgh",
    }
    assert len({each["volumeHandle"] for each in sources.values()}) == 2
    whole = [each["metadata"]["name"] for each in Rendered("existing_lustre").platform]
    assert claims["megatron-system"] in whole
    assert claims["megatron-workshop"] not in whole


def test_jobs_see_efs_through_its_access_point():
    """Encrypted on the way."""
    made = Rendered("homes")
    mounts = {
        each["name"]: each["mountPath"] for each in made.job_pod["containers"][0]["volumeMounts"]
    }
    assert mounts["homes"] == "/efs"
    volume = only(made.platform, "PersistentVolume", "techpulse-megatron-workshop-efs-shared-pvc")
    assert volume["spec"]["csi"] == {
        "driver": "efs.csi.aws.com",
        "volumeHandle": "fs-0000000e::fsap-0000000a",
    }
    assert volume["spec"]["mountOptions"] == ["tls"]


def test_jobs_trust_the_certificates_and_use_the_proxy():
    """Each library reads another variable, and curl the small letters."""
    made = Rendered("company_rules")
    container = made.job_pod["containers"][0]
    env = {each["name"]: each["value"] for each in container["env"]}
    path = "/etc/megatron-eks/ca/ca.pem"
    variables = ("AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
    assert {env[name] for name in variables} == {path}
    assert env["https_proxy"] == env["HTTPS_PROXY"] == "http://proxy.example.com:3128"
    assert only(made.platform, "ConfigMap", "ca-bundle")["data"] == {"ca.pem": CERTIFICATE}
    assert {"mountPath": "/etc/megatron-eks/ca", "name": "ca-bundle", "readOnly": True} in (
        container["volumeMounts"]
    )


def test_jobs_reach_the_proxy_and_no_other_port_more():
    """Policies let out HTTPS alone, and a proxy listens elsewhere."""
    found = policies(Rendered("company_rules").platform)
    assert reaches(found, MASTER, outside("192.0.2.1"), (3128, "TCP"))
    assert not reaches(found, MASTER, outside("192.0.2.1"), (8080, "TCP"))
    assert not reaches(found, MASTER, outside("169.254.169.254"), (3128, "TCP"))


def test_without_its_range_the_operator_reaches_api_servers_of_any_private_address():
    """And of both ranges that EKS gives Services by default."""
    made = Rendered("existing_cluster_and_lustre")
    policy = only(made.platform, "NetworkPolicy", "training-operator")
    reached = {each["ipBlock"]["cidr"] for each in policy["spec"]["egress"][0]["to"]}
    assert {"10.0.0.0/8", "172.16.0.0/12", "10.100.0.0/16", "172.20.0.0/16"} <= reached


def test_with_a_mirror_no_image_comes_from_elsewhere():
    """Digests stay, and EKS's own registry is reached through its endpoint."""
    made = Rendered("without_a_way_out")
    mirror = "123456789012.dkr.ecr.us-east-2.amazonaws.com/mirror/"
    used = images([*made.platform, *made.validation])
    ours = {image for image in used if image.startswith(mirror)}
    assert {image for image in used - ours if ".dkr.ecr." not in image} == set()
    assert ours == {made.plan.platform.egress.image(uri) for uri in pins.THIRD_PARTY_IMAGES}
    operator = only(made.platform, "Deployment", "training-operator")
    arguments = str(pod(operator).spec["containers"][0]["args"])
    assert (
        f"--pytorch-init-container-image={mirror}docker/library/busybox:1.37.0@sha256:" in arguments
    )


def test_everything_a_mirror_must_hold_is_listed():
    """What the default cluster pulls, less EKS's own images."""
    plan = rendered.cluster()
    used = images([*rendered.platform(plan), *rendered.validation(plan)])
    used = {image for image in used if ".dkr.ecr." not in image}
    assert used <= set(pins.THIRD_PARTY_IMAGES)
    assert replace(plan.platform.egress, mirror="m/x").image("a.b/c/d:1") == "m/x/c/d:1"
