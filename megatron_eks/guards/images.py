"""Guards of images: the repositories that keep them, and the builds that push them."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.pins import CODEBUILD_IMAGE
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.addons import json_of
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Value, report

_BUILD, _EXPIRES, _FIXED = Code.BUILD_COMPUTE, Code.EXPIRES, "IMMUTABLE_WITH_EXCLUSION"
_GONE = "the images of running jobs are deleted with the stack"
_OPEN, _NO_SOURCE = "no key of this account encrypts images", "CodeBuild refuses the project"
_MUST = (
    ("ImageTagMutability", (_FIXED, "IMMUTABLE"), "a tag moves under a job that restarts"),
    ("EmptyOnDelete", (NO, None), _GONE),
)
_SHOULD = (
    ("EncryptionConfiguration EncryptionType", ("KMS", "KMS_DSSE"), _OPEN),
    ("EncryptionConfiguration KmsKey", (), _OPEN),
    ("RepositoryName", (), "it gets another name whenever it is made again"),
    ("ImageScanningConfiguration ScanOnPush", (YES,), "nobody learns of known weaknesses"),
)
_KEPT = (("DeletionPolicy", ("Retain",), _GONE), ("UpdateReplacePolicy", ("Retain",), _GONE))
_LARGE = ("BUILD_GENERAL1_LARGE", "BUILD_GENERAL1_XLARGE", "BUILD_GENERAL1_2XLARGE")
_PROJECT = (
    ("Environment PrivilegedMode", (YES,), "docker does not start"),
    ("Environment ComputeType", _LARGE, "the build runs out of memory or disk"),
    ("Environment Type", ("LINUX_CONTAINER",), "the nodes are x86-64, and run nothing else"),
    ("Artifacts Type", ("NO_ARTIFACTS",), "the image goes to its repository, and nothing else"),
    ("Name", (), "`meks build` finds no project of another name"),
    ("Source Type", ("S3", "GITHUB"), _NO_SOURCE),
    ("Source Location", (), _NO_SOURCE),
    ("LogsConfig CloudWatchLogs Status", ("ENABLED",), "nobody can see why a build failed"),
    ("LogsConfig CloudWatchLogs GroupName", (), "logs go to a group without key and end"),
)
_GITHUB = (
    ("Source Auth Resource", (), "CodeBuild reads no private repository, and makes no webhook"),
    ("SourceVersion", (), "the default branch is built, whatever was planned"),
)
# What assets/codebuild/build_image.py reads, and the values that it takes; none: any.
_VARIABLES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("REPOSITORY_URI", "IMAGE_TAG", "IMAGE_NAME", "BUILD_ARGS"), ()),
    "TEST_LEVEL": ("quick", "standard", "full"),
    "TAG_STRATEGY": ("auto", "latest", "semantic", "git-sha"),
    "CACHE": ("registry",),
}
_STEPS = r"build_image\.py check\b.*py login\b.*py build\b.*py test\b.*py push\b"


@template_guard
def repositories(templates: Templates) -> Iterator[Finding]:
    """Jobs name images that stay, as they were (ECR, "Tag mutability", "Lifecycle policies")."""
    every = templates.of("ECR::Repository")
    yield from constants(every, Code.ENCRYPTION, _MUST)
    yield from constants(every, Code.ENCRYPTION, _SHOULD, Level.WARNING)
    for each in every:
        yield from each.body.must_hold(_EXPIRES, _KEPT)
        filters = each["ImageTagMutabilityExclusionFilters"]
        movable = [entry[f"{filters.name[:-1]}Value"].text for entry in filters]
        if each["ImageTagMutability"].text == _FIXED and movable != ["latest"]:
            found = f"tags {', '.join(movable) or 'none'} can be moved: a job restarts with another"
            yield filters.finding(Code.ENCRYPTION, found, "name 'latest' alone, as a WILDCARD")
        written = each["LifecyclePolicy"]["LifecyclePolicyText"]
        rules = Value(json_of(written), written.place, written.path)["rules"]
        if not list(rules):
            found, remedy = "no rules: images are kept, and paid, for ever", "expire untagged ones"
            yield written.finding(_EXPIRES, found, remedy, Level.WARNING)
        for chosen in (rule["selection"] for rule in rules):
            patterns = {*chosen["tagPrefixList"].texts, *chosen["tagPatternList"].texts}
            states = ("untagged", "tagged")[: 1 + bool(patterns - {"*", ""})]
            yield from chosen["tagStatus"].must_be(_EXPIRES, *states, why="jobs miss their images")


@template_guard
def builds(templates: Templates) -> Iterator[Finding]:
    """Build what jobs look for, for an hour, when the branch is pushed (CodeBuild API; `meks`)."""
    words = ("build_image.py", "REPOSITORY_URI")  # other builds are as their owners like
    every = [(each, str(each.properties.raw)) for each in templates.of("CodeBuild::Project")]
    for project in (each for each, text in every if any(word in text for word in words)):
        rows = (*_PROJECT, *(_GITHUB if project["Source"]["Type"].text == "GITHUB" else ()))
        yield from project.properties.must_hold(_BUILD, rows)
        image, limit = project["Environment"]["Image"], project["TimeoutInMinutes"]
        steps, triggers = project["Source"]["BuildSpec"], project["Triggers"]
        odd = re.match(r"aws/codebuild/(?!\S*x86_64-standard:\d\.0$)", image.text)
        runs = re.search(rf"{_STEPS}|^\S*\.ya?ml$", steps.text, re.DOTALL)
        small = (limit.number or 60) < 90  # noqa: PLR2004 -- megatron compiles for an hour
        order = "no check, login, build, test and push by build_image.py, in this order"
        yield from report(
            _BUILD,
            (odd, image, "no x86-64 image of CodeBuild", f"set it to {CODEBUILD_IMAGE!r}"),
            (small, limit, "the build is stopped while it compiles", "set it to 120"),
            (not runs, steps, order, "call it so"),
        )
        if triggers:
            yield from triggers["Webhook"].must_be(_BUILD, YES, why="no push starts a build")
        for group in list(triggers["FilterGroups"]) or [triggers] * bool(triggers):
            filters = {(each["Type"].text, each["Pattern"].text[:12]) for each in group}
            right = {("EVENT", "PUSH"), ("HEAD_REF", "^refs/heads/")} <= filters
            found = "what is no push to the branch is built and pushed as well"
            remedy = "filter by EVENT PUSH and HEAD_REF ^refs/heads/BRANCH$"
            yield from report(_BUILD, (not right, group, found, remedy))
        yield from _names(templates, project)


def _names(templates: Templates, project: Resource) -> Iterator[Finding]:
    """Check what assets/codebuild/build_image.py reads, and where `meks` finds its image."""
    given = project["Environment"]["EnvironmentVariables"]
    values = {each["Name"].text: each["Value"] for each in given}
    why = "the build stops, or takes a default"
    for name, allowed in _VARIABLES.items():
        absent, found = name not in values, f"no variable {name}: {why}"
        yield from report(_BUILD, (absent, given, found, f"add {name}"))
        if allowed and not absent:
            yield from values[name].must_be(_BUILD, *allowed, why=why)
    image = [templates.text(values.get(e, given)) for e in ("REPOSITORY_URI", "IMAGE_TAG")]
    name, there = values.get("IMAGE_NAME", given).text, dict(templates.outputs(project.file))
    wants = {"Image": ":".join(image), "BuildProject": f"${{{project.name}}}"}
    for kind, wanted in wants.items() if name else ():
        output = there.get(key := f"{name.capitalize()}{kind}", project.properties)["Value"]
        if templates.text(output) != wanted:
            found = f"no output {key} of {wanted}: `meks build` and jobs do not find it"
            yield output.finding(_BUILD, found, f"add {key} with that value")
