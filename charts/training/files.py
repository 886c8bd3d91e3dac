"""The configuration files of a job: a ConfigMap of their own, and how pods see it."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import cdk8s
from constructs import Construct

from charts.training.objects import metadata
from megatron_eks.plan.job import CONFIG_DIRECTORY, JobPlan
from megatron_eks.plan.platform import PlatformPlan

_VOLUME = "config"

Entries = list[Mapping[str, Any]]


def config_map(scope: Construct, job: JobPlan, platform: PlatformPlan) -> None:
    """Add the ConfigMap of a job that has files."""
    if not job.files:
        return
    resource = cdk8s.ApiObject(
        scope,
        _VOLUME,
        api_version="v1",
        kind="ConfigMap",
        metadata=metadata(_name(job), job, platform),
    )
    texts = {name: content for name, content in job.files.items() if isinstance(content, str)}
    others = {
        name: base64.b64encode(content).decode()
        for name, content in job.files.items()
        if isinstance(content, bytes)
    }
    parts = {"/data": texts, "/binaryData": others}
    resource.add_json_patch(
        *(cdk8s.JsonPatch.add(path, part) for path, part in parts.items() if part),
        cdk8s.JsonPatch.add("/immutable", True),  # noqa: FBT003 -- a JSON value
    )


def file_volumes(job: JobPlan) -> Entries:
    """Return the volume of the files."""
    return [{"name": _VOLUME, "configMap": {"name": _name(job)}}] if job.files else []


def file_mounts(job: JobPlan) -> Entries:
    """Return where the container sees them."""
    mount = {"name": _VOLUME, "mountPath": CONFIG_DIRECTORY, "readOnly": True}
    return [mount] if job.files else []


def _name(job: JobPlan) -> str:
    """Name the content, so that a job that runs keeps what it was started with."""
    content = repr(sorted(job.files.items()))
    return f"{job.name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
