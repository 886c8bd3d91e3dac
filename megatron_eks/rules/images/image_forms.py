"""Rules over the form of a Dockerfile's instructions: what Docker reads otherwise than meant."""

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import (
    PLAIN,
    Instruction,
    Stage,
    refused,
    stages,
    warned,
)
from megatron_eks.rules.images.image_fetches import OF_BASES

_FORMS = ("CMD", "ENTRYPOINT", "SHELL")
_SPACED = re.compile(r"(?P<name>[A-Za-z_]\w*)\s+=\s*(?P<value>\S.*)")
_NAMED = re.compile(r"(?:^|[;&|\s])(?:useradd|adduser)\b(?P<words>[^;&|\n]*)")
_CLONE = re.compile(r"\bgit\s+clone\b[^;&|\n]*?\s(?P<word>cd|make|pip3?)\s+(?P<next>[^\s;&|]+)")
_DECLARED = re.compile(r"(?:^|\s)([A-Za-z_]\w*)(?==|$|\s)")
_USED = re.compile(r"(?<![\\$])\$(?:\{([A-Z][A-Z0-9_]*)\}|([A-Z][A-Z0-9_]*))")
_ASSIGNED = re.compile(r"(?:^|(?<=\s))(?P<name>\w+)=(?P<value>\"[^\"]*\"|\S*)")
_REFERENCE = re.compile(r"(?<![\\$])\$(?:\{(\w+)\}|(\w+))")
_SINGLE = re.compile(r"'[^']*'")
# Repositories whose tags begin with v.
_OF_TAGS = re.compile(
    r"github\.com/(?P<repository>aws/aws-ofi-nccl|ofiwg/libfabric|NVIDIA/(?:gdrcopy|nccl|nccl-tests))"
    r"/(?:releases/download|archive/refs/tags)/(?P<tag>\$\{?(?P<name>\w+)\}?|[0-9][\w.-]*)"
)
_LIKE, _MEANT = 0.9, 0.75
_NEARLY = 0.55
_WHOLE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<name>\w+))")


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge each instruction, and each stage; a finding comes with its line."""
    for step in listed:
        ends = _base(step) or _run_on(step)
        said = _spaced(step) or _no_list(step) or _several(step)
        if ends is not None:
            yield refused(step, *ends)
        elif said is not None:
            # Docker itself reads SHELL, and the shell of a pod the others.
            yield (refused if step.name == "SHELL" else warned)(step, *said)
    yield from _unnamed_base(listed)
    for stage in stages(listed):
        yield from _of_stage(stage)
        yield from _twice(stage)
        yield from _same_instruction(stage)


def _spaced(step: Instruction) -> tuple[str, str] | None:
    """Find a variable with spaces around its equals sign.

    Docker, Dockerfile reference, ENV: in `ENV KEY VALUE` all after the first space is the value.
    """
    met = _SPACED.fullmatch(step.rest) if step.name == "ENV" else None
    if met is None:
        return None
    found = f"{met['name']} becomes a text that begins with =: without = in the first word, all "
    return f"{found}after it is the value", f"write ENV {met['name']}={met['value']}"


def _no_list(step: Instruction) -> tuple[str, str] | None:
    """Find a list that is nearly JSON, which Docker gives to the shell as it stands.

    Docker, Dockerfile reference, "Exec form": it is parsed as JSON.
    """
    written = step.rest.strip()
    if step.name not in _FORMS or not re.fullmatch(r"\[.*\"\s*,?\s*\]", written, re.DOTALL):
        return None
    try:
        json.loads(written)
    except ValueError:
        shell = step.name == "SHELL"
        found = "the build stops here" if shell else "the shell looks for a program called ["
        found = f"this list is no JSON: {found}"
        return found, 'write ["PROGRAM", "ARGUMENT"], without a comma at its end'
    return None


def _base(step: Instruction) -> tuple[str, str] | None:
    """Find the name of a stage without AS.

    Docker, Dockerfile reference, FROM: "FROM requires either one or three arguments".
    """
    words = [each for each in step.rest.split() if not each.startswith(("--", "#"))]
    if step.name != "FROM" or len(words) != 2 or "{" in step.rest:  # noqa: PLR2004 -- an image and a name
        return None
    if words[1].lower() == "as":
        return "AS without a name: the build stops here", "write AS NAME"
    found = f"{words[1]} stands after the image without AS: the build stops here"
    return found, f"write FROM {words[0]} AS {words[1]}"


def _several(step: Instruction) -> tuple[str, str] | None:
    """Find several files that are copied to what is no directory.

    Docker, Dockerfile reference, COPY: with multiple sources the destination must be a directory
    and end with a slash. moby/buildkit, issue 4550: BuildKit goes on, with one file.
    """
    if step.name not in {"ADD", "COPY"} or re.search(r"[\[$*?<]", step.rest):
        return None
    *sources, target = [each for each in step.rest.split() if not each.startswith("--")] or [""]
    if len(sources) < 2 or target.endswith(("/", ".")):  # noqa: PLR2004 -- several
        return None
    found = f"several sources, and {target} does not end with /: the build stops here, or "
    found += "BuildKit leaves one of them under this name"
    return found, f"write {target}/"


def _unnamed_base(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Find an image whose name is an argument that nothing before it declares.

    Docker, Dockerfile reference, "Understand how ARG and FROM interact": it is empty, and "base
    name should not be blank".
    """
    declared: set[str] = set()
    outer = True
    for step in listed:
        if step.name == "ARG" and outer:
            declared |= {each.partition("=")[0] for each in step.rest.split()}
        outer = outer and step.name != "FROM"
        words = [each for each in step.rest.split() if not each.startswith("--")]
        met = _WHOLE.fullmatch(words[0]) if step.name == "FROM" and words else None
        name = (met["name"] or met["braced"]) if met else ""
        # Without any, something else fills the file in.
        if name and declared and name not in declared and not name.startswith(("BUILD", "TARGET")):
            close = get_close_matches(name, declared, 1, _NEARLY)
            found = f"no ARG before it declares {name}: the base has no name, and the build stops"
            remedy = f"did you mean {close[0]}?" if close else f"write ARG {name}=IMAGE before FROM"
            yield refused(step, found, remedy)


