"""A family that AWS has not announced: one entry in the catalogue, and everything follows."""

import json
from datetime import date
from pathlib import Path

import pytest

from megatron_eks.catalog.gpus import Gpu
from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.errors import Level
from megatron_eks.config.job import MegatronJob
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.demo.nodes import gpu_node
from megatron_eks.guards.check import check_manifests, check_templates
from megatron_eks.plan.cluster.cluster import check_cluster
from megatron_eks.plan.cost import cluster_cost
from megatron_eks.plan.jobs.table import check_job, plan_job
from tests.charts import rendered
from tests.stacks.synthesis import plan_of, synthesise, write_sources

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 11, 21)

NAME = "p9.32xlarge"
# Odd on purpose: four GPUs, two cards without EFA, no NVMe, and half of the facts unknown.
NINTH = InstanceType(
    name=NAME,
    gpu=Gpu("X900", 400_000, 390_000, (13, 1), None, None, 9000.0),
    gpus=4,
    nvlink_gb_s=2400,
    vcpus=128,
    memory_mib=3 * 1024 * 1024,
    network_gbps=12800,
    network_cards=11,
    efa_interfaces=9,
    interfaces_per_card=3,
    ipv4_per_interface=64,
    network_layers=2,
    instance_store_gb=0,
    gpu_direct_rdma=True,
    capacity_blocks=True,
)


@pytest.fixture
def cluster(monkeypatch):
    """Return a cluster file with a pool of the new family, in a Capacity Block."""
    monkeypatch.setitem(INSTANCES, NAME, NINTH)
    value = read_mapping((ROOT / "cluster.yaml").read_text(), "cluster.yaml").value
    assert isinstance(value, dict)
    capacity = {
        "type": "capacity_block",
        "id": "cr-0123456789abcdef0",
        "ends_at": "2026-12-24T11:30:00Z",
    }
    pool = {
        "name": "p9",
        "instance_type": NAME,
        "availability_zone": "us-east-2b",
        "max_nodes": 4,
        "capacity": capacity,
    }
    return {**value, "gpu_pools": [pool]}


def test_it_is_validated_and_what_is_unknown_is_said(cluster):
    """Warnings name what depends on the facts that are missing; nothing is an error."""
    document = read_mapping(json.dumps(cluster), "cluster.yaml")
    config, findings = parse_cluster(document)
    assert config is not None, findings
    found = list(check_cluster(config, TODAY))
    assert {each.level for each in found} == {Level.WARNING}
    said = [each.found for each in found if each.code == "MEKS-0230"]
    assert said == [
        "the dense bf16 peak of X900 is unknown",
    ]


def test_its_plan_is_priced_as_unknown(cluster):
    """No price is borrowed from another family."""
    cost = cluster_cost(plan_of(cluster))
    assert cost.full_usd_per_hour is None
    assert cost.idle_usd_per_hour is not None
    assert len(cost.notes) == 1


def test_its_templates_pass_the_guards(cluster, tmp_path):
    """Interfaces from the first EFA card on, and no RAID where there are no disks."""
    assembly = synthesise(cluster, write_sources(tmp_path / "sources"), tmp_path / "out")
    files = assembly.directory.glob("*.template.json")
    templates = {file.name: json.loads(file.read_text()) for file in files}
    assert [str(finding) for finding in check_templates(templates)] == []
    launches = assembly.template("Cluster").properties("AWS::EC2::LaunchTemplate")
    [launch] = [
        each["LaunchTemplateData"]
        for each in launches
        if each["LaunchTemplateData"]["InstanceType"] == NAME
    ]
    slots = [(nic["NetworkCardIndex"], nic["DeviceIndex"]) for nic in launch["NetworkInterfaces"]]
    assert slots == [(0, 0), *((card, 0) for card in range(2, 11))]
    assert "localStorage" not in launch["UserData"]["Fn::Base64"]


def test_its_manifests_pass_the_guards(cluster):
    """The EFA plugin runs on it, a job takes its whole node, and a simulated node offers that."""
    plan = plan_of(cluster)
    text = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
    parsed, _ = parse_job(read_mapping(text.replace("pool: p4d", "pool: p9"), "job.yaml"))
    config, _ = parse_cluster(read_mapping(json.dumps(cluster), "cluster.yaml"))
    assert isinstance(parsed, MegatronJob)
    assert config is not None
    job = parsed.model_copy(update={"gpus_per_node": None})
    assert list(check_job(job, config)) == []
    planned = plan_job(job, plan, rendered.deployed().images)
    manifests = [
        *rendered.platform(plan),
        *rendered.validation(plan),
        *rendered.jobs(planned, plan=plan),
    ]
    assert [str(finding) for finding in check_manifests(manifests)] == []
    [plugin] = [
        each for each in manifests if each["metadata"]["name"] == "aws-efa-k8s-device-plugin"
    ]
    assert NAME in json.dumps(plugin)
    for pod in rendered.pods(rendered.jobs(planned, plan=plan)):
        limits = pod.container["resources"]["limits"]
        assert (limits["nvidia.com/gpu"], limits["vpc.amazonaws.com/efa"]) == (4, 9)
    node = gpu_node(plan.pool("p9"), 0)
    offered = node["status"]["allocatable"]
    assert (offered["nvidia.com/gpu"], offered["vpc.amazonaws.com/efa"]) == ("4", "9")
    assert int(offered["memory"].removesuffix("Mi")) > planned.resources.memory_mib
