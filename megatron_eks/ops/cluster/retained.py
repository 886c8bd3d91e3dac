"""What outlives its stack on purpose, and how it goes when somebody names it."""

import copy
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from megatron_eks.ops.aws import following
from megatron_eks.ops.aws.session import if_there
from megatron_eks.ops.aws.stacks import resources_of
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.cluster.names import REPOSITORY
from megatron_eks.ops.output import count

_BUCKET = "AWS::S3::Bucket"


def lift_retention(name: str, tools: Tools) -> None:
    """Let a stack delete what its template would keep: CloudFormation knows the order."""
    stacks, console = tools.stacks, tools.console
    old = stacks.template(name)
    new = copy.deepcopy(old)
    for resource in resources_of(new).values():
        policies = {"DeletionPolicy", "UpdateReplacePolicy"} & resource.keys()
        resource.update(dict.fromkeys(policies, "Delete"))
        properties = resource.get("Properties")
        if resource.get("Type") == REPOSITORY and isinstance(properties, dict):
            properties["EmptyOnDelete"] = True
    if new == old:
        return
    change_set = f"meks-{uuid.uuid4().hex[:12]}"
    stacks.prepare(name, change_set, new)
    following.carry_out(stacks, name, change_set, console)
    console.say(f"{name}: nothing in it is kept any longer")


def empty_buckets(name: str, tools: Tools) -> None:
    """Delete every version of every object in a stack's buckets: S3 keeps a bucket that is full."""
    s3 = tools.aws.client("s3")
    for _, kind, bucket in tools.stacks.resources(name):
        if kind != _BUCKET or not bucket:
            continue
        deleted = 0
        with suppress(s3.exceptions.NoSuchBucket):
            for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
                found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                listed = [{key: each[key] for key in ("Key", "VersionId")} for each in found]
                if listed:
                    s3.delete_objects(Bucket=bucket, Delete={"Objects": listed, "Quiet": True})
                    deleted += len(listed)
                    tools.console.say(f"  {bucket}: {count(deleted, 'object')} deleted")


def repositories(tools: Tools) -> list[str]:
    """Return the cluster's image repositories that exist and that no other living stack holds."""
    describe = tools.aws.client("ecr").describe_repositories
    return [
        name
        for name in (image.repository for image in tools.plan.images)
        if if_there(describe, "RepositoryNotFoundException", repositoryNames=[name])
        and tools.stacks.holder(REPOSITORY, name) in {None, tools.plan.stack("Images")}
    ]


def delete_repositories(tools: Tools) -> None:
    """Delete the repositories that no stack has deleted, with all that is in them."""
    ecr = tools.aws.client("ecr")
    for name in repositories(tools):
        ecr.delete_repository(repositoryName=name, force=True)
        tools.console.say(f"{name}: deleted")


def file_systems(tools: Tools, vpc: str) -> list[str]:
    """Return the FSx file systems in a VPC, whoever made them."""
    return [str(each["FileSystemId"]) for each in _all(tools) if each.get("VpcId") == vpc]


def left_behind(tools: Tools) -> list[str]:
    """Return the file systems that an earlier cluster of this name has left without their stack."""
    name = {"Key": "Name", "Value": f"{tools.plan.name}-lustre"}
    return [
        str(each["FileSystemId"])
        for each in _all(tools)
        if name in each.get("Tags", []) and each["Lifecycle"] != "DELETING"
    ]


def _all(tools: Tools) -> Iterator[Mapping[str, Any]]:
    for page in tools.aws.client("fsx").get_paginator("describe_file_systems").paginate():
        yield from page["FileSystems"]