def _run_on(step: Instruction) -> tuple[str, str] | None:
    """Find a command that git takes for its own arguments.

    git-clone(1): a repository and a directory; with more it says "Too many arguments".
    """
    met = _CLONE.search(step.rest) if step.name == "RUN" else None
    if met is None:
        return None
    found = f"{met['word']} {met['next']} stands among the words of git clone: Too many arguments"
    return found, f"write && before {met['word']}"


def _twice(stage: Stage) -> Iterator[tuple[Finding, int]]:
    """Find what a later instruction of the stage takes the place of.

    Docker, "Build checks", MultipleInstructionsDisallowed.
    """
    last = {each.name: each for each in stage.steps}
    for step in stage.steps[stage.own :]:
        if step.name in {"CMD", "ENTRYPOINT"} and last[step.name] is not step:
            found = f"a later {step.name} takes its place: this one does nothing"
            yield warned(step, found, "keep one of them")


def _same_instruction(stage: Stage) -> Iterator[tuple[Finding, int]]:
    """Find a variable that takes its value from another of the same instruction.

    Docker, Dockerfile reference, "Environment replacement": the whole instruction uses the values
    from before it.
    """
    known: set[str] = set()
    for index, step in enumerate(stage.steps):
        if step.name == "ENV" and index >= stage.own and PLAIN.fullmatch(stage.base):
            plain = _SINGLE.sub("", step.rest)
            set_here: set[str] = set()
            for word in _ASSIGNED.finditer(plain) if "=" in plain.split()[0] else ():
                for met in _REFERENCE.finditer(word["value"]):
                    name = met[1] or met[2]
                    if name in set_here - known and not OF_BASES.fullmatch(name):
                        found = f"{name} is set by this same instruction, and {word['name']} gets "
                        found += "its value from before: it is empty"
                        yield refused(step, found, f"write ENV {word['name']}=... after it")
                        known.add(name)
                set_here.add(word["name"])
        if step.name in {"ARG", "ENV"}:
            known |= {met[1] for met in _DECLARED.finditer(step.rest)}


def _of_stage(stage: Stage) -> Iterator[tuple[Finding, int]]:
    known: set[str] = set()
    users: set[str] = set()
    entry = ""
    for index, step in enumerate(stage.steps):
        own = index >= stage.own
        if step.name in {"ARG", "ENV"}:
            known |= {met[1] for met in _DECLARED.finditer(step.rest)}
        elif step.name == "RUN":
            yield from _of_run(stage, index, known) if own else ()
            for met in _NAMED.finditer(step.rest):
                users |= {each for each in met["words"].split()[-1:] if each[0] not in "-$"}
        elif step.name == "USER" and own:
            name = step.rest.split(":")[0].strip()
            close = get_close_matches(name, users, 1, _MEANT)
            if close and name not in users and not name.isdigit():
                found = f"no user {name}, and a step before makes {close[0]}: nothing starts"
                yield warned(step, found, f"write USER {close[0]}")
        elif step.name == "ENTRYPOINT":
            entry = step.rest
        elif step.name == "CMD" and own and entry and not entry.lstrip().startswith("["):
            found = "ENTRYPOINT is no list, so a shell runs it alone: these words are not handed on"
            yield warned(step, found, 'write ENTRYPOINT ["PROGRAM"]')


def _of_run(stage: Stage, index: int, known: set[str]) -> Iterator[tuple[Finding, int]]:
    step = stage.steps[index]
    said, ends = _unknown(step, known), _tag(stage, index)
    if said is not None:
        yield warned(step, *said)
    elif ends is not None:
        yield refused(step, *ends)


def _unknown(step: Instruction, known: set[str]) -> tuple[str, str] | None:
    """Find a variable that is empty, and nearly one that a step before sets.

    POSIX, "Parameter Expansion": an unset parameter is an empty text.
    """
    plain = _SINGLE.sub("", step.rest)
    for met in _USED.finditer(plain):
        name = met[1] or met[2]
        close = get_close_matches(name, known, 1, _LIKE)
        set_there = re.search(rf"\b{name}=|\b(?:for|read|export|local)\s+{name}\b", plain)
        if close and name not in known and not set_there:
            return f"{name} is set nowhere, and empty", f"did you mean {close[0]}?"
    return None


def _tag(stage: Stage, index: int) -> tuple[str, str] | None:
    """Find a release by its number alone, where the repository's tags begin with v.

    aws/aws-ofi-nccl, ofiwg/libfabric, NVIDIA/gdrcopy, nccl and nccl-tests, tags: 404 otherwise.
    """
    for met in _OF_TAGS.finditer(stage.steps[index].rest):
        value = met["tag"]
        if met["name"]:
            given = re.findall(rf"\b{met['name']}=[\"']?([^\s\"']+)", stage.before(index))
            value = given[-1] if given else ""
        if value[:1].isdigit():
            found = f"{met['repository']} has no tag {value}: 404, and the build ends"
            return found, f"write v{met['tag']}"
    return None
