"""Rules over what a script keeps in variables for its launcher: options that never reach it."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.shell_scripts import commands_of, scripts_of
from megatron_eks.rules.jobs.shell_values import values_of
from megatron_eks.rules.jobs.unset_values import is_template
from megatron_eks.rules.values import shown
from megatron_eks.rules.workloads import Container, Manifest, Pod

_LAUNCHES = re.compile(
    r"(^|[\s/(&|])(torchrun|accelerate\s+launch|deepspeed|mpirun)\s|torch\.distributed\.run\s"
    r"|(^|[\s/])python[0-9.]*\s[^\n]*\.py\b"
)
_USED = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?:\[[@*]\])?\})")
_OF_OPTIONS = re.compile(r"[A-Za-z]\w*_(ARGS?|OPTS?|OPTIONS|FLAGS|PARAMS)", re.IGNORECASE)
_OPTION = re.compile(r"\s*\"?--?[A-Za-z]")
_SPACED = re.compile(
    r"\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)(?P<equals>[ \t]+=[ \t]*|=[ \t]+)"
    r"(?P<value>[\"'(]?-*\S*)"
)
_QUOTED = re.compile(r"(?<![\w=])\"\$\{?(?P<name>[A-Za-z_]\w*)\}?\"")
# Words of one command that was several lines before a fold of YAML joined them.
_SWALLOWS = re.compile(
    r"\s*(?P<command>set\s+-[a-z]|export\s|cd\s|source\s|echo\s|mkdir\s|ulimit\s)[^;&|]*?\s"
    r"(?=(?P<launcher>(\S*/)?torchrun\s|python[0-9.]*\s+(-u\s+)?-m\s+torch\.distributed))"
)
_SETS_NONE = re.compile(r"\s*(?:set\s+-[a-z]+|cd\s+\S+)(?:\s+pipefail)?\s+(?P<name>[A-Za-z_]\w*)=")
_CLOSE = 0.7


def unset(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a launcher that is given the options in a variable that nothing sets, but nearly.

    POSIX, "Shell Command Language", 2.6.2: an unset variable is an empty text, and `set -u` alone
    ends the script at it.
    """
    for pod, container, path, script in _launching(manifest):
        if container.body.get("envFrom") or is_template(manifest, pod, container):
            continue
        own = values_of(script)
        known = {each.name for each in container.variables}
        options = [name for name, value in own.items() if _OPTION.match(value)]
        for command in commands_of(script):
            for match in _USED.finditer(command) if _LAUNCHES.search(f"{command} ") else ():
                name = match["name"] or match["braced"]
                if name in known or re.search(rf"\b{name}(\s*\+?=|\[)", script):
                    continue
                close = get_close_matches(name, [*options, *known], 1, _CLOSE)
                alike = _OF_OPTIONS.fullmatch(name) and any(map(_OF_OPTIONS.fullmatch, options))
                if close or alike:
                    found = f"{shown(match[0])}, which nothing sets: it is empty"
                    spare = [each for each in options if not _is_read(script, each)]
                    meant = close or spare
                    remedy = f"did you mean ${meant[0]}?" if meant else "set it, or remove it"
                    yield Finding(Code.NOT_EXPANDED, path, found, remedy, Level.WARNING)


def unread(manifest: Manifest) -> Iterator[Finding]:
    """Warn of options that a script keeps in a variable, and gives to nobody.

    POSIX, "Shell Command Language", 2.9.1: an assignment alone changes the shell's own environment,
    and a program gets what is on its line, or is exported.
    """
    for *_, path, script in _launching(manifest):
        for name, value in values_of(script).items():
            exported = re.search(rf"\b(export|declare\s+-x)\b[^\n]*\b{name}\b", script)
            if not _OPTION.match(value) or exported or _is_read(script, name) or "set -a" in script:
                continue
            # Sourced files and indirect names may read everything.
            if re.search(r"(^|[\s;&|])(source|\.|eval|envsubst)\s|\$\{!", script):
                continue
            first = value.split()[0].strip('"')
            found = f"{name} is never read: {first} and what follows reach no program"
            remedy = f"write ${name} where the program is started, or remove it"
            yield Finding(Code.NOT_EXPANDED, path, found, remedy, Level.WARNING)


def spaced(manifest: Manifest) -> Iterator[Finding]:
    """Refuse spaces around the `=` of a variable.

    POSIX, "Shell Command Language", 2.10.2 rule 7: only NAME=value in one word is an assignment;
    with a space the name is a command, and with one behind the `=` the value is.
    """
    for *_, path, script in _launching(manifest):
        for command in commands_of(script):
            match = _SPACED.match(command)
            if match is None or match["value"].startswith("="):
                continue
            before = match["equals"][0] != "="
            # NAME= program is a program with an empty variable.
            if not before and not _OPTION.match(match["value"].lstrip("\"'(")):
                continue
            name = match["name"]
            what = name if before else shown(match["value"].strip("\"'("))
            found = f"spaces around the = of {name}: the shell takes {what} for a command"
            yield Finding(Code.SCRIPT, path, found, f"write {name}=... without spaces")


def quoted(manifest: Manifest) -> Iterator[Finding]:
    """Refuse quotes around a variable that holds several options, which make one word of them.

    POSIX, "Shell Command Language", 2.6.5: what is expanded between double quotes is not split.
    """
    for *_, path, script in _launching(manifest):
        values = values_of(script)
        arrays = set(re.findall(r"(?m)^[ \t]*(?:\w+[ \t]+)?([A-Za-z_]\w*)=\(", script))
        for command in commands_of(script):
            for match in _QUOTED.finditer(command) if _LAUNCHES.search(f"{command} ") else ():
                value, name = values.get(match["name"], ""), match["name"]
                if name not in arrays and _OPTION.match(value) and len(value.split()) > 1:
                    found = f"{match[0]} is one word, and no option has that name"
                    remedy = f'write ${name} without quotes, or an array: "${{{name}[@]}}"'
                    yield Finding(Code.NOT_EXPANDED, path, found, remedy)


def folded(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a launcher that has become an argument of the command before it.

    YAML 1.2, 8.1.3, folded style (`>`): the ends of lines become spaces; POSIX, `set`: words behind
    its options are positional parameters, so that nothing is started, and the script succeeds.
    """
    for *_, path, script in _launching(manifest):
        for command in commands_of(script):
            match, lost = _SWALLOWS.match(command), _SETS_NONE.match(command)
            remedy = "begin the script with | and not with >, or end the commands with ;"
            if match is not None and "$(" not in match[0] and "`" not in match[0]:
                first = match["command"].split()[0]
                found = f"the launcher is an argument of {shown(first)}, on one line with it: "
                found += "nothing is started"
                yield Finding(Code.SCRIPT, path, found, remedy)
                break
            if lost is not None:
                first = command.split()[0]
                found = f"{lost['name']}= is an argument of {shown(first)}, on one line with it: "
                found += "it sets nothing"
                yield Finding(Code.SCRIPT, path, found, remedy)
                break


def _launching(manifest: Manifest) -> "Iterator[tuple[Pod, Container, Path, str]]":
    """Return scripts of containers that start a launcher."""
    for pod in manifest.pods:
        for container in pod.containers:
            for path, script in scripts_of(container):
                if "<<" not in script and "{{" not in script and _LAUNCHES.search(f"{script} "):
                    yield pod, container, path, script


def _is_read(script: str, name: str) -> bool:
    return re.search(rf"\$\{{?#?{name}\b", script) is not None
