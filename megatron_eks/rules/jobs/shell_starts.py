"""Rules over what a shell is for: that one is started, that it is the right one, what it reads."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.jobs.shell_scripts import commands_of, scripts_of
from megatron_eks.rules.jobs.shell_words import IN_PODS
from megatron_eks.rules.values import is_placeholder, items, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest

_SHELL = re.compile(r"(\S*/)?(ba|da|k|z|a)?sh")
# A script follows, or is read from elsewhere.
_TAKES = re.compile(r"-[a-zA-Z]*[cs][a-zA-Z]*|--(rcfile|init-file|version|help)")
_PROGRAMS = frozenset(
    {
        *("accelerate", "aws", "cd", "deepspeed", "echo", "export", "mpirun", "nvidia-smi", "pip"),
        *("python", "python3", "sleep", "torchrun"),
    }
)
_COMMAND = re.compile(r"(?<!\$)\$\((?P<first>[a-z][\w./-]*)(?P<rest>[^)]*)\)")
_COMMANDS = frozenset(
    {
        *("cat", "curl", "date", "getent", "head", "hostname", "id", "ls", "nproc", "pwd", "seq"),
        *("uname", "uuidgen", "wc", "whoami"),
    }
)
_SINGLE = re.compile(
    r"(?:^|(?<=[\s=]))'\$\{?(?P<name>[A-Z_][A-Z0-9_]*)\}?(:(\d+|\$\{?\w+\}?))?'(?=\s|$)"
)
_LAUNCHES = re.compile(r"(^|[\s/(])(torchrun|deepspeed|mpirun)\s|torch\.distributed\.run\s")
# Whoever reads a text once more puts the values in.
_AGAIN = re.compile(r"(?<![\w-])(eval|envsubst|ssh|xargs|awk|sed|jq)(?![\w-])|sh\s+-\w*c\b")
_PLAIN_SHELL = re.compile(r"(\S*/)?sh")
# Words of bash that dash does not know, each with what it is called.
_OF_BASH = (
    (
        re.compile(r"(?m)(?:^|[;&|])\s*set\s+(?:-[a-zA-Z]+\s+)*-\w*o\s+pipefail\s*(?:$|;|&&)"),
        "pipefail",
    ),
    (re.compile(r"(?:^|[;&|\n]|\b(?:if|while|until|then|do))[ \t]*!?[ \t]*\[\[\s"), "[["),
    (re.compile(r"(?m)(?:^|[;&|])[ \t]*source[ \t]+[\w./~$]"), "source"),
    (re.compile(r"(?m)(?:^|[;&|])[ \t]*(?:declare[ \t]+-a[ \t]+)?[A-Za-z_]\w*=\("), "arrays"),
)
# There sh is bash, or BusyBox's, which takes most of these.
_OTHER_SH = re.compile(
    r"alpine|busybox|amazonlinux|aws-cli|\bubi|redhat|rocky|centos|alma|fedora|\bdnf|kubectl",
    re.IGNORECASE,
)


def unscripted(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a script, or a program, where a shell looks for the name of a file.

    POSIX, sh: without -c the first operand is "the pathname of a file containing commands".
    """
    for container in _containers(manifest):
        written = [text(each) for key in ("command", "args") for each in _listed(container, key)]
        words = container.words
        if not words or None in written or not _SHELL.fullmatch(words[0][1]):
            continue
        shell, plain, before = words[0][1], None, ""
        for path, word in words[1:]:
            if _TAKES.fullmatch(word):
                break
            # -o has a value: pipefail, errexit.
            if not word.startswith(("-", "+")) and not before.endswith("o"):
                plain = path, word
                break
            before = word if word.startswith(("-", "+")) else ""
        path, word = plain if plain is not None else ((), "")
        first = next(iter(word.split(maxsplit=1)), "")
        if is_placeholder(first):
            continue
        if len(word.split()) > 1:
            found = f"{shell} without -c looks for a file of the name {shown(first + ' ...')}"
            yield Finding(Code.REFUSED_IN_POD, path, found, "write -c before the script")
        elif first in _PROGRAMS:
            found = f"{shell} without -c reads {shown(first)} as a script of its own"
            remedy = f"start {first} without {shell}, or write -c and the whole command as one word"
            yield Finding(Code.REFUSED_IN_POD, path, found, remedy)


