"""The stages of a Dockerfile, and rules over what one of their steps leaves to the next."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level

_REFERENCE = re.compile(r"(?<![\\$])\$(?:\{(\w+)\}|(\w+))")
_ARGUMENT = re.compile(r"(\w+)(?:=(\"[^\"]*\"|'[^']*'|\S*))?")
_SET_THERE = r"(?:^|[\s;&(]){}=|\b(?:for|read)\s+{}\b"
# Bases set these themselves: nvidia/cuda, python and NVIDIA's images of frameworks.
_OF_BASES = re.compile(
    r"(CUDA|NCCL|CUDNN|PYTHON|NV|NVIDIA)_?\w*|.*_PROXY|PATH|HOME|USER", re.IGNORECASE
)
_OF_NVIDIA = re.compile(r"nvcr\.io/nvidia/(?!cuda:)")
# NVIDIA's images name nearly every version that is in them; these are nobody's but the builder's.
_OF_BUILDERS = re.compile(r"(AWS_)?EFA_INSTALLER_VERSION|(MEGATRON_LM|NEMO_RUN)_VERSION")
_COMMANDS = re.compile(r"&&|\|\||;|\n")
_CD = re.compile(r"cd\s+[\"']?([^\s\"']+)[\"']?")
_MADE = re.compile(r"mkdir\s+(?:-p\s+)?[\"']?([^\s\"']+)")
# Commands that take their input from the directory in which they start.
_FROM_HERE = re.compile(
    r"(?:\w+=\S+\s+|time\s+)*(?:(?:make|ninja)\b(?!.*(?:\s-[CfF]|--directory|--file|--version))"
    r"|\./(?:configure|autogen\.sh|bootstrap\S*|build\S*|install\S*|setup\S*)"
    r"|cmake\s.*?(?<!\S)(?:\.\.?|-S\s*\.)(?:\s|$)"
    r"|python3?\s+setup\.py|(?:python3?\s+-m\s+)?pip3?\s+install\b.*\s\.{1,2}/?(?:\[\w+\])?(?:\s|$))"
)
# Images of which everybody can see what they set, and where they start.
PUBLIC = re.compile(
    r"nvcr\.io/nvidia/.+|((docker\.io|public\.ecr\.aws/docker)/)?((library/)?"
    r"(ubuntu|debian|python)|nvidia/cuda|pytorch/pytorch)(:.*)?"
)
# Their steps run as root, where nothing is to be built: in /, or in a directory of examples; what
# starts in them gets its words as they are.
PLAIN = re.compile(
    r"nvcr\.io/nvidia/(pytorch|cuda):.*|((docker\.io|public\.ecr\.aws/docker)/)?((library/)?"
    r"(ubuntu|debian|python)|nvidia/cuda|pytorch/pytorch):.*"
)
# What a shell does with a failed command other than to end its step.
_GOES_ON = re.compile(r"\|\||[;\n]|(?<![&>])&(?![&>])")
_OWN_PIPE = re.compile(r"(?:(?!&&)[^|])*\|")
_CONDITION = re.compile(r"(^|[\s;&(])(if|while|until|!)\s")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_GROUP = re.compile(r"\{\s[^{}]*\}|\([^()]*\)")
_SET_E = re.compile(r"set\s+-\w*e\w*(\s+-?\w+)*\s*(;|&&)")
_FETCHES = re.compile(r"\bgit\s+clone\b|\btar\s|\bunzip\b|\bwget\s|\bcurl\s")


@dataclass(frozen=True)
class Instruction:
    """One instruction, its continued lines joined."""

    line: int
    name: str
    rest: str


@dataclass(frozen=True)
class Stage:
    """What one FROM begins, with the steps of the stage that it builds on."""

    base: str
    """Its image, or that of the stage it builds on; what an ARG leaves open is missing in it."""
    steps: tuple[Instruction, ...]
    own: int
    """The number of the first step of its own."""

    def before(self, index: int) -> str:
        """Return the text of the steps before one."""
        return "\n".join(each.rest for each in self.steps[:index])


def stages(listed: Iterable[Instruction]) -> list[Stage]:
    """Divide a Dockerfile into its stages."""
    arguments: dict[str, str] = {}
    found: list[Stage] = []
    named: dict[str, Stage] = {}
    name, base, own, steps = "", "", 0, list[Instruction]()
    begun = False
    for each in [*listed, Instruction(0, "FROM", "")]:
        if each.name != "FROM":
            steps.append(each)
            if not begun and each.name == "ARG":
                arguments |= {
                    one[1]: (one[2] or "").strip("\"'") for one in _ARGUMENT.finditer(each.rest)
                }
            continue
        if begun:
            found.append(Stage(base, tuple(steps), own))
            named[name] = found[-1]
        begun = True
        words = [word for word in each.rest.split() if not word.startswith("--")] or [""]
        base = _filled(words[0], arguments)
        name = words[-1].lower() if len(words) > 1 else ""
        parent = named.get(words[0].lower())
        steps = list(parent.steps) if parent else []
        base, own = (parent.base if parent else base), len(steps)
    return found


def _filled(image: str, arguments: dict[str, str]) -> str:
    return _REFERENCE.sub(lambda one: arguments.get(one[1] or one[2], ""), image)


def warned(step: Instruction, found: str, remedy: str) -> tuple[Finding, int]:
    """Return a warning about an instruction, with its line."""
    return Finding(Code.IMAGE_BUILD, (step.name,), found, remedy, Level.WARNING), step.line


def refused(
    step: Instruction, found: str, remedy: str, end: int | None = None
) -> tuple[Finding, int]:
    """Return an error about an instruction at which every build ends, with its line.

    What a step does where a command fails (POSIX, "OR Lists") may be what is meant. Where the
    command's end in it is given, the rest of the step is read.
    """
    forgiven = "||" in step.rest if end is None else not ends_step(step, end)
    if step.name == "RUN" and forgiven:
        return warned(step, found, remedy)
    return Finding(Code.IMAGE_BUILD, (step.name,), found, remedy), step.line


def ends_step(step: Instruction, end: int) -> bool:
    """Tell whether a step ends with the failure of a command that reaches up to a place in it.

    POSIX, "Lists", "Pipelines" and "set": a failed command is forgotten after ;, before | and
    before ||; with set -e, after ; it is not.
    """
    if "<<" in step.rest:
        return False
    plain = step.rest
    for group in (_QUOTED, _GROUP, _GROUP):
        plain = group.sub(lambda one: _blank(one, end), plain)
    before, after = plain[:end], plain[end:]
    kept = _SET_E.match(step.rest) is not None
    if _CONDITION.search(before) or "||" in before or _OWN_PIPE.match(after):
        return False
    return "||" not in after if kept else not _GOES_ON.search(after)


def _blank(group: re.Match[str], end: int) -> str:
    """Return a group as long as it was; that of the command itself stays as it is."""
    return group[0] if group.start() < end < group.end() else "x" * len(group[0])


def judged(
    built: Iterable[Stage],
    judge: Callable[[Stage, int], Iterable[tuple[str, str]]],
    said: Callable[[Instruction, str, str], tuple[Finding, int]] = warned,
) -> Iterator[tuple[Finding, int]]:
    """Say what is found in each step of a stage's own, by the step's number in its stage."""
    for stage in built:
        for index in range(stage.own, len(stage.steps)):
            for found, remedy in judge(stage, index):
                yield said(stage.steps[index], found, remedy)


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge each stage; a finding comes with its line."""
    outer = set()
    for each in listed:
        if each.name == "FROM":
            break
        if each.name == "ARG":
            outer |= {one[1] for one in _ARGUMENT.finditer(each.rest)}
    for stage in stages(listed):
        yield from _undeclared(stage, outer)
        yield from _left_directories(stage)


