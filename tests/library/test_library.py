"""Constructs and charts in apps of others: they synthesise, and refuse as a cluster file does."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import cdk8s
import pytest
from aws_cdk import assertions
from constructs import Construct

from megatron_eks.charts.library import TrainingJob, add_platform
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.errors import ConfigError
from megatron_eks.config.job import FsdpJob
from megatron_eks.library import ConfigWarning, plan_project
from megatron_eks.project import ROOT
from megatron_eks.stacks.library import GpuNodegroup, Images, Network, Storage
from tests.command import meks
from tests.stacks.synthesis import Json, Template, cluster_file, synthesise, write_sources

# In the wheel, of which the page speaks, both packages are parts of megatron_eks.
PAGE = re.sub(r"megatron_eks\.(?=stacks|charts)", "", (ROOT / "docs" / "library.md").read_text())
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

POOL: Json = {
    "cluster_name": "c",
    "node_role_arn": "arn:aws:iam::210987654321:role/nodes",
    "subnet_id": "subnet-0123456789abcdef0",
    "security_group_ids": ["sg-0123456789abcdef0"],
    "name": "p5",
    "instance_type": "p5.48xlarge",
    "availability_zone": "us-east-2a",
    "max_nodes": 4,
}
PLACE: Json = {
    "name": "own",
    "cluster_name": "own",
    "vpc_id": "vpc-01234567",
    "private_subnets": {"us-east-2a": "subnet-01234567"},
    "node_security_group_id": "sg-01234567",
}


@pytest.mark.parametrize("number", range(3))
def test_examples_of_the_page_run_and_pass_the_guards(number: int, tmp_path: Path) -> None:
    """Each is a whole app; cfn-lint and kubernetes-validate look at its output too."""
    output = tmp_path / "out"
    output.mkdir()
    places = {"CDK_OUTDIR": str(output), "CDK8S_OUTDIR": str(output), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(  # noqa: S603 -- our own page
        [sys.executable, "-c", EXAMPLES[number]],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ConfigWarning" not in done.stderr
    checked = meks("check", output, "-o", "json")
    found = json.loads(checked.stdout)
    assert checked.returncode == 0, found
    # The guards have opinions on the cluster and the nodes that are the reader's own.
    assert {each["path"].split(".")[1] for each in found} <= {"Cluster", "System"}


def test_models_are_planned_like_their_dictionaries() -> None:
    """Defaults that a model holds change nothing."""
    values: Json = {}
    exec(EXAMPLES[2].partition("app = ")[0], values)  # noqa: S102 -- our own page
    cluster, job = values["cluster"], values["job"]
    config = ClusterConfig.model_validate_json(json.dumps(cluster))
    planned = plan_project(config, jobs=[FsdpJob.model_validate_json(json.dumps(job))])
    assert planned == plan_project(cluster, jobs=[job])
    with pytest.raises(ConfigError, match=r"error MEKS-\d+ jobs\[0\] nodes: "):
        TrainingJob(cdk8s.App(), "j", job={**job, "nodes": 9}, cluster=cluster)
    with pytest.raises(ConfigError, match=r"MEKS-0004 cluster \.: "):
        add_platform(cdk8s.App(), cluster="cluster.yaml")  # type: ignore[arg-type]


def test_a_pool_is_the_same_in_a_cluster_file_and_in_an_app(tmp_path: Path) -> None:
    """Launch template and node group differ in what surrounds them alone."""
    cluster = cluster_file()
    keys = ("name", "instance_type", "availability_zone", "max_nodes")
    cluster["gpu_pools"] = [{key: POOL[key] for key in keys}]
    ours = synthesise(cluster, write_sources(tmp_path / "assets"), tmp_path / "out")
    stack = cdk.Stack(cdk.App(), "Own")
    GpuNodegroup(stack, "Pool", **POOL)
    theirs = Template(dict(assertions.Template.from_stack(stack).to_json()))
    groups = [
        *ours.template("Cluster").properties("AWS::EKS::Nodegroup"),
        theirs.only("AWS::EKS::Nodegroup")[1],
    ]
    around = ("ClusterName", "LaunchTemplate", "NodeRole", "Subnets")
    _, pool, other = [{k: v for k, v in each.items() if k not in around} for each in groups]
    assert pool == other


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
        (GpuNodegroup, POOL, {"lustre_efa": "yes"}, "MEKS-0103 S/X lustre_efa"),
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


def test_a_key_of_the_same_app_is_a_key() -> None:
    """Its ARN is not known yet, so there is nothing in it to check."""
    stack = cdk.Stack(cdk.App(), "own")
    key = cdk.aws_kms.Key(stack, "Key")
    storage: Any = {**PLACE, "kms_key_arn": key.key_arn}
    Storage(stack, "Storage", **storage)
    template = assertions.Template.from_stack(stack)
    arn = {"Fn::GetAtt": [assertions.Match.string_like_regexp("^Key"), "Arn"]}
    template.has_resource_properties("AWS::FSx::FileSystem", {"KmsKeyId": arn})


def test_what_a_cluster_file_would_be_warned_of_is_a_warning() -> None:
    """Of Python, with the code."""
    with pytest.warns(ConfigWarning, match="MEKS-0212"):
        plan_project(cluster_file())
