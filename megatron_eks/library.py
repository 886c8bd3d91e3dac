"""Plans from values of a program, checked as the files are: for CDK and cdk8s apps of others."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path as File
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from megatron_eks.catalog.regions import PARTITIONS, ZONE_LETTERS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Finding, dotted, has_errors
from megatron_eks.config.job import AnyJob
from megatron_eks.config.load import Document
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import Project, check_documents, plan_files

# Blocks of a file, with whatever a program holds: its check is the reader's.
Values: TypeAlias = Mapping[str, Any]


class ConfigWarning(UserWarning):
    """What `meks validate` warns of; Python's own filters silence it or make it an error."""


class _Values(Document):
    """A mapping of a program: what is wrong in it has a path, and no line."""

    def locate(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Name the construct or argument in place of a file."""
        yield from (finding.at(self.file, 0) for finding in findings)


def plan_project(
    cluster: Values | ClusterConfig,
    *,
    jobs: Sequence[Values | AnyJob] = (),
    outputs: Values | None = None,
) -> Project:
    """Plan a cluster and its jobs, given as the contents of their files or as models.

    `outputs` is what `cdk deploy --outputs-file` writes; without it images and file systems are
    placeholders. Raises ConfigError with every finding, and warns of the rest.
    """
    read = [_document(f"jobs[{index}]", job) for index, job in enumerate(jobs)]
    files = check_documents(_document("cluster", cluster), read, _today(), code=True)
    project = plan_files(
        files, File("cluster"), None if outputs is None else _document("outputs", outputs)
    )
    _warn(project.warnings)
    return project


def plan_part(
    place: str,
    blocks: Values,
    *,
    names: Mapping[str, str],
    passed: Mapping[str, object],
    zones: object = (),
    region: str | None = None,
) -> ClusterPlan:
    """Plan the cluster that a construct is a part of; raise ConfigError for wrong arguments.

    `blocks` are those of a cluster file; the others stand for themselves, and nothing that is made
    depends on them. `names` has the argument for the beginning of a path in that file. `passed` is
    not looked into: ids, names and ARNs, which may be tokens. Without a region the zones tell it.
    """
    listed = [str(zone) for zone in zones] if isinstance(zones, list | tuple) else []
    region = region or (listed[0][:-1] if listed else "us-east-1")
    # EKS demands two zones of a cluster, which has more than those in question.
    more = [f"{region}{letter}" for letter in ZONE_LETTERS.get(region, "ab")[:2]]
    pool = {"name": "pool", "instance_type": "p5.48xlarge", "max_nodes": 1}
    cluster: dict[str, object] = {
        "schema_version": 1,
        "name": "cluster",
        "region": region,
        "availability_zones": list(dict.fromkeys([*listed, *more]))[: max(2, len(listed))],
        "access": {
            "admin_role_arns": [
                f"arn:{PARTITIONS.get(region, 'aws')}:iam::000000000000:role/Admin"
            ],
            "public_cidrs": [],
            "private_route": "vpn",
        },
        "gpu_pools": [
            {**pool, "name": f"pool-{index}", "availability_zone": zone}
            for index, zone in enumerate(listed or more)
        ],
        **blocks,
    }
    files = check_documents(_document(place, cluster), [], _today())
    found = [finding.at(place, 0) for finding in _wrong(passed)]
    for finding in files.findings:
        path = dotted(finding.path)
        if begin := next(filter(path.startswith, names), None):
            renamed = (names[begin] + path.removeprefix(begin),)
            found.append(replace(finding, path=renamed))
    if has_errors(found):
        raise ConfigError(found)
    _warn(found)
    return plan_files(files, File(place)).cluster


def _wrong(passed: Mapping[str, object]) -> Iterator[Finding]:
    """Yield what is no text; a list of texts where a name ends in `_ids`, of subnets a mapping."""
    for name, value in passed.items():
        wanted = "a text"
        texts: Sequence[object] = [value]
        if name.endswith("_ids"):
            wanted = "a list of texts"
            texts = value if isinstance(value, list | tuple) else []
        elif name == "private_subnets":
            wanted = "a mapping of zones to texts"
            texts = list(value.values()) if isinstance(value, Mapping) else []
        if not texts or not all(isinstance(text, str) and text for text in texts):
            found = f"{type(value).__name__} {value!r}"
            remedy = f"give {wanted}: the id, name or ARN of what it is, such as role.role_arn"
            yield Finding(Code.WRONG_TYPE, (name,), found, remedy)


def _document(place: str, value: Values | BaseModel) -> Document:
    if isinstance(value, BaseModel):
        # Of a job, what is given and what is a default are not the same.
        value = value.model_dump(mode="json", exclude_unset=not isinstance(value, ClusterConfig))
    document = _Values(place, value=to_jsonable_python(value, fallback=str))
    if not isinstance(document.value, dict):
        found, remedy = f"{type(value).__name__}, and no mapping", "give a dictionary or a model"
        document.findings += document.locate([Finding(Code.NOT_A_MAPPING, (), found, remedy)])
    return document


def _today() -> date:
    return datetime.now(tz=UTC).date()


def _warn(findings: Iterable[Finding]) -> None:
    for finding in findings:
        warnings.warn(str(finding), ConfigWarning, stacklevel=4)
