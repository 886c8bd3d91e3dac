"""Rules over parts of a CodeBuild project that are left out, or that it cannot use as they are."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.own_rights import holders_of, statements_of
from megatron_eks.rules.policies import ROLE
from megatron_eks.rules.role_needs import actions_of, has_action
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    shown,
    text,
    written,
)

_PROJECT = "AWS::CodeBuild::Project"
_SPEC: Path = ("Source", "BuildSpec")
_VERSIONS = ("0.1", "0.2")
_PHASES = ("build", "install", "post_build", "pre_build")
_OF_PHASE = ("commands", "finally", "on-failure", "run-as", "runtime-versions")
_INSIDE = ("VpcId", "Subnets", "SecurityGroupIds")
_OWN_IMAGE = re.compile(r"aws/codebuild/(?P<name>[a-z0-9_-]+):.+")
# CodeBuild User Guide, "Docker images provided by CodeBuild" and "Lambda compute images".
_IMAGES = (
    *("amazonlinux-aarch64-lambda-standard", "amazonlinux-aarch64-standard"),
    *("amazonlinux-x86_64-lambda-standard", "amazonlinux-x86_64-standard"),
    *("amazonlinux2-aarch64-standard", "amazonlinux2-x86_64-standard", "macos-arm-base"),
    *("standard", "windows-base"),
)
_CLOSE = 0.85


def specs(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a build specification a version and keys that CodeBuild reads.

    CodeBuild User Guide, "Build specification reference": version is 0.2, or 0.1; the steps of a
    phase are its commands, and what stands under another key is run by nobody.
    """
    for project in templates.resources(_PROJECT):
        script = written((mapping(project.properties.get("Source")) or {}).get("BuildSpec")) or ""
        body = _read(script)
        version = body.get("version")
        if not is_absent(version) and str(version) not in _VERSIONS and "$" not in str(version):
            found = f"version {version}: the build ends with YAML_FILE_ERROR"
            yield project.find(Code.BUILD_COMPUTE, _SPEC, found, "write version: 0.2")
        for name, phase in (mapping(body.get("phases")) or {}).items():
            for key in (mapping(phase) or {}) if name in _PHASES else ():
                if key not in _OF_PHASE and "$" not in key:
                    close = get_close_matches(key, _OF_PHASE, 1, _CLOSE)
                    found = f"phase {name} has no {shown(key)}: CodeBuild runs none of it"
                    remedy = f"write {close[0]}" if close else f"known: {', '.join(_OF_PHASE)}"
                    yield project.find(Code.BUILD_COMPUTE, _SPEC, found, remedy)


def _read(script: str) -> "dict[str, Json]":
    if "\n" not in script and not script.lstrip().startswith("{"):
        # The name of a file in the source.
        return {}
    try:
        value: Json = yaml.safe_load(script)
    except yaml.YAMLError:
        return {}
    return mapping(value) or {}


def left_out(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a project the place of its source, and a network by all of its parts.

    CodeBuild API, ProjectSource.location and VpcConfig; WebhookFilter: one of each group is about
    the event.
    """
    for project in templates.resources(_PROJECT):
        source = mapping(project.properties.get("Source")) or {}
        kind = text(source.get("Type"))
        if kind in {"S3", "CODECOMMIT"} and is_absent(source.get("Location")):
            what = (
                "BUCKET/PATH of the archive" if kind == "S3" else "the repository's HTTPS address"
            )
            found = f"a source of type {kind} without Location: CodeBuild refuses the project"
            path: Path = ("Source", "Location")
            yield project.find(Code.BUILD_COMPUTE, path, found, f"name {what}")
        network = mapping(project.properties.get("VpcConfig")) or {}
        missing = [key for key in _INSIDE if is_absent(network.get(key))]
        if network and missing:
            found = f"VpcConfig without {' and '.join(missing)}: CodeBuild refuses the project"
            path = ("VpcConfig", missing[0])
            yield project.find(Code.BUILD_COMPUTE, path, found, f"add {' and '.join(missing)}")
        triggers = mapping(project.properties.get("Triggers")) or {}
        for index, group in enumerate(items(triggers.get("FilterGroups")) or []):
            filters = [mapping(each) for each in items(group) or [] if isinstance(group, list)]
            kinds = [text((each or {}).get("Type")) for each in filters]
            if kinds and None not in kinds and "EVENT" not in kinds:
                found = "no filter of type EVENT: CodeBuild refuses the group"
                path = ("Triggers", "FilterGroups", index)
                yield project.find(
                    Code.BUILD_COMPUTE, path, found, "add {Type: EVENT, Pattern: PUSH}"
                )


def environments(templates: TemplateSet) -> Iterator[Finding]:
    """Require of an environment each variable once, and an image that CodeBuild has.

    CodeBuild User Guide, "Docker images provided by CodeBuild": another name is looked up at Docker
    Hub, and the build ends with BUILD_CONTAINER_UNABLE_TO_PULL_IMAGE.
    """
    for project in templates.resources(_PROJECT):
        environment = mapping(project.properties.get("Environment")) or {}
        seen: dict[str, int] = {}
        for index, value in enumerate(items(environment.get("EnvironmentVariables")) or []):
            name = text((mapping(value) or {}).get("Name"))
            if name is not None and name in seen:
                found = f"a second value of {shown(name)}, beside variable {seen[name]}"
                path: Path = ("Environment", "EnvironmentVariables", index, "Name")
                yield project.find(Code.TWICE, path, found, "keep one of the two", Level.WARNING)
            seen.setdefault(name or "", index)
        image = text(environment.get("Image")) or ""
        match = _OWN_IMAGE.fullmatch(image)
        close = get_close_matches(match["name"], _IMAGES, 1, _CLOSE) if match else []
        if match and close and match["name"] not in _IMAGES and not is_placeholder(image):
            found = f"CodeBuild has no image {shown(image)}: the build does not start"
            remedy = f"did you mean aws/codebuild/{close[0]}{image[match.end('name') :]}?"
            yield project.find(Code.BUILD_COMPUTE, ("Environment", "Image"), found, remedy)


def readers(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a build's role some right to read the archive that the build starts from.

    CodeBuild User Guide, "Allow CodeBuild to interact with other AWS services": DOWNLOAD_SOURCE
    ends with AccessDenied. That it reads another object alone is said beside this.
    """
    told: list[Resource] = []
    for project in templates.resources(_PROJECT):
        source = mapping(project.properties.get("Source")) or {}
        role = templates.target(project.properties.get("ServiceRole"), project.file)
        if source.get("Type") != "S3" or role is None or role.type != ROLE or role in told:
            continue
        actions = actions_of(role, templates)
        known = actions is not None and any(
            True for holder in holders_of(role, templates) for _ in statements_of(holder)
        )
        if known and not has_action(actions or set(), "s3:GetObject"):
            told.append(role)
            found = f"{project.id} starts from an archive in S3, and this role may not "
            found += "s3:GetObject: the build has no source"
            remedy = "allow s3:GetObject and s3:GetObjectVersion on that object"
            yield role.find(Code.POLICY, (), found, remedy)
