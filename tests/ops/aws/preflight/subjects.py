"""Accounts as they were read, for tests of the checks alone."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import yaml

from megatron_eks.config.outputs import Image, Lustre, Outputs
from megatron_eks.ops.cluster.account.checks import results
from megatron_eks.ops.cluster.account.facts import Caller, EksCluster, Facts, Subject
from megatron_eks.project import Project, load_project
from tests.ops.aws.fakes import ACCOUNT, CLUSTER

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
EKS = EksCluster(
    status="ACTIVE",
    version="1.36",
    endpoint="https://example",
    certificate="",
    vpc="vpc-1",
    subnets=("subnet-1",),
    public=True,
    public_cidrs=("8.8.4.4/32",),
    issues=(),
)


def project(folder: Path, text: str = CLUSTER) -> Project:
    """Return a project without jobs."""
    file = folder / "cluster.yaml"
    file.write_text(text)
    return load_project(file, NOW.date())


def changed(**pool) -> str:
    """Return the cluster file with other values of its pool."""
    config = yaml.safe_load(CLUSTER)
    config["gpu_pools"][0] |= pool
    return yaml.safe_dump(config)


def with_keys(**keys) -> str:
    """Return the cluster file with other keys."""
    return yaml.safe_dump(yaml.safe_load(CLUSTER) | keys)


def subject(found: Project, *, outputs: Outputs | None = None, **facts) -> Subject:
    """Return an account in which there is nothing wrong but what is given."""
    caller = facts.pop("caller", Caller(ACCOUNT, f"arn:aws:iam::{ACCOUNT}:user/ann"))
    return Subject(Facts(caller, **facts), found.cluster, outputs or found.outputs, NOW)


def deployed(found: Project) -> Outputs:
    """Return the outputs of a deployment."""
    digest = "a" * 64
    lustre = Lustre("fs-1", "fs-1.fsx.us-east-2.amazonaws.com", "abcd", preview=False)
    image = Image(f"{ACCOUNT}.dkr.ecr.us-east-2.amazonaws.com/fsdp@sha256:{digest}", preview=False)
    return replace(found.outputs, file_systems=(lustre,), images={"fsdp": image, "megatron": image})


def told(judged: Subject) -> dict[str, list[str]]:
    """Return what each check that found something says."""
    return {
        each.name: [f"{one.level} {one.code} {one.found} - {one.remedy}" for one in each.findings]
        for each in results(judged)
        if each.findings
    }
