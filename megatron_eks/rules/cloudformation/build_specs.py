"""Rules over what a build of CodeBuild does: the phases of its file, and the source it reads."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, choices
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.own_rights import holders_of, statements_of
from megatron_eks.rules.policies import ROLE, words
from megatron_eks.rules.role_needs import has_action
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, mapping, shown, text, written

_PHASES = ("build", "install", "post_build", "pre_build")
# The AWS CLI 2, which CodeBuild's images have, knows get-login-password alone.
_FORMER_LOG_IN = re.compile(r"aws (--\S+ \S+ )*ecr get-login(?![-\w])")
_SPEC: Path = ("Source", "BuildSpec")
_BUCKET = re.compile(r"arn:[^:]*:s3:::|\.Arn(?=\})")


def phases(templates: TemplateSet) -> Iterator[Finding]:
    """Require the phases that CodeBuild has, with commands in them.

    CodeBuild User Guide, "Build specification reference": install, pre_build, build, post_build;
    another one ends the build with YAML_FILE_ERROR (awslabs/aws-simple-cicd issue 37 writes
    pre-build). AWS CLI User Guide, "Migration guide for the AWS CLI version 2": ecr get-login is
    gone (aws-samples/cicd-for-ecs-workshop-code issue 5).
    """
    for project in templates.resources("AWS::CodeBuild::Project"):
        script = written((mapping(project.properties.get("Source")) or {}).get("BuildSpec"))
        image = text((mapping(project.properties.get("Environment")) or {}).get("Image")) or ""
        if _FORMER_LOG_IN.search(script or "") and image.startswith("aws/codebuild/"):
            found = "aws ecr get-login, which version 2 of the AWS CLI has no more: the build "
            found += "pushes nothing"
            remedy = "write aws ecr get-login-password | docker login --username AWS "
            yield project.find(Code.BUILD_COMPUTE, _SPEC, found, f"{remedy}--password-stdin HOST")
        for key, value in (_phases_of(script or "") or {}).items():
            if key not in _PHASES and "$" not in key:
                found = f"CodeBuild has no phase {shown(key)}: the build ends with YAML_FILE_ERROR"
                plain = key.replace("-", "_").lower()
                alike = [
                    each for each in _PHASES if each.replace("_", "") == plain.replace("_", "")
                ]
                remedy = f"write {alike[0]}" if alike else choices(key, _PHASES)
                yield project.find(Code.BUILD_COMPUTE, _SPEC, found, remedy)
            elif isinstance(value, list):
                found = f"a list under {key}: CodeBuild runs none of it"
                yield project.find(Code.BUILD_COMPUTE, _SPEC, found, "put it under commands")


def _phases_of(script: str) -> "dict[str, Json] | None":
    if "phases" not in script:
        return None
    try:
        value: Json = yaml.safe_load(script)
    except yaml.YAMLError:
        return None
    listed = mapping((mapping(value) or {}).get("phases"))
    return {str(key): each for key, each in (listed or {}).items()}


def sources(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a build's role that it may read the archive that the build starts from.

    CodeBuild User Guide, "Allow CodeBuild to interact with other services": s3:GetObject on the
    source; DOWNLOAD_SOURCE fails with AccessDenied otherwise.
    """
    for project in templates.resources("AWS::CodeBuild::Project"):
        source = mapping(project.properties.get("Source")) or {}
        location = written(source.get("Location")) if source.get("Type") == "S3" else None
        role = templates.target(project.properties.get("ServiceRole"), project.file)
        if location is None or "/" not in location or role is None or role.type != ROLE:
            continue
        read = _readable(role, templates)
        if read and not any(_may_be(location, each) for each in read):
            found = f"{project.id} starts from {location}, and this role may s3:GetObject on "
            found += f"{', '.join(read)} alone: the build has no source"
            remedy = "allow s3:GetObject and s3:GetObjectVersion on that object"
            yield role.find(Code.POLICY, (), found, remedy)


def _readable(role: Resource, templates: TemplateSet) -> list[str]:
    """Return the objects that a role may read; none where policies beside it may allow others."""
    if not is_absent(role.properties.get("ManagedPolicyArns")):
        return []
    found: list[str] = []
    every = [each for holder in holders_of(role, templates) for each in statements_of(holder)]
    for body in every:
        if has_action({each.lower() for each in words(body.get("Action"))}, "s3:GetObject"):
            value = body.get("Resource")
            for each in value if isinstance(value, list) else [value]:
                said = written(each)
                if said is None:
                    return []
                found.append(_BUCKET.sub("", said))
    return found


def _may_be(location: str, pattern: str) -> bool:
    """Tell whether an object may be among those of a pattern, as far as both are written out."""
    start, _, rest = pattern.partition("/")
    bucket, _, key = location.partition("/")
    if pattern == "*" or (start != bucket and ("$" in start or "$" in bucket or "*" in start)):
        return True
    return start == bucket and ("$" in rest + key or fnmatchcase(key, rest))