def _undeclared(stage: Stage, outer: set[str]) -> Iterator[tuple[Finding, int]]:
    """Warn of an argument from before FROM that the stage does not take.

    Docker, Dockerfile reference, "Understand how ARG and FROM interact": it can only be used in
    FROM, until an ARG without a value takes it into the stage.
    """
    known: set[str] = set()
    for index, step in enumerate(stage.steps):
        if step.name in {"ARG", "ENV"}:
            known |= {one[1] for one in _ARGUMENT.finditer(step.rest)}
        for match in _REFERENCE.finditer(step.rest) if index >= stage.own else ():
            name = match[1] or match[2]
            of_base = _OF_BASES.fullmatch(name) or (
                name.endswith("_VERSION")
                and _OF_NVIDIA.match(stage.base)
                and not _OF_BUILDERS.fullmatch(name)
            )
            set_there = re.search(_SET_THERE.format(name, name), step.rest)
            if name in outer and name not in known and not of_base and not set_there:
                found = f"{name} is given before FROM alone: it is empty in this stage"
                remedy = f"write ARG {name} after FROM"
                path = (step.name, name)
                level = Level.ERROR if _needed(stage, step, match) else Level.WARNING
                yield Finding(Code.IMAGE_BUILD, path, found, remedy, level), step.line
                known.add(name)


