"""Reads Dockerfiles as docker does, and applies every rule over them."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from megatron_eks.config.errors import Finding
from megatron_eks.rules import image_stages
from megatron_eks.rules.image_stages import Instruction
from megatron_eks.rules.image_tags import on_arm
from megatron_eks.rules.images import (
    image_bases,
    image_builds,
    image_commands,
    image_contexts,
    image_fetches,
    image_forms,
    image_installs,
    image_instructions,
    image_needs,
    image_plugins,
    image_python,
    image_starts,
    image_targets,
    image_users,
    image_variables,
)

_NAME = re.compile(r"(docker|container)file([.-].*)?|.*\.(docker|container)file", re.IGNORECASE)
_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
# Of a shell's word as BuildKit reads it: no here-string, and no shift in $((1<<20)).
_HEREDOC = re.compile(r"(?:^|\s)[0-9]?<<-?[\"']?([A-Za-z_]\w*)[\"']?")
_ESCAPE = re.compile(r"\\[ \t]*$")
# Docker, Dockerfile reference, "Parser directives": they stand before everything else.
_DIRECTIVE = re.compile(r"#\s*(?P<name>\w+)\s*=\s*(?P<value>\S+)\s*")
_OTHER_ESCAPE = re.compile(r"`[ \t]*$")
_UNENDED = "<<"


def is_dockerfile(name: str) -> bool:
    """Tell a Dockerfile by its name: `Dockerfile`, `Dockerfile.gpu`, `train.dockerfile`."""
    return _NAME.fullmatch(name) is not None and not name.endswith(".dockerignore")


def instructions(content: str) -> Iterator[Instruction]:
    """Read a Dockerfile as docker does; heredocs belong to their instruction."""
    logical, start, until = "", 0, ""
    escape = _escape(content)
    for number, line in enumerate(content.splitlines(), 1):
        if until:
            logical += f"\n{line}"
            until = "" if line.strip() == until else until
        elif not line.strip() or line.lstrip().startswith("#"):
            continue
        else:
            start = start or number
            logical += escape.sub(" ", line)
            if escape.search(line):
                continue
            until = _begun(logical)
        if not until:
            yield from _instruction(start, logical)
            logical, start = "", 0
    if logical:
        yield from _instruction(start, logical)
    if until:
        yield Instruction(start, _UNENDED, until)


def _begun(logical: str) -> str:
    """Return the word that ends the heredoc of an instruction; in quotes there is none."""
    name = logical.split(maxsplit=1)[:1]
    if not name or name[0].upper() not in {"ADD", "COPY", "ONBUILD", "RUN"}:
        return ""
    for heredoc in _HEREDOC.finditer(logical):
        if not _in_quotes(logical[: heredoc.start()]):
            return heredoc[1]
    return ""


def _in_quotes(before: str) -> bool:
    mark, escaped = "", False
    for char in before:
        if escaped or (char == "\\" and mark != "'"):
            escaped = not escaped
        elif char == mark:
            mark = ""
        elif not mark and char in "\"'":
            mark = char
    return mark != ""


def _escape(content: str) -> re.Pattern[str]:
    for line in content.splitlines():
        met = _DIRECTIVE.fullmatch(line)
        if met is None:
            break
        if met["name"].lower() == "escape" and met["value"] == "`":
            return _OTHER_ESCAPE
    return _ESCAPE


def _instruction(line: int, logical: str) -> Iterator[Instruction]:
    match = _INSTRUCTION.fullmatch(logical)
    name, _, rest = logical.strip().partition(" ")
    name, rest = (match[1], match[2]) if match else (name, rest)
    if name:
        yield Instruction(line, name.upper(), rest.strip())


def findings_in_dockerfile(
    content: str, file: str, beside: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Finding]:
    """Judge the variables, secrets and bases of a Dockerfile, and the files beside it.

    megatron_eks.catalog.environment cites the source of each verdict; Docker, "Build checks",
    SecretsUsedInArgOrEnv; "Building best practices", pinned base images.
    """
    listed = list(instructions(content))
    yield from (finding.at(file, line) for finding, line in _unended(listed))
    listed = [one for one in listed if one.name != _UNENDED]
    for each in listed:
        for finding in image_builds.of_steps(each.name, each.rest, content):
            yield finding.at(file, each.line)
    rules = (
        *(image_bases, image_stages, image_python, image_instructions, image_commands),
        *(image_targets, image_installs, image_needs, image_plugins, image_forms),
        *(image_fetches, image_starts, image_users),
    )
    for finding, line in (
        *image_variables.findings(listed, content),
        *on_arm(listed, content),
        *image_contexts.findings(listed, beside),
        *(one for each in rules for one in each.findings(listed)),
    ):
        yield finding.at(file, line)


def _unended(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    for each in (one for one in listed if one.name == _UNENDED):
        found = f"no line {each.rest} ends what <<{each.rest} begins: the build stops here"
        remedy = f"write {each.rest} on a line of its own after it"
        yield image_stages.refused(Instruction(each.line, "RUN", ""), found, remedy)
