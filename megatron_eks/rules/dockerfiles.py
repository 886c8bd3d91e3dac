"""Rules over Dockerfiles: what an image sets for every run, and what it gives away."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.catalog.environment import NEEDLESS, Verdict, is_secret
from megatron_eks.catalog.environment_verdicts import ABOUT_EFA, Context, judge
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.secret_words import kind_of_secret
from megatron_eks.rules.values import shown
from megatron_eks.rules.variables import RENDEZVOUS

_NAME = re.compile(r"(docker|container)file([.-].*)?|.*\.(docker|container)file", re.IGNORECASE)
_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
_HEREDOC = re.compile(r"<<-?[\"']?(\w+)[\"']?")
_ESCAPE = re.compile(r"\\[ \t]*$")
# EFA is in an image that installs it, whose base brings it (AWS's own, NVIDIA's PyTorch and NeMo),
# or that sets libfabric's variables.
_EFA = re.compile(
    r"efa[_-]installer|aws-ofi-nccl|opt/amazon/efa|\bFI_(PROVIDER|EFA_\w+)\b"
    r"|/deep-learning-containers/|763104351884\.dkr\.ecr\.|/hpc-cloud/"
    r"|nvcr\.io/nvidia/(pytorch|nemo):",
    re.IGNORECASE,
)
_VALUE = r"(?P<name>[A-Za-z_]\w*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"';&|]*)"
_EXPORT = re.compile(rf"\bexport\s+{_VALUE}")
# In RUN an export ends with the step; what is written into a start-up file stays.
_KEPT = re.compile(rf"\b(?:echo|printf)\s+[\"']?(?:export\s+)?{_VALUE}[^\n;&|]*>>")
_REFERENCE = re.compile(r"\$\{?(\w+)\}?")
# An image is where the plugin is named.
_OF_AN_IMAGE = frozenset({"NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN"})
_KEPT_ARGS = frozenset({"ARG", "ENV"})


@dataclass(frozen=True)
class Instruction:
    """One instruction, its continued lines joined."""

    line: int
    name: str
    rest: str


def is_dockerfile(name: str) -> bool:
    """Tell a Dockerfile by its name: `Dockerfile`, `Dockerfile.gpu`, `train.dockerfile`."""
    return _NAME.fullmatch(name) is not None


def instructions(content: str) -> Iterator[Instruction]:
    """Read a Dockerfile as docker does; heredocs belong to their instruction."""
    logical, start, until = "", 0, ""
    for number, line in enumerate(content.splitlines(), 1):
        if until:
            logical += f"\n{line}"
            until = "" if line.strip() == until else until
        elif not line.strip() or line.lstrip().startswith("#"):
            continue
        else:
            start = start or number
            logical += _ESCAPE.sub(" ", line)
            if _ESCAPE.search(line):
                continue
            heredoc = _HEREDOC.search(logical)
            until = heredoc[1] if heredoc else ""
        if not until:
            yield from _instruction(start, logical)
            logical, start = "", 0
    if logical:
        yield from _instruction(start, logical)


def _instruction(line: int, logical: str) -> Iterator[Instruction]:
    match = _INSTRUCTION.fullmatch(logical)
    if match:
        yield Instruction(line, match[1].upper(), match[2].strip())


def findings_in_dockerfile(content: str, file: str) -> Iterator[Finding]:
    """Judge the variables, secrets and bases of a Dockerfile.

    megatron_eks.catalog.environment cites the source of each verdict; Docker, "Build checks",
    SecretsUsedInArgOrEnv; "Building best practices", pinned base images.
    """
    efa = _EFA.search(content) is not None
    listed = list(instructions(content))
    for each in listed:
        for name, value in _assignments(each):
            for finding in _of_variable(each, name, value, efa=efa):
                yield finding.at(file, each.line)
    for finding, line in _bases(listed):
        yield finding.at(file, line)


def _assignments(instruction: Instruction) -> Iterator[tuple[str, str | None]]:
    """Return what an instruction sets in the image, or takes when it is built."""
    name, rest = instruction.name, instruction.rest
    if name in _KEPT_ARGS:
        first, _, value = rest.partition(" ")
        if name == "ENV" and "=" not in first:
            yield first, value.strip()
            return
        for word in _words(rest):
            key, equals, value = word.partition("=")
            yield key, value if equals else None
    elif name in {"RUN", "CMD", "ENTRYPOINT"}:
        for match in (_KEPT if name == "RUN" else _EXPORT).finditer(rest):
            yield match["name"], match["value"].strip("\"'")


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _of_variable(
    instruction: Instruction, name: str, value: str | None, *, efa: bool
) -> Iterator[Finding]:
    path = (instruction.name, name)
    kind = kind_of_secret(value or "")
    named = is_secret(name, value or "?") and not (value or "").startswith(("/", "$"))
    if kind or (named and value):
        found = f"{shown(name)} holds {kind or 'a secret'}"
        remedy = "use RUN --mount=type=secret, and make the value that was written here invalid"
        yield Finding(Code.IMAGE_SECRET, path, found, remedy)
    elif named and value is None:
        found = f"{shown(name)}: what is given for it stays in the image's history"
        yield Finding(Code.IMAGE_SECRET, path, found, "use RUN --mount=type=secret", Level.WARNING)
    if instruction.name != "ARG" and value is not None:
        yield from _judged(path, name, value, efa=efa)


def _judged(path: tuple[str, str], name: str, value: str, *, efa: bool) -> Iterator[Finding]:
    elsewhere = RENDEZVOUS.fullmatch(name) or name in _OF_AN_IMAGE or is_secret(name, value or "?")
    # The names of interfaces are a matter of the pod.
    elsewhere = elsewhere or name.endswith("_SOCKET_IFNAME") or "$" in value
    idle = ABOUT_EFA.fullmatch(name) and not efa
    if elsewhere or idle:
        return
    policy = judge(name, value, Context())
    found = f"{shown(name)}: {policy.reason}"
    if policy.verdict in {Verdict.REFUSED, Verdict.NO_EFFECT}:
        level = Level.WARNING if name in NEEDLESS else Level.ERROR
        yield Finding(Code.IMAGE_VARIABLE, path, found, policy.instead, level)
    elif policy.verdict is Verdict.ADVISED_AGAINST:
        code = Code.IMAGE_VARIABLE_ADVISED_AGAINST
        yield Finding(code, path, found, policy.instead, Level.WARNING)


def _bases(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    arguments: dict[str, str] = {}
    stages: set[str] = {"scratch"}
    for each in listed:
        if each.name == "ARG":
            for name, value in _assignments(each):
                arguments.setdefault(name, value or "")
        if each.name != "FROM":
            continue
        words = [word for word in each.rest.split() if not word.startswith("--")]
        image = _REFERENCE.sub(lambda match: arguments.get(match[1], ""), words[0]) if words else ""
        tag = image.rpartition("/")[2].partition(":")[2]
        moves = tag in {"", "latest"} and "@" not in image
        known = bool(image) and not image.endswith((":", "/"))
        if known and moves and image.lower() not in stages:
            found = f"{shown(image)} is whatever was pushed last"
            remedy = "name a digest (@sha256:...), or a tag that nobody moves"
            yield Finding(Code.IMAGE_BASE, ("FROM",), found, remedy, Level.WARNING), each.line
        if len(words) > 2 and words[1].lower() == "as":  # noqa: PLR2004 -- FROM image AS stage
            stages.add(words[2].lower())