def _needed(stage: Stage, step: Instruction, match: re.Match[str]) -> bool:
    """Tell whether a step fails for want of a version: of an archive, a branch, or a package."""
    before, after = step.rest[: match.start()], step.rest[match.end() :]
    address = re.search(r"https?://[^\s\"']*[-_v]$", before)
    fetched = re.search(r"\b(curl\s+(-\w*f|--fail)|wget\s)[^;&|]*$", before)
    named = (address and fetched) or before.endswith("aws-efa-installer-")
    archive = named and re.match(r"\.(tar|tgz|zip)\b", after)
    branch = re.search(r"\bgit\s+clone\b[^;&|]*\s(-b|--branch)[= ]\s*\"?$", before)
    package = re.search(r"\bpip3?\s+install\b[^;&|]*==$", before)
    certain = archive or branch or (package and re.match(r"[\s\"';&]|$", after))
    known = PUBLIC.fullmatch(stage.base) and step.name == "RUN"
    return bool(certain and known and ends_step(step, match.end()))


def _left_directories(stage: Stage) -> Iterator[tuple[Finding, int]]:
    """Warn of a build that counts on the directory into which the step before it went.

    Docker, Dockerfile reference, WORKDIR and RUN: each RUN starts a shell of its own, in WORKDIR.
    """
    left = ""
    filled = False
    for index, step in enumerate(stage.steps):
        if step.name == "WORKDIR":
            left, filled = "", False
        elif step.name in {"COPY", "ADD"}:
            left = ""
            filled = filled or not step.rest.rpartition(" ")[2].startswith("/")
        elif step.name == "RUN":
            commands = _commands(step.rest)
            if left and not filled and index >= stage.own and _starts_here(commands):
                plain = (
                    "|" not in step.rest
                    and ends_step(step, 0)
                    and not any(
                        each.name in {"WORKDIR", "VOLUME", "ONBUILD"}
                        for each in stage.steps[:index]
                    )
                )
                ends = plain and PLAIN.fullmatch(stage.base)
                found = f"it starts in WORKDIR again: the cd of the step before, to {left}, ended "
                found += "with that step"
                remedy = f"write WORKDIR {left} before it, or cd {left} && ... in this step"
                yield (refused if ends else warned)(step, found, remedy)
            filled = filled or _fills(commands)
            left = _left_by(commands)


def _commands(rest: str) -> list[str]:
    plain = re.sub(r"--mount=\S+\s*|\$\([^()]*\)", "", rest)
    return [each.strip() for each in _COMMANDS.split(plain) if each.strip()]


def _left_by(commands: list[str]) -> str:
    """Return the directory in which a step ends, if it fetched something or did nothing else."""
    gone = [match[1] for each in commands if (match := _CD.fullmatch(each))]
    used = any(_FETCHES.search(each) for each in commands) or len(commands) == len(gone) == 1
    aside = not gone or gone[-1] in {"..", "/", "-", "~", "/tmp"} or "(" in "".join(commands)  # noqa: S108 -- a place in the image
    return "" if aside or not used else gone[-1]


def _fills(commands: list[str]) -> bool:
    """Tell whether a step puts files into the directory in which it starts."""
    for each in commands:
        if _CD.fullmatch(each):
            return False
        if re.search(r"\bgit\s+clone\b.*\s\./?$", each) or re.match(r"(tar|unzip|wget)\s", each):
            return True
    return False


def _starts_here(commands: list[str]) -> bool:
    made: set[str] = set()
    for each in commands:
        if match := _MADE.match(each):
            made.add(posixpath.normpath(match[1]))
        elif match := _CD.fullmatch(each):
            if posixpath.normpath(match[1]) not in made:
                return False
        elif _FETCHES.search(each):
            return False
        elif _FROM_HERE.match(each):
            return True
    return False
