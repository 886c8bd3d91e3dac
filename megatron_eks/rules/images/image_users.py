"""Rules over the user of an image's programs: the home and packages it has, and SSH's settings."""

import re
from collections.abc import Iterator

from megatron_eks.config.errors import Finding
from megatron_eks.rules.image_stages import (
    PLAIN,
    Instruction,
    Stage,
    judged,
    refused,
    stages,
    warned,
)

_ROOT = frozenset({"", "root", "0"})
_HOME = re.compile(r"(?:^|\s)HOME(?:=|\s+)[\"']?(?P<place>[^\s\"']+)")
_OPENED = re.compile(
    r"\b(chmod|chown|setfacl|usermod)\b[^;&|\n]*\s/root\b|\buseradd\b[^;&|\n]*\s-o\s"
)
_FOR_ROOT = re.compile(
    r"(?:^|[;&|(])\s*(?:\w+=\S+\s+)*(?:pip3?|python3?\s+-m\s+pip)\s+install\b"
    r"(?=[^;&|\n]*\s--user(?:\s|$))"
)
_OTHER_PLACE = re.compile(r"PYTHONUSERBASE|/root\b|\.local\b|\bsu\s|\bsudo\s|\$HOME|~")
# ssh_config(5) has them, and sshd_config(5) has not; and the other way round.
_OF_CLIENTS = (
    *("BatchMode", "ConnectTimeout", "ForwardAgent", "IdentityFile", "ProxyCommand", "ProxyJump"),
    *("ServerAliveCountMax", "ServerAliveInterval", "StrictHostKeyChecking", "UserKnownHostsFile"),
)
_OF_SERVERS = (
    *("AllowUsers", "AuthorizedKeysFile", "ClientAliveInterval", "MaxSessions", "MaxStartups"),
    *("PermitEmptyPasswords", "PermitRootLogin", "PermitUserEnvironment", "StrictModes"),
)
_WRITTEN = (
    r"\b(?:echo|printf)\s+(?:-\w+\s+)*[\"']?\s*(?P<option>%s)\b[^;&|>]*>>?\s*"
    r"/etc/ssh/%s_config(?:\.d/\S+)?(?=[\s;&|]|$)"
)
_SSHD = re.compile(_WRITTEN % ("|".join(_OF_CLIENTS), "sshd"))
_SSH = re.compile(_WRITTEN % ("|".join(_OF_SERVERS), "ssh"))


def findings(listed: list[Instruction]) -> Iterator[tuple[Finding, int]]:
    """Judge the user of each stage, and what SSH is told; a finding comes with its line."""
    built = stages(listed)
    yield from judged(built, _other_program, refused)
    for stage in built:
        yield from _roots_home(stage)
        yield from _for_root(stage)


def _user(steps: tuple[Instruction, ...]) -> str | None:
    """Return as whom a stage's programs run; None where a variable hides it."""
    named = [each.rest.split(":")[0].strip() for each in steps if each.name == "USER"]
    user = named[-1] if named else ""
    return None if "$" in user else user


def _roots_home(stage: Stage) -> Iterator[tuple[Finding, int]]:
    """Find a home that its user may not enter.

    base-files of Debian, /root: nobody but root may enter it; triton-lang/triton and
    huggingface_hub keep their caches below the home directory.
    """
    user = _user(stage.steps)
    homes = [
        (step, met)
        for step in stage.steps[stage.own :]
        if step.name == "ENV" and (met := _HOME.search(step.rest))
    ]
    if not homes or user is None or user in _ROOT:
        return
    step, met = homes[-1]
    whole = "\n".join(each.rest for each in stage.steps if each.name == "RUN")
    if re.fullmatch(r"/root(/.*)?", met["place"]) and not _OPENED.search(whole):
        found = f"HOME is {met['place']}, which USER {user} may not enter: caches of torch, triton "
        found += "and Hugging Face end with Permission denied"
        yield warned(step, found, "write HOME=/tmp, or a directory that belongs to the user")


def _for_root(stage: Stage) -> Iterator[tuple[Finding, int]]:
    """Find packages in root's home of an image whose programs run as somebody else.

    pip documentation, "User Installs": --user is the home of who runs pip.
    """
    user = _user(stage.steps)
    if user is None or user in _ROOT or not PLAIN.fullmatch(stage.base):
        return
    whole = "\n".join(each.rest for each in stage.steps)
    known = not _OTHER_PLACE.search(whole) and not any(
        each.name == "ENV" and _HOME.search(each.rest) for each in stage.steps
    )
    for index in range(stage.own, len(stage.steps)):
        step = stage.steps[index]
        by = _user(stage.steps[:index])
        if step.name == "RUN" and by in _ROOT and known and _FOR_ROOT.search(step.rest):
            found = f"root's pip install --user goes into /root/.local, which USER {user} does not "
            yield warned(step, f"{found}see: No module named ...", "leave --user out")


def _other_program(stage: Stage, index: int) -> Iterator[tuple[str, str]]:
    """Find an option of SSH's client among its server's, or the other way round.

    ssh_config(5) and sshd_config(5): "Bad configuration option", and the program ends.
    """
    step = stage.steps[index]
    if step.name != "RUN" or "IgnoreUnknown" in step.rest:
        return
    for met in _SSHD.finditer(step.rest):
        found = f"{met['option']} is an option of ssh, and not of sshd, which ends with Bad "
        yield f"{found}configuration option", "write it to /etc/ssh/ssh_config"
    for met in _SSH.finditer(step.rest):
        found = f"{met['option']} is an option of sshd, and not of ssh, which ends with Bad "
        yield f"{found}configuration option", "write it to /etc/ssh/sshd_config"
