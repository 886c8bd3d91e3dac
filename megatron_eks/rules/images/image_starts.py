"""Rules over how an image starts its program: what a list hands to it, and what a shell drops."""

import json
import re
from collections.abc import Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import PLAIN, Instruction, Stage, stages, warned

_SHELL = re.compile(r"(\S*/)?(ba|da|k|z|a)?sh")
_SCRIPT_FLAG = re.compile(r"-[a-z]*c")
# What a script calls itself, and what ends its options.
_NAMES = frozenset({"-", "--", "_", "bash", "sh"})
_READS_WORDS = re.compile(r"\$|\bshift\b|\bgetopts\b")
_NAMED = re.compile(r"(?<![\\$])\$(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
# Programs that take each word as it is.
_PROGRAM = re.compile(r"(\S*/)?(torchrun|python[0-9.]*|accelerate|deepspeed|mpirun|ray|nemo)")


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge how each stage starts; a finding comes with its line."""
    for stage in stages(listed):
        for step in stage.steps[stage.own :]:
            words = _words(step)
            said = _dropped(words) or _of_list(stage, step, words)
            if said is not None:
                yield warned(step, *said)


def _words(step: Instruction) -> list[str]:
    """Return the words of an instruction's list; a shell starts what is no list."""
    try:
        listed = json.loads(step.rest) if step.name in {"CMD", "ENTRYPOINT"} else []
    except ValueError:
        return []
    right = isinstance(listed, list) and all(isinstance(each, str) for each in listed)
    return [str(each) for each in listed] if right else []


def _alone(stage: Stage, step: Instruction) -> bool:
    """Tell whether an entry point of this file is given no chance to read a command's words."""
    return step.name == "ENTRYPOINT" or all(each.name != "ENTRYPOINT" for each in stage.steps)


def _dropped(words: list[str]) -> tuple[str, str] | None:
    """Find words behind a shell's script, which are the script's own arguments.

    POSIX, sh, -c: the next word is the whole script; those after it are $0, $1 and so on.
    """
    flags = [n for n, each in enumerate(words) if _SCRIPT_FLAG.fullmatch(each)]
    at = flags[0] if flags else len(words)
    shell = words and _SHELL.fullmatch(words[0])
    if not shell or not all(each.startswith("-") for each in words[1:at]) or at + 2 >= len(words):
        return None
    script, rest = words[at + 1], words[at + 2 :]
    one = not any(char.isspace() for char in script.strip())
    if not one or _READS_WORDS.search(script) or script == "--" or {*rest} <= _NAMES:
        return None
    found = f"the shell runs {script} alone, and drops the {len(rest)} words after it"
    whole = json.dumps([*words[: at + 1], " ".join([script, *rest])])
    return found, f"write one word after {words[at]}: {whole}"


def _of_list(stage: Stage, step: Instruction, words: list[str]) -> tuple[str, str] | None:
    """Judge a list with the words of the entry point that stands before it.

    Docker, Dockerfile reference, "Understand how CMD and ENTRYPOINT interact": with lists, the
    command's words follow those of the entry point.
    """
    if _alone(stage, step):
        return _as_they_are(words) or _no_program(stage, words)
    entries = [each for each in stage.steps if each.name == "ENTRYPOINT"]
    entry = _words(entries[-1])
    said = (
        _as_they_are([*entry[:1], *words])
        if words and not any(map(_SHELL.fullmatch, entry))
        else None
    )
    met = next((one for each in words if (one := _NAMED.search(each))), None)
    if said is None or met is None:
        return None
    name = met["name"] or met["braced"]
    place = _place(stage, name)
    right = f"write {_NAMED.sub(place, met.string)}" if place else f"write what {name} stands for"
    return said[0], right


def _place(stage: Stage, name: str) -> str:
    """Return the path that a stage's ENV gives a name, and nothing else that it may give."""
    given = [
        met[1]
        for each in stage.steps
        if each.name == "ENV"
        for met in re.finditer(
            rf"(?:^|\s){name}(?:=|\s+)[\"']?(/[\w./-]+)[\"']?(?=\s|$)", each.rest
        )
    ]
    return given[-1] if given else ""


def _no_program(stage: Stage, words: list[str]) -> tuple[str, str] | None:
    """Find a list whose program is a variable, and no entry point that reads it."""
    met = re.match(r"\$(?:(\w+)|\{(\w+)\})", words[0]) if words else None
    if met is None or not PLAIN.fullmatch(stage.base):
        return None
    name = met[1] or met[2]
    place = _place(stage, name)
    right = words[0].replace(met[0], place) if place else f"what {name} stands for"
    return f"{words[0]}: no shell here puts in {name}: no such file", f"write {right}"


def _as_they_are(words: list[str]) -> tuple[str, str] | None:
    """Find a variable in a list, which no shell reads.

    Docker, Dockerfile reference, "Exec form": variable substitution does not happen.
    """
    if not words or not _PROGRAM.fullmatch(words[0]) or any(map(_SHELL.fullmatch, words)):
        return None
    for word in words[1:]:
        met = _NAMED.search(word)
        if met and not any(char.isspace() for char in word):
            name = met["name"] or met["braced"]
            found = f"{word}: no shell here puts in {name}, and the program gets it as it is"
            return found, f'write ["bash", "-c", "exec {" ".join(words)}"]'
    return None
