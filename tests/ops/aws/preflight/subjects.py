"""Accounts as AWS describes them, for tests of the checks alone."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from botocore.exceptions import ClientError

from megatron_eks.config.outputs import Image, Lustre, Outputs
from megatron_eks.ops.aws.session import Aws
from megatron_eks.ops.checks import Result
from megatron_eks.ops.cluster.account.account import Account
from megatron_eks.ops.cluster.account.checks import results
from megatron_eks.project import Project, load_project
from tests.ops.aws.fakes import ACCOUNT, CLUSTER

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
EKS = {
    "status": "ACTIVE",
    "version": "1.36",
    "resourcesVpcConfig": {"vpcId": "vpc-1", "subnetIds": ["subnet-1"]},
}
SYSTEM = {
    "Lifecycle": "AVAILABLE",
    "FileSystemType": "LUSTRE",
    "StorageCapacity": 1200,
    "DNSName": "fs-1.fsx.us-east-2.amazonaws.com",
    "LustreConfiguration": {"MountName": "abcd"},
    "NetworkInterfaceIds": ["eni-1"],
}
NODES = {"status": "ACTIVE", "scalingConfig": {}}


def gone(code: str, message: str = "") -> ClientError:
    """Return what AWS says of a thing that does not exist."""
    return ClientError({"Error": {"Code": code, "Message": message}}, "Describe")


NOTHING_WRONG: dict[str, Any] = {
    "get_caller_identity": {"Arn": f"arn:aws:iam::{ACCOUNT}:user/ann"},
    "get_parameter": {},
    "get_role": {"Role": {"Arn": f"arn:aws:iam::{ACCOUNT}:role/execution"}},
    "simulate_principal_policy": {"EvaluationResults": []},
    "describe_stack_resources": gone("ValidationError", "Stack does not exist"),
    "get_service_quota": {"Quota": {"Value": 10_000}},
    "describe_instance_type_offerings": {
        "InstanceTypeOfferings": [{"InstanceType": "p4d.24xlarge", "Location": "us-east-2b"}]
    },
    "describe_cluster_versions": {"clusterVersions": [{}]},
    "describe_cluster": gone("ResourceNotFoundException"),
    "describe_subnets": {"Subnets": []},
    "describe_security_groups": {"SecurityGroups": []},
    "describe_network_interfaces": {"NetworkInterfaces": []},
    "describe_file_systems": {"FileSystems": [SYSTEM]},
    "describe_images": {"imageDetails": [{"imageDigest": "sha256:1"}]},
    "describe_nodegroup": {"nodegroup": NODES},
}


class Answers(Aws):
    """AWS, which answers each operation in one way: a value, an error, or a function's."""

    def __init__(self, **answers: Any) -> None:
        self._answers = NOTHING_WRONG | answers
        self.region = "us-east-2"
        self.exceptions = SimpleNamespace(ClientError=ClientError)

    def client(self, service: str) -> Any:
        """Return itself: no two services have an operation of one name here."""
        del service
        return self

    def __getattr__(self, operation: str) -> Any:
        """Return an operation."""
        return partial(self._answer, operation)

    def get_paginator(self, operation: str) -> Any:
        """Return pages, of which there is one."""
        return SimpleNamespace(paginate=lambda **words: [self._answer(operation, **words)])

    def _answer(self, operation: str, **words: Any) -> Any:
        answer = self._answers[operation]
        if isinstance(answer, ClientError):
            raise answer
        return answer(**words) if callable(answer) else answer


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


def deployed(found: Project) -> Outputs:
    """Return the outputs of a deployment."""
    digest = "a" * 64
    lustre = Lustre("fs-1", "fs-1.fsx.us-east-2.amazonaws.com", "abcd", preview=False)
    image = Image(f"{ACCOUNT}.dkr.ecr.us-east-2.amazonaws.com/fsdp@sha256:{digest}", preview=False)
    return replace(found.outputs, file_systems=(lustre,), images={"fsdp": image, "megatron": image})


def judged(found: Project, outputs: Outputs | None = None, **answers: Any) -> list[Result]:
    """Check an account in which there is nothing wrong but what is given."""
    planned = {each.name: each.version for each in found.cluster.addons}
    installed = answers.pop("addons", {})

    def addon(addonName: str, **_: str) -> Any:  # noqa: N803 -- as EKS is asked
        usual = {"status": "ACTIVE", "addonVersion": planned[addonName]}
        described = installed.get(addonName, usual)
        if described is None:
            raise gone("ResourceNotFoundException")
        return {"addon": described}

    aws = Answers(describe_addon=addon, **answers)
    return results(Account(aws, found.cluster, outputs or found.outputs, NOW))


def told(found: Project, outputs: Outputs | None = None, **answers: Any) -> dict[str, list[str]]:
    """Return what each check that found something says."""
    return {
        each.name: [f"{one.level} {one.code} {one.found} - {one.remedy}" for one in each.findings]
        for each in judged(found, outputs, **answers)
        if each.findings
    }
