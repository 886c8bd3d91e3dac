"""Rules over what begins a Dockerfile's lines: instructions, and the stages that they name."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import Instruction, refused, warned

_INSTRUCTIONS = (
    *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL"),
    *("MAINTAINER", "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
)
_OF_SHELLS = frozenset(
    {
        *("&&", "||", "|", "apt-get", "apt", "pip", "pip3", "python", "python3", "git", "cd"),
        *("make", "cmake", "curl", "wget", "rm", "mkdir", "tar", "echo"),
    }
)
_CLOSE = 0.75
# A word of a command, such as a package or an option; a template's own words are none.
_GOES_ON = re.compile(r"-{0,2}[A-Z0-9][A-Z0-9_.+:=/-]*")
_GENERATED = re.compile(r"\{\{|\{%|@@|<%|^\(")
_OWN_WORDS = frozenset({"INCLUDE", "IF", "ELSE", "ENDIF", "FOR", "END", "INCLUDE+"})
_LIKE_A_STAGE = 0.7
_FORMS = frozenset({"CMD", "ENTRYPOINT", "SHELL"})
# Debian's and Ubuntu's /bin/sh is dash; NVIDIA's and PyTorch's images are built on them.
# moby/buildkit, frontend/dockerfile/parser, ParseHeredoc: the word begins right behind <<.
_OPEN = re.compile(r"<<-?\s+[\"']?\w+[\"']?\s*$")


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge each step; a finding comes with its line."""
    begun = False
    for before, each in zip([None, *listed], listed, strict=False):
        strange = each.name not in _INSTRUCTIONS
        # All lines of one text that docker takes for instructions are one mistake.
        known = strange and begun
        said = None if known else _unknown(before, each) or _quoted(each) or _outside(each)
        if said is not None and strange and before is not None and _OPEN.search(before.rest):
            said = said[0], "write <<EOF without a space, or docker does not see the heredoc"
        if said is not None:
            # Docker itself reads SHELL; a list in single quotes elsewhere is for a shell.
            ends = strange or each.name == "SHELL"
            yield (refused if ends else warned)(_named(each), *said)
        begun = strange and (begun or said is not None)
    yield from _stages_copied(listed)


def _named(step: Instruction) -> Instruction:
    """Return a step under the name that it should have: a command's is RUN."""
    return step if step.name in _INSTRUCTIONS else Instruction(step.line, "RUN", step.rest)


def _unknown(before: Instruction | None, step: Instruction) -> tuple[str, str] | None:
    """Find what is no instruction: a slip, or the rest of a step whose line was not continued.

    Docker, Dockerfile reference, "Format" and "escape": the build ends with unknown instruction.
    """
    if step.name in _INSTRUCTIONS:
        return None
    if step.name.lower() in _OF_SHELLS:
        found = f"{step.name.lower()} begins a line, and is no instruction: the build stops here"
        return found, "end the line before it with \\, or write RUN before it"
    close = get_close_matches(step.name, _INSTRUCTIONS, 1, _CLOSE)
    if close and step.name.isalpha():
        return f"{step.name} is no instruction: the build stops here", f"did you mean {close[0]}?"
    follows = before is not None and before.name in {"ENV", "LABEL", "RUN"}
    if (
        follows
        and _GOES_ON.fullmatch(step.name)
        and step.name not in _OWN_WORDS
        and not _GENERATED.search(step.rest)
    ):
        found = f"{step.name.lower()} begins a line, and is no instruction: the build stops here"
        return found, "end the line before it with \\, where it belongs to that one"
    return None


def _quoted(step: Instruction) -> tuple[str, str] | None:
    """Find a list in single quotes, which Docker gives to the shell as it stands.

    Docker, Dockerfile reference, "Exec form": it is parsed as JSON, so with double quotes.
    """
    if step.name in _FORMS and re.fullmatch(r"\[\s*'.*'\s*\]", step.rest, re.DOTALL):
        shell = step.name == "SHELL"
        found = "the build stops here" if shell else "the shell looks for a program called ["
        found = f"a list in single quotes is no JSON: {found}"
        return found, f"write {step.rest.replace(chr(39), chr(34))}"
    return None


def _outside(step: Instruction) -> tuple[str, str] | None:
    """Find a source above the build's context.

    Docker, Dockerfile reference, COPY: of a path that leads outside the context, parent directory
    paths are stripped out: COPY ../something is COPY something.
    """
    words = [each for each in step.rest.split() if not each.startswith("--")]
    copies = step.name in {"COPY", "ADD"} and "--from" not in step.rest
    if not copies or not words or not words[0].startswith("../"):
        return None
    inside = re.sub(r"^(\.\./+)+", "", words[0])
    found = f"{words[0]} leads out of the build's context, and Docker strips ../: this is "
    found += f"{inside or '.'} of the context"
    return found, f"write {inside or '.'}, or make the directory above the context if it is there"


def _stages_copied(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Find a stage of nearly the name that COPY asks for, which Docker then pulls as an image.

    Docker, Dockerfile reference, COPY --from: a stage before, or else an image of that name.
    """
    seen: list[str] = []
    for each in listed:
        words = each.rest.split()
        if each.name == "FROM" and len(words) > 2 and words[-2].lower() == "as":  # noqa: PLR2004 -- FROM image AS stage
            seen.append(words[-1].lower())
        asked = re.search(r"--from=([a-z][\w-]*)(?=\s)", each.rest) if each.name == "COPY" else None
        close = _stage_meant(asked[1].lower(), seen) if asked else []
        if asked and close and asked[1].lower() not in seen:
            found = (
                f"no stage before is called {asked[1]}, so Docker looks for an image of this name"
            )
            yield warned(each, found, f"did you mean {close[0]}?")


def _stage_meant(asked: str, seen: list[str]) -> list[str]:
    """Return the stage of nearly that name, or the one of whose name it is a longer form."""
    close = get_close_matches(asked, seen, 1, _LIKE_A_STAGE)
    longer = [each for each in seen if {*re.split("[-_]", each)} < {*re.split("[-_]", asked)}]
    return close or (longer if len(longer) == 1 else [])
