"""Rules over the commands of a Dockerfile's steps: who runs them, in which shell, and whether."""

import re
from collections.abc import Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import (
    Instruction,
    Stage,
    ends_step,
    refused,
    stages,
    warned,
)

_DEBIAN = re.compile(
    r"(docker\.io/)?((library/)?(ubuntu|debian|python):(?!.*(alpine|ubi)).*|(nvcr\.io/)?nvidia/cuda:"
    r".*-ubuntu[0-9.]+|pytorch/pytorch:.*|nvcr\.io/nvidia/(pytorch|nemo):.*)"
)
_BARE = re.compile(
    r"(docker\.io/)?((library/)?(ubuntu|debian):.*|(nvcr\.io/)?nvidia/cuda:.*-ubuntu.*)"
)
_OF_NVIDIA = re.compile(r"nvcr\.io/nvidia/(pytorch|nemo):.*")
_MANAGED = re.compile(
    r"(docker\.io/)?((library/)?(ubuntu:(24|25|26).*|ubuntu:(noble|plucky).*)"
    r"|(nvcr\.io/)?nvidia/cuda:.*-ubuntu(24|25|26).*)"
)
_FREED = re.compile(
    r"break-system-packages|BREAK_SYSTEM_PACKAGES|EXTERNALLY-MANAGED|venv|conda|pyenv|deadsnakes"
    r"|get-pip|uv\b|astral\.sh|/opt/python|make altinstall|COPY --from|pip\.conf|\s--user\b"
)
_PIP = re.compile(r"(?:^|[\s;&])(?:pip3?|python3? -m pip) install\b(?!.*\s--(?:target|prefix)\b)")
_APT = re.compile(r"(?:^|[;&|\s])(apt-get|apt)\s+(?:-\S+\s+)*install\b")
_ASKS = re.compile(r"(?:^|[;&|\s])(?:apt-get|apt)(?P<words>(?:\s+-\S+)*\s+install\b[^;&|\n]*)")
_ANSWERED = re.compile(r"\s(-[a-zA-Z]*y[a-zA-Z]*|-qq|--yes|--assume-yes)\b|\$|--download-only")
_TOGETHER = re.compile(
    r"(?:^|[;&|({])\s*(?:sudo\s+|\w+=\S+\s+)*(?:apt-get|apt)(?:\s+-[^\s;&|]+)*\s+(?:"
    r"update(?:\s+-(?![oc]\b)[\w-]+)*\s+(?P<after_update>apt-get|apt|pip3?|curl|wget|git|rm|cd|mkdir)"
    r"|install\s(?:[^;&|\n\"'#>]*\s)?(?P<after_install>apt-get|rm|cd|mkdir|ln|ldconfig))(?=\s)"
)
# Neither Ubuntu's image nor NVIDIA's of CUDA has them.
_LACKING = re.compile(r"(?:^|[;&|(])\s*(git clone|curl -|curl http|wget -|wget http)")
# What brings others along, at which apt-get asks; for one package alone it does not.
_WITH_OTHERS = re.compile(
    r"\s(pdsh|git|build-essential|openssh-server|python3\S*|cmake|curl|wget|openmpi-bin|libopenmpi-dev"
    r"|autoconf|automake|libtool)\b"
)
# They write to /etc, and to the lists of packages.
_OF_ROOT = re.compile(
    r"(?:^|[;&|(])\s*(?:\w+=\S+\s+)*(?P<name>groupadd|useradd|usermod|groupmod|adduser|addgroup"
    r"|(?:apt-get|apt)\s+(?:-\S+\s+)*update)(?=\s|$)"
)
_SUDO = re.compile(r"\bsudo\b")
_SOURCE = re.compile(r"(?:^|&&|;|\|\|)\s*source\s+([^\s;&|]+)")
_ACTIVATES = re.compile(r"(?:source|\.)\s+\S+/activate|conda activate\s+\S+")
_USES = re.compile(r"(?:^|[;&\s])(?:pip3?|python3?|torchrun)\s")


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge the commands of each stage's own steps; a finding comes with its line."""
    for stage in stages(listed):
        yield from _of_stage(stage)


def _of_stage(stage: Stage) -> Iterator[tuple[Finding, int]]:
    user, shell, active = "", "", ""
    for index, step in enumerate(stage.steps):
        if step.name == "USER":
            user = step.rest.split(":")[0]
        elif step.name == "SHELL":
            shell = step.rest
        elif step.name == "ENV" and "PATH" in step.rest:
            active = ""
        elif step.name == "RUN":
            if index >= stage.own and not step.rest.startswith("["):
                yield from _run_together(step)
                ends = _unprivileged(step, user) or _unlisted(stage, index)
                said = (
                    _unanswered(stage, index)
                    or _absent(stage, index)
                    or _dash(stage, step, shell)
                    or _managed(stage, index)
                    or _inactive(step, active)
                )
                if ends is not None:
                    yield refused(step, *ends)
                elif said is not None:
                    bash = said == _dash(stage, step, shell) and _sure(stage, step)
                    yield (refused if bash else warned)(step, *said)
            active = _left_active(step.rest)


def _unprivileged(step: Instruction, user: str) -> tuple[str, str] | None:
    """Find an installation of packages by somebody who may not.

    Docker, Dockerfile reference, USER: it is for every step that follows; apt-get(8) needs root.
    """
    is_root = user in {"", "root", "0"} or "$" in user
    asked = "apt-get" if _APT.search(step.rest) else ""
    met = _OF_ROOT.search(step.rest)
    asked = asked or (met["name"] if met else "")
    if is_root or not asked or _SUDO.search(step.rest) or "<<" in step.rest:
        return None
    return f"{asked} as USER {user}: permission denied", "write USER root before, and USER after it"


