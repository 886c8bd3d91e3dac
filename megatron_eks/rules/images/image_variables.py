"""Rules over what a Dockerfile sets for every run, and the secrets that it gives away."""

import re
import shlex
from collections.abc import Iterator

from megatron_eks.catalog.environment import NEEDLESS, Verdict, is_secret
from megatron_eks.catalog.environment_names import meant_by_a_library
from megatron_eks.catalog.environment_values import by_value
from megatron_eks.catalog.environment_verdicts import ABOUT_EFA, Context, judge
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.image_stages import Instruction, stages
from megatron_eks.rules.secret_words import kind_of_secret
from megatron_eks.rules.values import shown
from megatron_eks.rules.variables import RENDEZVOUS

# EFA is in an image that installs it, whose base brings it (AWS's own, NVIDIA's PyTorch and NeMo),
# or that sets its variables.
_EFA = re.compile(
    r"efa[_-]installer|aws-ofi-nccl|opt/amazon/efa|\bFI_EFA_\w+"
    r"|/deep-learning-containers/|763104351884\.dkr\.ecr\.|/hpc-cloud/"
    r"|nvcr\.io/nvidia/(pytorch|nemo):",
    re.IGNORECASE,
)
_VALUE = r"(?P<name>[A-Za-z_]\w*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"';&|]*)"
_EXPORT = re.compile(rf"\bexport\s+{_VALUE}")
# In RUN an export ends with the step; what is written into a start-up file stays.
_KEPT = re.compile(rf"\b(?:echo|printf)\s+[\"']?(?:export\s+)?{_VALUE}[^\n;&|]*>>")
# An image is where the plugin is named.
_OF_AN_IMAGE = frozenset({"NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN"})
# Read when a program starts, and by none of those that build an image.
_OF_RUNS = re.compile(
    r"(?!.*_(VERSION|HOME|DIR|PATH|TAG|COMMIT))"
    r"((NCCL|FI|OFI_NCCL|RDMAV|GLOO|TORCH_NCCL)_\w+|CUDA_DEVICE_MAX_CONNECTIONS)"
)
_BUILDS = re.compile(
    r"(export|pip3?|python3? -m pip|uv|conda|apt|apt-get|yum|dnf|cd|mkdir|rm|cp|mv|ln|echo|printf"
    r"|curl|wget|tar|git|ldconfig|chmod|chown|sed)\b"
)
# Names of one host's interfaces (aws/deep-learning-containers, pull request 6469), and loopback.
_OF_A_HOST = re.compile(r"=?(lo|(ens|eno|enp|bond|ib)\d\w*)")
# Programs that keep what they are given, or whose words the history keeps.
_LOGS_IN = re.compile(
    r"\bwandb\s+login\s+(--\S+\s+)*[0-9a-f]{40}\b"
    r"|\baws\s+configure\s+set\s+aws_secret_access_key\s+[\"']?[A-Za-z0-9+/]{40}\b"
    r"|\bdocker\s+login\b[^;&|\n]*\s(-p|--password)[= ]\s*[\"']?[^\s\"'$<]"
)
# Fewer than the eight of AWS's training nodes.
_FEW_GPUS = re.compile(r"\d+(,\d+){0,6}")
# Lists of directories, and the bases that put some there which programs need.
_BASES_WITH = {
    "LD_LIBRARY_PATH": re.compile(
        r"nvcr\.io/nvidia/|\bnvidia/cuda:|/deep-learning-containers/|763104351884\.dkr\.ecr\."
    ),
    "PATH": re.compile(""),
}
_KEPT_ARGS = frozenset({"ARG", "ENV"})


def findings(listed: list[Instruction], content: str) -> Iterator[tuple[Finding, int]]:
    """Judge each variable and each token; a finding comes with its line.

    megatron_eks.catalog.environment cites the source of each verdict; Docker, "Build checks",
    SecretsUsedInArgOrEnv.
    """
    efa = _EFA.search(content) is not None
    installed = "efa_installer.sh" in content
    for each in listed:
        of_variables = (
            found
            for name, value in assignments(each)
            for found in _of_variable(each, name, value, efa=efa)
        )
        yield from (
            (found, each.line)
            for name, value in assignments(each)
            for found in _of_plugin(each, name, value)
            if installed
        )
        for finding in (*of_variables, *_written_token(each), *_lost(each)):
            yield finding, each.line
    for stage in stages(listed):
        for each in stage.steps[stage.own :]:
            for finding in _overwritten(each, stage.base):
                yield finding, each.line


def assignments(instruction: Instruction) -> Iterator[tuple[str, str | None]]:
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


def _of_plugin(instruction: Instruction, name: str, value: str | None) -> Iterator[Finding]:
    """Yield a plugin of NCCL that is not the one of the EFA installer of this file."""
    policy = by_value(name, value) if name == "NCCL_NET_PLUGIN" and value else None
    if policy is not None and instruction.name == "ENV":
        found = f"{shown(name)}: {policy.reason}"
        yield Finding(Code.IMAGE_VARIABLE, (instruction.name, name), found, policy.instead)


