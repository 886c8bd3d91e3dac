"""Rules over steps of a Dockerfile that ask for what a build has not: GPUs, a kernel, a home."""

import re
from collections.abc import Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import Instruction, refused, warned

_COMMANDS = re.compile(r"&&|;|\n")
_ASKS_GPU = re.compile(r"nvidia-smi(\s+-[^|]*)?")
_ASSERTS_GPU = re.compile(
    r"python3?\s+-c\s+(?P<quote>[\"'])(?:(?!(?P=quote)).)*\bassert torch\.cuda\.is_available\(\)",
    re.DOTALL,
)
_MOUNTS = re.compile(r"(sudo\s+)?mount\s.*-t\s*(lustre|nfs4?|efs)\b.*", re.DOTALL)
_OF_KERNEL = re.compile(
    r"(sudo\s+)?(modprobe|insmod|sysctl\s+(-w|-p|--system)|systemctl\s+(re)?start)\b.*"
)
_LIMITS = re.compile(r"ulimit\s+-\w.*")
_OF_A_HOME = re.compile(r"(~|/home/[^/\s]+|/Users/[^/\s]+)(/|$)")


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge each step; a finding comes with its line."""
    for step in listed:
        said = None
        if step.name == "RUN" and "<<" not in step.rest:
            said = _run(step.rest)
        elif step.name in {"COPY", "ADD"}:
            said = _copied(step)
        if said is not None:
            found, remedy = said
            ends = step.name != "RUN" and "s3://" in found
            yield (refused if ends else warned)(step, found, remedy)


def _run(rest: str) -> tuple[str, str] | None:
    """Find what a container of a build may not do, or what ends with it.

    NVIDIA/nvidia-docker, issue 1747 (RUN nvidia-smi), and nvidia-container-toolkit, issue 351: a
    build has no GPU without RUN --device. Docker, Dockerfile reference, RUN --security: a step is
    not privileged.
    """
    plain = re.sub(r"^(--\S+\s+)*", "", rest)
    commands = [each.strip() for each in _COMMANDS.split(plain) if each.strip()]
    asks = _ASSERTS_GPU.search(plain) or any(_ASKS_GPU.fullmatch(each) for each in commands)
    if asks and "||" not in plain and "--device" not in rest:
        return "a build has no GPU: this step fails", "remove it, or ask when the pod starts"
    for each in commands:
        if "--security=insecure" in rest or "||" in each:
            continue
        if _MOUNTS.fullmatch(each):
            found = "a step may mount nothing, and what it mounts is not in the image"
            return found, "mount a claim of the file system in the pod"
        if match := _OF_KERNEL.fullmatch(each):
            found = f"{match[0].split()[0]} is for a machine with its own kernel and services, and "
            return f"{found}an image has none", "leave it to the node, or start it with the pod"
    if commands and all(_LIMITS.fullmatch(each) for each in commands):
        found = "a limit ends with the shell of its step"
        return found, "remove it: containers have the limits that their node gives them"
    return None


def _copied(step: Instruction) -> tuple[str, str] | None:
    """Find a source that is nowhere in the build's context.

    Docker, Dockerfile reference, COPY: a leading slash is the root of the context; ADD: from
    http(s) and Git.
    """
    words = [each for each in step.rest.split() if not each.startswith("--")]
    if "--from" in step.rest or len(words) < 2:  # noqa: PLR2004 -- a source and a target
        return None
    for source in (each.strip("[]\"',") for each in words[:-1]):
        if _OF_A_HOME.match(source):
            found = f"{source} is looked for below the build's context, and not in your home"
            return found, f"copy it into the context, and write {step.name} its path there"
        if source.startswith("s3://"):
            found = f"{step.name} reads no s3://: it takes {source} for a file of the context"
            return found, "bring data by a fetch job, or RUN aws s3 cp with a secret mount"
    return None
