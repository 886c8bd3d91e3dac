"""Constructs and charts in apps of others: they synthesise, and refuse as a cluster file does."""

import json
from collections.abc import Callable
from pathlib import Path

import aws_cdk as cdk
import cdk8s
import pytest
from aws_cdk import assertions
from cfnlint import ManualArgs, api
from constructs import Construct

from charts.library import TrainingJob, add_platform
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.errors import ConfigError, has_errors
from megatron_eks.config.job import FsdpJob
from megatron_eks.guards.check import findings_for_manifests, findings_for_templates
from megatron_eks.library import ConfigWarning, plan_project
from stacks.library import GpuNodegroup, Images, Network, Storage
from tests.library import own_charts
from tests.library.own_cluster import OwnCluster
from tests.library.shared_storage import SharedStorage
from tests.stacks.synthesis import Json, Template, cluster_file, synthesise, write_sources

POOL = {
    "cluster_name": "c",
    "node_role_arn": "arn:aws:iam::210987654321:role/nodes",
    "subnet_id": "subnet-0123456789abcdef0",
    "security_group_ids": ["sg-0123456789abcdef0"],
    "name": "p5",
    "instance_type": "p5.48xlarge",
    "availability_zone": "us-east-2a",
    "max_nodes": 4,
}
PLACE = {
    "name": "own",
    "cluster_name": "own",
    "vpc_id": "vpc-01234567",
    "private_subnets": {"us-east-2a": "subnet-01234567"},
    "node_security_group_id": "sg-01234567",
}


@pytest.mark.parametrize(
    ("stack", "region"), [(OwnCluster, "us-east-2"), (SharedStorage, "us-west-2")]
)
def test_the_cdk_examples_pass_guards_and_cfn_lint(
    stack: Callable[[Construct, str], cdk.Stack], region: str, tmp_path: Path
) -> None:
    """What a reader copies can be deployed."""
    app = cdk.App(outdir=str(tmp_path), analytics_reporting=False)
    stack(app, "Research")
    app.synth()
    text = (tmp_path / "Research.template.json").read_text()
    found = findings_for_templates({"template": text})
    assert not has_errors(found), "\n".join(map(str, found))
    assert not {each.path[1] for each in found} - {"Cluster", "System"}
    config = ManualArgs(ignore_checks=["W3010", "W3005"], regions=[region])
    assert [str(each) for each in api.lint(text, config=config)] == []


def test_the_cdk8s_example_passes_the_guards() -> None:
    """Platform and job are those of files with the same contents."""
    app = cdk8s.App(record_construct_stack_trace=False)
    with pytest.warns(ConfigWarning, match=r"jobs\[0\] checkpoint.interval"):
        own_charts.build(app)
    text = app.synth_yaml()
    assert findings_for_manifests({"manifests": text}) == []
    assert "kind: PyTorchJob" in text


def test_a_model_is_planned_like_its_dictionary() -> None:
    """Defaults that a model holds change nothing."""
    config = ClusterConfig.model_validate_json(json.dumps(own_charts.CLUSTER))
    job = FsdpJob.model_validate_json(json.dumps(own_charts.JOB))
    with pytest.warns(ConfigWarning):
        plain = plan_project(own_charts.CLUSTER, jobs=[own_charts.JOB])
    with pytest.warns(ConfigWarning):
        assert plan_project(config, jobs=[job]) == plain


def test_a_pool_is_the_same_in_a_cluster_file_and_in_an_app(tmp_path: Path) -> None:
    """Launch template and node group differ in what surrounds them alone."""
    cluster = cluster_file()
    keys = ("name", "instance_type", "availability_zone", "max_nodes")
    cluster["gpu_pools"] = [{key: POOL[key] for key in keys}]
    ours = synthesise(cluster, write_sources(tmp_path / "assets"), tmp_path / "out")
    stack = cdk.Stack(cdk.App(), "Own")
    GpuNodegroup(stack, "Pool", **POOL)
    theirs = Template(assertions.Template.from_stack(stack).to_json())
    [(_, group)] = theirs.of_type("AWS::EKS::Nodegroup").items()
    around = ("ClusterName", "LaunchTemplate", "NodeRole", "Subnets")
    other = ours.template("Cluster").resources["Poolp5Nodegroup9F63A4EF"]["Properties"]
    assert {k: v for k, v in group["Properties"].items() if k not in around} == {
        k: v for k, v in other.items() if k not in around
    }


@pytest.mark.parametrize(
    ("construct", "good", "wrong", "expected"),
    [
        (
            GpuNodegroup,
            POOL,
            {"instance_type": "p5.49xlarge"},
            r"MEKS-0201 S/X instance_type: .*p5.48",
        ),
        (
            GpuNodegroup,
            POOL,
            {"availability_zone": "us-esat-2a"},
            "MEKS-0222 S/X availability_zone",
        ),
        (GpuNodegroup, POOL, {"capacity": {"type": "reserved"}}, "MEKS-0105 S/X capacity.type"),
        (GpuNodegroup, POOL, {"max_node": 4}, "MEKS-0101 S/X max_node: .*max_nodes"),
        (GpuNodegroup, POOL, {"security_group_ids": []}, "MEKS-0103 S/X security_group_ids"),
        (GpuNodegroup, POOL, {"node_role_arn": cdk}, "MEKS-0103 S/X node_role_arn: module"),
        (GpuNodegroup, POOL, {"kubernetes_version": "1.3"}, "S/X kubernetes_version: "),
        (
            Network,
            {"name": "own"},
            {"availability_zones": ["us-east-2a"]},
            "S/X availability_zones",
        ),
        (Storage, PLACE, {"lustre": {"capacity_gib": 1300}}, "S/X lustre.capacity_gib: .* 2400"),
        (Storage, PLACE, {"private_subnets": ["subnet-01234567"]}, "MEKS-0103 S/X private_subnets"),
        (Images, {"name": "own"}, {"prefix": "Own/"}, "S/X prefix: "),
    ],
)
def test_a_wrong_argument_is_told_as_in_a_file(
    construct: Callable[..., Construct], good: Json, wrong: Json, expected: str
) -> None:
    """By construct and argument, with what is allowed, and before anything is made."""
    stack = cdk.Stack(cdk.App(), "S")
    with pytest.raises(ConfigError, match=f"^error .*{expected}"):
        construct(stack, "X", **{**good, **wrong})
    assert stack.node.children == []


def test_a_wrong_job_names_its_place() -> None:
    """Cluster, job and outputs each have one."""
    with pytest.raises(ConfigError, match=r"error MEKS-\d+ jobs\[0\] nodes: "):
        TrainingJob(
            cdk8s.App(), "j", job={**own_charts.JOB, "nodes": 9}, cluster=own_charts.CLUSTER
        )
    with pytest.raises(ConfigError, match=r"MEKS-0004 cluster \.: "):
        add_platform(cdk8s.App(), cluster="cluster.yaml")  # type: ignore[arg-type]
