"""Rule over builds that push a tag which their repository takes once."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import items, mapping, text

_PUSHED = re.compile(r"docker (?:image )?push \S+:(?P<tag>[\w.-]+|\$\{?\w+\}?)")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
# The tag that is meant to move.
_MOVING = "latest"


def moving(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a build that pushes `latest` where tags cannot be moved.

    ECR User Guide, "Preventing image tags from being overwritten": the second push ends with
    ImageTagAlreadyExistsException ("tag invalid: ... is immutable").
    """
    repositories = list(templates.resources("AWS::ECR::Repository"))
    fixed = repositories and all(
        each.properties.get("ImageTagMutability") == "IMMUTABLE" for each in repositories
    )
    for project in templates.resources("AWS::CodeBuild::Project") if fixed else ():
        script = text((mapping(project.properties.get("Source")) or {}).get("BuildSpec")) or ""
        tags = {_value(match["tag"], project) for match in _PUSHED.finditer(script)}
        if "ecr" in script and _MOVING in tags:
            found = (
                f"the build pushes {_MOVING}, and {repositories[0].id} is IMMUTABLE: the second "
            )
            found += "build fails"
            remedy = "push a tag of its own, such as $CODEBUILD_RESOLVED_SOURCE_VERSION"
            path = ("Source", "BuildSpec")
            yield project.find(Code.BUILD_COMPUTE, path, found, remedy, Level.WARNING)


def _value(tag: str, project: Resource) -> str | None:
    """Return a tag, or what the project's environment has for the variable that it is."""
    variable = _VARIABLE.fullmatch(tag)
    if variable is None:
        return tag
    environment = mapping(project.properties.get("Environment")) or {}
    for value in items(environment.get("EnvironmentVariables")) or []:
        body = mapping(value) or {}
        if body.get("Name") == variable[1]:
            return text(body.get("Value"))
    return None
