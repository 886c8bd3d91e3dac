"""What holds in every stack: no account, no look-up, no Lambda, tags, keys and kept resources."""

import json
import os
import subprocess
import sys
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2

from megatron_eks.stacks.base import BaseStack
from tests.stacks.synthesis import ROOT, app_of, cluster_file, plan_of, write_sources

# Resources whose loss costs data, images or the cluster's network. A changed id is a replacement:
# if this list must change, say in the commit what happens to those that exist.
KEPT = {
    "Network": {"Vpc"},
    "Storage": {
        "AccessLogs",
        "AccessLogsPolicy",
        "Bucket",
        "BucketPolicy",
        "Key",
        "Lustre",
        "LustreSecurityGroup",
        "NodesFromServers1018",
        "NodesFromServers988",
        "ServersFromServers1018",
        "ServersFromServers988",
        "ServersToServers1018",
        "ServersToServers988",
    },
    "Images": {"FsdpRepositoryDCD77AE2", "Key", "MegatronRepository0A310EF8"},
    "Cluster": {"Cluster"},
}
TAGGED_TYPES = {
    "AWS::CodeBuild::Project",
    "AWS::EC2::VPC",
    "AWS::ECR::Repository",
    "AWS::EKS::Addon",
    "AWS::EKS::Cluster",
    "AWS::FSx::FileSystem",
    "AWS::IAM::Role",
    "AWS::KMS::Key",
    "AWS::Logs::LogGroup",
    "AWS::S3::Bucket",
}


def test_there_are_four_stacks_in_the_clusters_region_and_any_account(assembly):
    """Names are the contract with outputs.json; an account would have to be looked up."""
    manifest = json.loads((assembly.directory / "manifest.json").read_text())
    stacks = {
        name: artifact["environment"]
        for name, artifact in manifest["artifacts"].items()
        if artifact["type"] == "aws:cloudformation:stack"
    }
    parts = ("Cluster", "Images", "Network", "Storage")
    assert stacks == {f"techpulse-{part}": "aws://unknown-account/us-east-2" for part in parts}


def test_synthesis_needs_no_environment(assembly, tmp_path):
    """Neither credentials nor a region in the environment change a template."""
    program = (
        "import sys; from pathlib import Path;"
        "from tests.stacks.synthesis import *;"
        "synthesise(cluster_file(), Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    bare = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    # The cache of unpacked packages saves seconds and holds nothing of AWS.
    bare["JSII_RUNTIME_PACKAGE_CACHE_ROOT"] = str(Path.home() / ".cache/aws/jsii")
    sources = write_sources(tmp_path / "assets")
    command = [sys.executable, "-W", "error", "-c", program, str(sources), str(tmp_path / "out")]
    subprocess.run(command, env=bare, check=True)  # noqa: S603 -- this test's own program
    for path in assembly.directory.glob("*.template.json"):
        assert (tmp_path / "out" / path.name).read_text() == path.read_text()


def test_zones_come_from_the_plan_even_for_constructs_that_ask_for_them(tmp_path):
    """CDK's own VPC would otherwise have the command line ask an account."""
    app = cdk.App(outdir=str(tmp_path), builtin_cloud_formation_validation=False)
    stack = BaseStack(app, plan_of(cluster_file()), "Test", "Test")
    ec2.Vpc(stack, "Vpc")
    app.synth()
    template = json.loads((tmp_path / "techpulse-Test.template.json").read_text())
    zones = {
        resource["Properties"]["AvailabilityZone"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::EC2::Subnet"
    }
    assert zones == {"us-east-2a", "us-east-2b", "us-east-2c"}
    assert "missing" not in json.loads((tmp_path / "manifest.json").read_text())


def test_nothing_runs_code_during_a_deployment(assembly):
    """A Lambda behind a custom resource can hang a stack for an hour, and roll it back."""
    kinds = {
        resource["Type"]
        for template in assembly.templates().values()
        for resource in template.resources.values()
    }
    assert [kind for kind in kinds if kind.startswith(("AWS::Lambda::", "Custom::"))] == []
    assert "AWS::CloudFormation::CustomResource" not in kinds


def test_tags_of_the_file_reach_whatever_costs_money(changed):
    """Also instances, volumes and interfaces, which node groups do not tag."""
    tagged = changed(lambda cluster: cluster.update(tags={"team": "nlp"}))
    for template in tagged.templates().values():
        for name, resource in template.resources.items():
            if resource["Type"] in TAGGED_TYPES:
                assert {"Key": "team", "Value": "nlp"} in resource["Properties"]["Tags"], name
    for launch in tagged.template("Cluster").properties("AWS::EC2::LaunchTemplate"):
        specifications = launch["LaunchTemplateData"]["TagSpecifications"]
        kinds = {
            item["ResourceType"]
            for item in specifications
            if {"Key": "team", "Value": "nlp"} in item["Tags"]
        }
        assert kinds == {"instance", "network-interface", "volume"}


def test_a_new_tag_changes_no_node_group(assembly, changed):
    """EKS refuses tags and launch template in one update (aws-cdk#16644)."""
    tagged = changed(lambda cluster: cluster.update(tags={"team": "nlp"}))
    kind = "AWS::EKS::Nodegroup"
    before, after = assembly.template("Cluster"), tagged.template("Cluster")
    assert before.of_type(kind) == after.of_type(kind)


@pytest.mark.parametrize("part", KEPT)
def test_kept_resources_have_their_ids_for_ever(assembly, part):
    """A resource with another id is another resource: AWS makes it, and the old one goes."""
    assert KEPT[part] <= set(assembly.template(part).resources)


def test_awss_own_validator_finds_nothing(sources, tmp_path):
    """It runs at each `cdk synth`, so that a finding would be everybody's first sight."""
    app_of(plan_of(cluster_file()), sources, tmp_path, validate=True).synth()
    report = json.loads((tmp_path / "validation-report.json").read_text())
    [cloudformation] = report["pluginReports"]
    assert cloudformation["violations"] == []
    acknowledged = {finding["ruleName"] for finding in cloudformation["suppressedViolations"]}
    assert acknowledged == {"W3010"}
