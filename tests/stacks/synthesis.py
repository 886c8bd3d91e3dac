"""Synthesises the stacks of a cluster, changed as a test likes, and reads their templates."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from cfnlint import ManualArgs, api

from megatron_eks.config.job import AnyJob
from megatron_eks.config.load import Document, read_mapping
from megatron_eks.config.parse import parse_cluster
from megatron_eks.plan.cluster.cluster import ClusterPlan, plan_cluster
from megatron_eks.plan.cluster.images import PROGRAM
from megatron_eks.stacks.compose import build

# A template or cluster file as JSON, which has no narrower type.
Json = dict[str, Any]
Edit = Callable[[Json], None]

ROOT = Path(__file__).parents[2]
TAGS = {"megatron": "0123abcd", "fsdp": "4567cdef"}


@dataclass(frozen=True)
class Assembly:
    """What `cdk synth` writes for one cluster."""

    plan: ClusterPlan
    directory: Path

    def text(self, part: str) -> str:
        """Return the text of one stack's template."""
        return (self.directory / f"{self.plan.stack(part)}.template.json").read_text()

    def template(self, part: str) -> "Template":
        """Return the template of one stack."""
        return Template(json.loads(self.text(part)))

    def templates(self) -> "dict[str, Template]":
        """Return every template, by the stack's part of the cluster."""
        names = sorted(path.name for path in self.directory.glob("*.template.json"))
        parts = [name.removeprefix(f"{self.plan.name}-").partition(".")[0] for name in names]
        return {part: self.template(part) for part in parts}


@dataclass(frozen=True)
class Template:
    """One CloudFormation template."""

    body: Json

    @property
    def resources(self) -> dict[str, Json]:
        """Every resource, by its logical id."""
        return dict(self.body["Resources"])

    def of_type(self, kind: str) -> dict[str, Json]:
        """Return the resources of a type, by their logical ids."""
        return {name: body for name, body in self.resources.items() if body["Type"] == kind}

    def properties(self, kind: str) -> list[Json]:
        """Return the properties of every resource of a type."""
        return [body.get("Properties", {}) for body in self.of_type(kind).values()]

    def only(self, kind: str) -> tuple[str, Json]:
        """Return logical id and properties of a type's only resource."""
        [(name, body)] = self.of_type(kind).items()
        return name, body["Properties"]


def cluster_file() -> Json:
    """Read the default cluster file, for a test to change."""
    value = read_mapping((ROOT / "cluster.yaml").read_text(), "cluster.yaml").value
    assert isinstance(value, dict)
    return dict(value)


def plan_of(cluster: Json, jobs: Sequence[AnyJob] = ()) -> ClusterPlan:
    """Plan a cluster file that must be without fault."""
    config, findings = parse_cluster(Document("cluster.yaml", value=cluster))
    assert config is not None, findings
    return plan_cluster(config, TAGS, jobs)


def app_of(plan: ClusterPlan, sources: Path, outdir: Path, *, validate: bool = False) -> cdk.App:
    """Build every stack of a plan in an app with the flags that `cdk deploy` runs with."""
    app = cdk.App(
        outdir=str(outdir),
        context=json.loads((ROOT / "cdk.json").read_text())["context"],
        analytics_reporting=False,
        builtin_cloud_formation_validation=validate,
    )
    build(app, plan, sources)
    return app


def synthesise(cluster: Json, sources: Path, outdir: Path, jobs: Sequence[AnyJob] = ()) -> Assembly:
    """Write the assembly of a cluster file and its jobs."""
    plan = plan_of(cluster, jobs)
    app_of(plan, sources, outdir).synth()
    return Assembly(plan, outdir)


def write_sources(directory: Path) -> Path:
    """Write what images are built from: the build's program, and something that nobody wants."""
    (directory / PROGRAM).parent.mkdir(parents=True)
    (directory / PROGRAM).write_text("print()\n")
    (directory / PROGRAM).with_suffix(".pyc").write_text("")
    return directory


FILLED = {
    "AWS::AccountId": "111122223333",
    "AWS::Partition": "aws",
    "Bucket": "arn:aws:s3:::bucket",
    "Key": "arn:aws:kms:::key/1",
}


def filled(value: Any) -> str:
    """Fill in what CloudFormation would."""
    if isinstance(value, str):
        return value
    if "Fn::Join" in value:
        return "".join(map(filled, value["Fn::Join"][1]))
    return FILLED[value["Ref"] if "Ref" in value else value["Fn::GetAtt"][0]]


def allows(role: Json, action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Evaluate the policies of a role as IAM does: something allows it, and nothing denies it."""
    for each in (e for policy in role["Policies"] for e in policy["PolicyDocument"]["Statement"]):
        assert each["Effect"] == "Allow"
        tests = each.get("Condition", {})
        assert tests.keys() <= {"StringEquals", "StringLike"}
        wanted = {key: found for test in tests.values() for key, found in test.items()}
        if (
            _matches(action, each["Action"])
            and _matches(resource, map(filled, each["Resource"]))
            and all(_matches(context.get(key, ""), found) for key, found in wanted.items())
        ):
            return True
    return False


def _matches(text: str, patterns: str | Iterable[str]) -> bool:
    listed = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatchcase(text.lower(), each.lower()) for each in listed)


ACCEPTED = ["W3010"]  # The zone is chosen because the capacity is there.


def linted(text: str, *accepted: str, region: str = "us-east-2") -> list[str]:
    """Return what cfn-lint finds in the text of a template."""
    config = ManualArgs(ignore_checks=[*ACCEPTED, *accepted], regions=[region])
    return [str(finding) for finding in api.lint(text, config=config)]
