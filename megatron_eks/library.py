"""Plans from values of a program, checked as the files are: for CDK and cdk8s apps of others."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path as File
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from megatron_eks.catalog.regions import PARTITIONS, ZONE_LETTERS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Finding, Path, has_errors
from megatron_eks.config.job import AnyJob
from megatron_eks.config.load import Document, Json
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.project import Project, check_documents, plan_files

# Blocks of a file, with whatever a program holds: its check is the reader's.
Values: TypeAlias = Mapping[str, Any]

_TEXT: tuple[type, ...] = (str,)
_LIST: tuple[type, ...] = (list, tuple)
_MAPPING: tuple[type, ...] = (Mapping,)
_KINDS = {
    "security_group_ids": _LIST,
    "private_subnets": _MAPPING,
}
_WORDS = {
    _TEXT: "an id, name or ARN as text (the CDK's tokens are texts): role.role_arn, not role",
    _LIST: "a list of ids as texts",
    _MAPPING: "a mapping of availability zones to ids as texts",
}


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
    files = check_documents(_document("cluster", cluster), read, _today())
    project = plan_files(
        files, File("cluster"), None if outputs is None else _document("outputs", outputs)
    )
    _warn(project.warnings)
    return project


def plan_job(
    job: Values | AnyJob, cluster: Values | ClusterConfig, outputs: Values | None = None
) -> tuple[JobPlan, ClusterPlan]:
    """Plan one job on a cluster, as above."""
    project = plan_project(cluster, jobs=[job], outputs=outputs)
    return project.jobs[0], project.cluster


@dataclass(frozen=True)
class Arguments:
    """The arguments of a construct, as the part of a cluster file that they are.

    Parts that nobody gave stand for themselves: nothing that is made depends on them.
    """

    place: str
    """Path of the construct, which messages name."""
    blocks: Values
    """Blocks of the cluster file; None means its default."""
    names: Mapping[Path, str]
    """Argument by the path of what it becomes; empty: the keys are arguments themselves."""
    texts: Mapping[str, str | Sequence[str] | Mapping[str, str]]
    """What is only passed on: texts, lists of texts and mappings to texts, tokens among them."""
    zones: Sequence[str] = ()
    region: str | None = None
    """None: that of the zones; a stack may not know."""

    def plan(self) -> ClusterPlan:
        """Return the plan; raise ConfigError with every wrong argument."""
        files = check_documents(_document(self.place, self._cluster()), [], _today())
        passed_on = (finding.at(self.place, 0) for finding in self._passed_on())
        found = [*passed_on, *self._renamed(files.findings)]
        if has_errors(found):
            raise ConfigError(found)
        _warn(found)
        return plan_files(files, File(self.place)).cluster

    def _cluster(self) -> dict[str, Json]:
        zones = list(self.zones) if isinstance(self.zones, _LIST) else []
        region = self.region or (zones[0][:-1] if zones else "us-east-1")
        # EKS demands two zones of a cluster, which has more than the ones in question.
        letters = (f"{region}{letter}" for letter in ZONE_LETTERS.get(region, "ab"))
        more = [] if len(zones) > 1 else [zone for zone in letters if zone not in zones][:2]
        account = f"arn:{PARTITIONS.get(region, 'aws')}:iam::000000000000"
        pools = [
            {"name": zone, "instance_type": "p5.48xlarge", "availability_zone": zone}
            for zone in zones or more
        ]
        standing: dict[str, Json] = {
            "schema_version": 1,
            "name": "cluster",
            "region": region,
            "availability_zones": [*zones, *more],
            "access": {
                "admin_role_arns": [f"{account}:role/Admin"],
                "public_cidrs": [],
                "private_route": "vpn",
            },
            "network": {
                "vpc_id": "vpc-00000000",
                "private_subnets": {
                    zone: f"subnet-{index:08x}" for index, zone in enumerate([*zones, *more])
                },
            },
            "gpu_pools": [{**pool, "max_nodes": 1} for pool in pools],
        }
        given = _without_none(to_jsonable_python(self.blocks, fallback=str))
        assert isinstance(given, dict)  # noqa: S101 -- our own constructs write the blocks
        return {**standing, **given}

    def _passed_on(self) -> Iterator[Finding]:
        for name, value in self.texts.items():
            wanted = _KINDS.get(name, _TEXT)
            given = value if isinstance(value, wanted) else ()
            texts = [*(given.values() if isinstance(given, Mapping) else given)]
            if not texts or not all(isinstance(text, str) and text for text in texts):
                found = f"no text in {value!r}" if isinstance(value, wanted) else _kind(value)
                yield Finding(Code.WRONG_TYPE, (name,), found, f"give {_WORDS[wanted]}")

    def _renamed(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Call what arguments became by their names, and leave out what is said of the rest.

        If nobody's argument is wrong, nothing of the rest is: `plan_files` refuses that.
        """
        for finding in findings:
            for path, name in self.names.items():
                if finding.path[: len(path)] == path:
                    rest = finding.path[len(path) :]
                    yield replace(finding, path=(name, *rest) if name else rest)
                    break


def _document(place: str, value: Values | BaseModel) -> Document:
    if isinstance(value, BaseModel):
        # Of a job, what is given and what is a default are not the same.
        value = value.model_dump(mode="json", exclude_unset=not isinstance(value, ClusterConfig))
    document = _Values(place, value=to_jsonable_python(value, fallback=str))
    if not isinstance(document.value, dict):
        found, remedy = f"{type(value).__name__}, and no mapping", "give a dictionary or a model"
        document.findings += document.locate([Finding(Code.NOT_A_MAPPING, (), found, remedy)])
    return document


def _kind(value: object) -> str:
    return f"an object of type {type(value).__name__}"


def _without_none(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value


def _today() -> date:
    return datetime.now(tz=UTC).date()


def _warn(findings: Iterable[Finding]) -> None:
    for finding in findings:
        warnings.warn(str(finding), ConfigWarning, stacklevel=4)