def _unlisted(stage: Stage, index: int) -> tuple[str, str] | None:
    """Find an installation without a list of packages, which base images come without.

    Docker, "Building best practices", apt-get: update and install in one RUN.
    """
    rest, before = stage.steps[index].rest, stage.before(index)
    match = _APT.search(rest)
    earlier = f"{before}\n{rest[: match.start() + 1]}" if match else ""
    if not match or not _BARE.fullmatch(stage.base) or re.search(r"\bupdate\b|\.sh\b", earlier):
        return None
    # A package of the context needs no list, and a mount may bring one.
    local = re.search(r"install\b[^;&|]*\s(\./|/)\S+\.deb|--mount=", rest)
    found = "apt-get install without apt-get update: the image has no list of packages"
    return None if local else (found, "write apt-get update && apt-get install in one step")


def _unanswered(stage: Stage, index: int) -> tuple[str, str] | None:
    """Find an installation that asks whether to go on, where nobody answers.

    apt-get(8), --yes; Docker, "Building best practices", apt-get.
    """
    rest = stage.steps[index].rest
    told = "Assume-Yes" in f"{stage.before(index)}{rest}" or re.search(r"\byes\s*\|", rest)
    asks = any(
        _WITH_OTHERS.search(each["words"]) and not _ANSWERED.search(each["words"])
        for each in _ASKS.finditer(rest)
    )
    if told or not asks or not (_BARE.fullmatch(stage.base) or _OF_NVIDIA.fullmatch(stage.base)):
        return None
    return "apt-get install asks whether to go on, and nobody answers: it aborts", "add -y"


def _absent(stage: Stage, index: int) -> tuple[str, str] | None:
    """Find a program that the base image has not, and no step before installs.

    NVIDIA, container images of CUDA, dist/*/devel/Dockerfile: what the images have beside CUDA.
    """
    rest = stage.steps[index].rest
    match = _LACKING.search(rest) if _BARE.fullmatch(stage.base) else None
    if match is None:
        return None
    name = match[1].split()[0]
    before = f"{stage.before(index)}\n{rest[: match.start(1)]}"
    names = "\n".join(each.name for each in stage.steps[:index])
    if re.search(rf"\b{name}\b|\.sh\b|\$|@", before) or "COPY" in names or "ADD" in names:
        return None
    return f"{name} is not in {stage.base}, and no step before installs it", f"install {name} first"


def _dash(stage: Stage, step: Instruction, shell: str) -> tuple[str, str] | None:
    """Find `source` for a shell that has none.

    Docker, Dockerfile reference, SHELL: /bin/sh; Debian, DashAsBinSh: source is of bash alone.
    """
    match = _SOURCE.search(step.rest)
    in_bash = "bash" in f"{shell}{step.rest}" or "<<" in step.rest
    if match is None or in_bash or not _DEBIAN.fullmatch(stage.base):
        return None
    return "source in /bin/sh, which has none: source: not found", f"write . {match[1]}"


def _sure(stage: Stage, step: Instruction) -> bool:
    """Tell whether a step ends with its `source`; NVIDIA's images may have another shell."""
    met = _SOURCE.search(step.rest)
    return met is not None and not _OF_NVIDIA.fullmatch(stage.base) and ends_step(step, met.end())


def _run_together(step: Instruction) -> Iterator[tuple[Finding, int]]:
    """Find a command among the words of apt-get: the && between them is lost.

    apt-get(8): "The update command takes no arguments"; no package has the name of these.
    """
    met = _TOGETHER.search(step.rest)
    if met is None:
        return
    word = met["after_update"] or met["after_install"]
    if met["after_update"]:
        found = f"{word} stands among the words of apt-get update, which takes none: the build ends"
    else:
        found = f"{word} stands among the packages of apt-get install, and is none: the build ends"
    yield refused(step, found, f"write && before {word}", met.end())


def _managed(stage: Stage, index: int) -> tuple[str, str] | None:
    """Find pip where it leaves the system's Python alone.

    PEP 668; Ubuntu 24.04, release notes: pip ends with externally-managed-environment.
    """
    rest = stage.steps[index].rest
    whole = "\n".join(f"{each.name} {each.rest}" for each in stage.steps[: index + 1])
    first = _PIP.search(rest) and not _PIP.search(stage.before(index))
    if not first or not _MANAGED.fullmatch(stage.base) or _FREED.search(whole):
        return None
    found = "pip with the system's Python, which Ubuntu 24.04 keeps for itself: it ends with "
    return f"{found}externally-managed-environment", "make a venv, or add --break-system-packages"


def _left_active(rest: str) -> str:
    last = re.split(r"&&|;|\n", rest)[-1].strip()
    return last if _ACTIVATES.fullmatch(last) else ""


def _inactive(step: Instruction, active: str) -> tuple[str, str] | None:
    """Find a step that counts on an environment which the step before made active.

    Docker, Dockerfile reference, RUN: each step has a shell of its own; ENV stays.
    """
    if not active or not _USES.search(step.rest) or _ACTIVATES.search(step.rest):
        return None
    found = f"it is in another shell than '{active}' of the step before, which ended with it"
    return found, "write ENV PATH=/path/of/the/environment/bin:$PATH after it was made"
