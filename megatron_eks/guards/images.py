"""Guards of images: the repositories that keep them, and the builds that push them."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.pins import CODEBUILD_IMAGE
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.addons import json_of
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Value

_BUILD = Code.BUILD_COMPUTE
_FIXED = ("IMMUTABLE_WITH_EXCLUSION", "IMMUTABLE")
_REPOSITORY_MUST = (
    ("ImageTagMutability", _FIXED, "a tag moves under a job that restarts"),
    ("EmptyOnDelete", (NO, None), "the images of running jobs are deleted with the stack"),
)
_REPOSITORY_SHOULD = (
    ("EncryptionConfiguration EncryptionType", ("KMS", "KMS_DSSE"), "no key of this account"),
    ("EncryptionConfiguration KmsKey", (), "images are encrypted with no key of this account"),
    ("RepositoryName", (), "it gets another name whenever it is made again"),
    ("ImageScanningConfiguration ScanOnPush", (YES,), "nobody learns of known weaknesses"),
)
_LARGE = ("BUILD_GENERAL1_LARGE", "BUILD_GENERAL1_XLARGE", "BUILD_GENERAL1_2XLARGE")
_PROJECT = (
    ("Environment PrivilegedMode", (YES,), "docker does not start"),
    ("Environment ComputeType", _LARGE, "the build runs out of memory or disk"),
    ("Environment Type", ("LINUX_CONTAINER",), "the nodes are x86-64, and run nothing else"),
    ("Artifacts Type", ("NO_ARTIFACTS",), "the image goes to its repository, and nothing else"),
    ("Source Location", (), "CodeBuild has no source, and refuses the project"),
    ("LogsConfig CloudWatchLogs Status", ("ENABLED",), "nobody can see why a build failed"),
    ("LogsConfig CloudWatchLogs GroupName", (), "logs go to a group without key and end"),
)
_GITHUB = (
    ("Source Auth Resource", (), "CodeBuild reads no private repository, and makes no webhook"),
    ("SourceVersion", (), "the default branch is built, whatever was planned"),
)
# What assets/codebuild/build_image.py reads, and the values that it takes; none: any.
_VARIABLES = {
    "TEST_LEVEL": ("quick", "standard", "full"),
    "TAG_STRATEGY": ("auto", "latest", "semantic", "git-sha"),
    "CACHE": ("registry",),
}
_NAMES = ("REPOSITORY_URI", "IMAGE_TAG", "IMAGE_NAME", "BUILD_ARGS")
_STEPS = r"build_image\.py check\b.*py login\b.*py build\b.*py test\b.*py push\b"


@template_guard
def repositories(templates: Templates) -> Iterator[Finding]:
    """Jobs name images that stay, as they were (ECR User Guide, "Image tag mutability")."""
    every = templates.of("ECR::Repository")
    yield from constants(every, Code.ENCRYPTION, _REPOSITORY_MUST)
    yield from constants(every, Code.ENCRYPTION, _REPOSITORY_SHOULD, Level.WARNING)
    for each in every:
        for policy in (each.body["DeletionPolicy"], each.body["UpdateReplacePolicy"]):
            why = "the images of running jobs are deleted with the stack"
            yield from policy.must_be(Code.EXPIRES, "Retain", why=why)
        filters = each["ImageTagMutabilityExclusionFilters"]
        movable = [entry["ImageTagMutabilityExclusionFilterValue"].text for entry in filters]
        if each["ImageTagMutability"].text == _FIXED[0] and movable != ["latest"]:
            found = f"tags {', '.join(movable) or 'none'} can be moved: a job restarts with another"
            yield filters.finding(Code.ENCRYPTION, found, "name 'latest' alone, as a WILDCARD")


@template_guard
def lifecycle_of_images(templates: Templates) -> Iterator[Finding]:
    """Only images without a tag expire (ECR User Guide, "Lifecycle policy properties")."""
    for repository in templates.of("ECR::Repository"):
        written = repository["LifecyclePolicy"]["LifecyclePolicyText"]
        rules = Value(json_of(written), written.place, written.path)["rules"]
        if not list(rules):
            found, remedy = "no rules: images are kept, and paid, for ever", "expire untagged ones"
            yield written.finding(Code.EXPIRES, found, remedy, Level.WARNING)
        for chosen in (rule["selection"] for rule in rules):
            patterns = chosen["tagPrefixList"].texts + chosen["tagPatternList"].texts
            states = ("untagged", "tagged") if {*patterns} - {"*", ""} else ("untagged",)
            why = "images go that jobs name when they restart"
            yield from chosen["tagStatus"].must_be(Code.EXPIRES, *states, why=why)
            if (chosen["countNumber"].number or 0) < 1:
                found = "countNumber is no number, 1 or more: ECR refuses it"
                yield chosen["countNumber"].finding(Code.EXPIRES, found, "set it to 14")


@template_guard
def build_machine(templates: Templates) -> Iterator[Finding]:
    """Let builds run docker for an hour, on tens of gigabytes (CodeBuild API, CreateProject)."""
    projects = _builds(templates)
    yield from constants(projects, _BUILD, _PROJECT)
    github = [each for each in projects if each["Source"]["Type"].text == "GITHUB"]
    yield from constants(github, _BUILD, _GITHUB)
    for project in projects:
        image, limit = project["Environment"]["Image"], project["TimeoutInMinutes"]
        if re.match(r"aws/codebuild/(?!\S*x86_64-standard:\d\.0$)", image.text):
            found = f"{image.text} is no x86-64 image of CodeBuild: the build does not start"
            yield image.finding(_BUILD, found, f"set it to {CODEBUILD_IMAGE!r}")
        if (limit.number or 60) < 90:  # noqa: PLR2004 -- megatron compiles for an hour
            found = f"{limit.number or 60} minutes: the build is stopped while it compiles"
            yield limit.finding(_BUILD, found, "set it to 120")
        steps = project["Source"]["BuildSpec"]
        inline = "\n" in steps.text or not steps.text.endswith((".yml", ".yaml"))
        if inline and not re.search(_STEPS, steps.text, re.DOTALL):
            found = "the image is not logged in for, built, tested and pushed, in this order"
            remedy = "run build_image.py check, login, build, test, push in its phases"
            yield steps.finding(_BUILD, found, remedy)


@template_guard
def build_variables(templates: Templates) -> Iterator[Finding]:
    """Say what a build makes, where jobs look for it (assets/codebuild/build_image.py; `meks`)."""
    for project in _builds(templates):
        given = project["Environment"]["EnvironmentVariables"]
        values = {each["Name"].text: each["Value"] for each in given}
        why = "the build stops, or takes a default"
        for name in (each for each in _NAMES if each not in values):
            yield given.finding(_BUILD, f"no variable {name}: {why}", f"add {name}")
        for name, allowed in _VARIABLES.items():
            yield from values.get(name, given[name]).must_be(_BUILD, *allowed, why=why)
        image = ":".join(templates.text(values.get(e, given)) for e in _NAMES[:2])
        outputs = dict(templates.outputs(project.file))
        name = values.get("IMAGE_NAME", given).text.capitalize()
        for key, wanted in (("Image", image), ("BuildProject", f"${{{project.name}}}")):
            output = outputs.get(f"{name}{key}", project.properties)
            if name and templates.text(output["Value"]) != wanted:
                found = f"no output {name}{key} of {wanted}: `meks build` and jobs do not find it"
                yield output["Value"].finding(_BUILD, found, f"add {name}{key} with that value")


@template_guard
def build_source(templates: Templates) -> Iterator[Finding]:
    """Build pushes to the named branch, and nothing else (CodeBuild API, WebhookFilter)."""
    for project in _builds(templates):
        source, triggers = project["Source"], project["Triggers"]
        role, on = templates.target(project["ServiceRole"]), source["Location"].text
        for value in (source["Location"], source["Auth"]["Resource"]) if on else ():
            name = value.text.removeprefix("https://github.com/").removesuffix(".git")
            if role and name not in str(role["Policies"].raw):
                found = f"{role.name} has no right to {name}: the build gets no source"
                yield value.finding(_BUILD, found, "correct it, or name it in the role's policy")
        if triggers:
            yield from triggers["Webhook"].must_be(_BUILD, YES, why="no push starts a build")
        for group in list(triggers["FilterGroups"]) or [triggers] * bool(triggers):
            patterns = {each["Type"].text: each["Pattern"].text for each in group}
            branch = patterns.get("HEAD_REF", "").startswith("^refs/heads/")
            if patterns.get("EVENT") != "PUSH" or not branch:
                found = "what is no push to the branch is built and pushed as well"
                remedy = "filter by EVENT PUSH and HEAD_REF ^refs/heads/BRANCH$"
                yield group.finding(_BUILD, found, remedy)


def _builds(templates: Templates) -> list[Resource]:
    """Return the projects that build an image for jobs; others may be made as their owners like."""
    listed, words = templates.of("CodeBuild::Project"), ("build_image.py", "REPOSITORY_URI")
    return [each for each in listed if any(word in str(each.properties.raw) for word in words)]