def unrun(manifest: Manifest) -> Iterator[Finding]:
    """Refuse `$(command)` where no shell runs it.

    Kubernetes, "Define a Command and Arguments for a Container": it puts in `$(NAME)` of a variable
    alone, and leaves the rest as it is.
    """
    for container in _containers(manifest):
        if not items(container.body.get("command")) or _has_shell(container):
            continue
        known = {each.name for each in container.variables}
        before = ""
        for path, word in container.words:
            match = _COMMAND.search(word) if "$(" in word else None
            # Code for another program has its own rules.
            plain = before != "-c" and "\n" not in word
            first = match["first"] if match and plain and match["first"] not in known else ""
            if match and first and (match["rest"].strip() or first in _COMMANDS):
                found = f"{shown(match[0])}: no shell here runs {first}, and it stays as it is"
                remedy = "start it by a shell: [bash, -c, ...]"
                yield Finding(Code.NOT_EXPANDED, path, found, remedy)
                break
            before = word


def single_quotes(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a launcher's value that single quotes keep as it is written.

    POSIX, "Shell Command Language", 2.2.2: they preserve "the literal value of each character".
    """
    for container in _containers(manifest):
        known = {each.name for each in container.variables}
        for path, script in scripts_of(container):
            for command in commands_of(script) if "'$" in script and "<<" not in script else ():
                if not _LAUNCHES.search(f"{command} ") or _AGAIN.search(command):
                    continue
                for match in _SINGLE.finditer(command):
                    before, name = command[: match.start()], match["name"]
                    inside = before.count("'") % 2 or before.count('"') % 2
                    ours = name in known or IN_PODS.fullmatch(name) or f"{name}=" in script
                    if ours and not inside:
                        quoted = match[0][1:-1]
                        found = f"{shown(quoted)} between single quotes: the shell puts nothing in"
                        yield Finding(Code.NOT_EXPANDED, path, found, f'write "{quoted}"')
                        break


def of_bash(manifest: Manifest) -> Iterator[Finding]:
    """Warn of words of bash in a script for sh, which is dash on Debian and Ubuntu.

    Debian, dash(1): only what POSIX designated in 2008, and some of BSD; NVIDIA's and AWS's images
    for training are made of Ubuntu.
    """
    for container in _containers(manifest):
        if not container.words or not _PLAIN_SHELL.fullmatch(container.words[0][1]):
            continue
        # Whoever trains has an image of Ubuntu, and others may have BusyBox.
        trains = container.has_launcher or container.names(GPU)
        if not trains or _OTHER_SH.search(text(container.body.get("image")) or ""):
            continue
        for path, script in scripts_of(container):
            if "<<" in script or "{{" in script or re.search(r"\bbash\b", script):
                continue
            named = next((word for pattern, word in _OF_BASH if pattern.search(script)), None)
            if named is not None:
                found = f"{named} is of bash, and sh of Debian and Ubuntu does not know it"
                remedy = "start the script by bash instead of sh"
                yield Finding(Code.SCRIPT, path, found, remedy, Level.WARNING)


def _containers(manifest: Manifest) -> Iterator[Container]:
    # KubeRay puts these words into a script of its own.
    for pod in manifest.pods if manifest.group != "ray.io" else ():
        yield from pod.containers


def _listed(container: Container, key: str) -> "list[Json]":
    return list(items(container.body.get(key)) or [])


def _has_shell(container: Container) -> bool:
    return any(_SHELL.fullmatch(word) for _, word in container.words)