def _written_token(instruction: Instruction) -> Iterator[Finding]:
    """Yield a token in a command or an address; one that a variable is set to is found there."""
    if instruction.name in _KEPT_ARGS:
        return
    in_variables = any(kind_of_secret(value or "") for _, value in assignments(instruction))
    kind = None if in_variables else kind_of_secret(instruction.rest)
    if kind is None and instruction.name == "RUN" and _LOGS_IN.search(instruction.rest):
        kind = "a key or a password"
    if kind:
        found = f"{kind} stands in this step, and stays in the image's history"
        remedy = "use RUN --mount=type=secret, and make the value that was written here invalid"
        yield Finding(Code.IMAGE_SECRET, (instruction.name.rstrip(":"),), found, remedy)


def _judged(path: tuple[str, str], name: str, value: str, *, efa: bool) -> Iterator[Finding]:
    elsewhere = RENDEZVOUS.fullmatch(name) or name in _OF_AN_IMAGE or is_secret(name, value or "?")
    # The names of interfaces, and NVLink between hosts, are a matter of the pod and its node.
    of_a_node = name.endswith("_SOCKET_IFNAME") or name.startswith("NCCL_MNNVL_")
    elsewhere = elsewhere or of_a_node or "$" in value
    idle = ABOUT_EFA.fullmatch(name) and not efa
    if name == "CUDA_VISIBLE_DEVICES" and _FEW_GPUS.fullmatch(value):
        found = f"{shown(name)}: every pod of the image has {value} alone, however many GPUs it "
        found += "asks for: invalid device ordinal"
        code, remedy = Code.IMAGE_VARIABLE_ADVISED_AGAINST, "remove it: the device plugin chooses"
        yield Finding(code, path, found, remedy, Level.WARNING)
    if name == "NCCL_SOCKET_IFNAME" and _OF_A_HOST.fullmatch(value):
        found = f"{shown(name)}: {value} is an interface of a host, and a pod has eth0: NCCL ends "
        found += "with no socket interface found"
        code, remedy = Code.IMAGE_VARIABLE_ADVISED_AGAINST, "write ^lo,docker,veth, or remove it"
        yield Finding(code, path, found, remedy, Level.WARNING)
    if elsewhere or idle:
        return
    right = meant_by_a_library(name) if path[0] == "ENV" else None
    if right is not None:
        found = f"{shown(name)}: no library reads this name"
        code = Code.IMAGE_VARIABLE_ADVISED_AGAINST
        yield Finding(code, path, found, f"did you mean {right}?", Level.WARNING)
        return
    policy = judge(name, value, Context())
    found = f"{shown(name)}: {policy.reason}"
    if policy.verdict in {Verdict.REFUSED, Verdict.NO_EFFECT}:
        level = Level.WARNING if name in NEEDLESS else Level.ERROR
        yield Finding(Code.IMAGE_VARIABLE, path, found, policy.instead, level)
    elif policy.verdict is Verdict.ADVISED_AGAINST:
        code = Code.IMAGE_VARIABLE_ADVISED_AGAINST
        yield Finding(code, path, found, policy.instead, Level.WARNING)


def _overwritten(instruction: Instruction, image: str) -> Iterator[Finding]:
    """Yield a list of directories that leaves out what the base image has in it."""
    if instruction.name != "ENV":
        return
    for name, value in assignments(instruction):
        base = _BASES_WITH.get(name)  # What the stage is made from has it, not what is copied.
        own = re.search(rf"\$\{{?{re.escape(name)}\b", value or "") or "/usr/bin" in (value or "")
        if base and value and not own and base.search(image):
            found = f"{shown(name)}: it drops the directories that the base image names there"
            remedy = f"write {name}={value}:${{{name}}}"
            code = Code.IMAGE_VARIABLE_ADVISED_AGAINST
            yield Finding(code, ("ENV", name), found, remedy, Level.WARNING)


def _lost(instruction: Instruction) -> Iterator[Finding]:
    """Yield what RUN exports for programs that do not run there."""
    if instruction.name != "RUN":
        return
    commands = [each.strip() for each in re.split(r"&&|\|\||;|\n", instruction.rest)]
    if not all(_BUILDS.match(each) for each in commands if each):
        return  # a program that the step runs may read it
    kept = [match.span() for match in _KEPT.finditer(instruction.rest)]
    for match in _EXPORT.finditer(instruction.rest):
        inside = any(start <= match.start() < end for start, end in kept)
        if _OF_RUNS.fullmatch(match["name"]) and not inside:
            found = f"{shown(match['name'])}: what RUN exports ends with its step"
            code, remedy = Code.IMAGE_VARIABLE_ADVISED_AGAINST, "use ENV, or remove it"
            yield Finding(code, ("RUN", match["name"]), found, remedy, Level.WARNING)
