"""A Dockerfile as its instructions, read as docker reads one without heredocs."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(r"\\\s*$")


@dataclass(frozen=True)
class Instruction:
    """One instruction and the rest of its logical line."""

    name: str
    rest: str


def read_dockerfile(path: Path) -> list[Instruction]:
    """Join continued lines, dropping comments and empty lines even inside an instruction."""
    found = []
    logical = ""
    for line in path.read_text().splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        logical += _ESCAPE.sub(" ", line)
        if _ESCAPE.search(line):
            continue
        name, _, rest = logical.strip().partition(" ")
        found.append(Instruction(name, rest.strip()))
        logical = ""
    assert not logical, f"{path} ends in the middle of an instruction"
    return found


def pairs(instruction: Instruction) -> dict[str, str]:
    """Return the assignments of ENV, LABEL or ARG."""
    words = shlex.split(instruction.rest)
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def merged(instructions: list[Instruction], name: str) -> dict[str, str]:
    """Return the assignments of all instructions of one name; the first of a name counts."""
    found: dict[str, str] = {}
    for instruction in instructions:
        if instruction.name == name:
            found = pairs(instruction) | found
    return found
