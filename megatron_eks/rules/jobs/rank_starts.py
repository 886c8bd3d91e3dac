"""Rules over how a rank's program is started and ended: its words, its shell, its directory."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.shell_scripts import commands_of, scripts_of
from megatron_eks.rules.jobs.training_flags import megatron_flags, split_words
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest, Pod

# What word processors and web pages make of two dashes, and of quotes.
_DASHES = re.compile(
    r"(?<![^\s\"'=])(?P<dash>-?[\u2010-\u2015\u2212][\u2010-\u2015\u2212-]*)[A-Za-z]"
)
_QUOTES = re.compile(r"=[\u2018\u2019\u201c\u201d]|[\s]--?[\w-]+[ =][\u2018\u2019\u201c\u201d]")
_PROSE = re.compile(r"(?m)(^|(?<=[;&|\s]))[ \t]*(#|(echo|printf)[ \t])[^\n]*")
_LAUNCHER = re.compile(r"(\S*/)?torchrun|torch\.distributed\.(run|launch)")
_PYTHON_ALONE = re.compile(r"(\S*/)?python[0-9.]*")
_BY_PYTHON = re.compile(r"(^|[\s;&|/])python[0-9.]*[ \t]+(-u[ \t]+)?torchrun\s")
_MODULE = frozenset({"-m", "--module"})
_ENDS = frozenset({"&&", "||", ";", "|", "&"})
_LAST_RUN = re.compile(r"\s*(?P<exec>exec\s+)?([A-Z_]+=\S*\s+)*(\S*/)?(torchrun|python[0-9.]*)\s")
_PASSES_ON = re.compile(r"\btrap\b|\bexec\b|\btini\b|dumb-init")
_WAITS = re.compile(r"\b(until|while)\b(?P<test>[^;\n]*(\[|\btest\b|\bls\b|\bstat\b)[^;\n]*)")
_FILE = re.compile(r"(?<![\w$}.])(?P<path>/[A-Za-z0-9._/-]+)")
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"


def typeset(manifest: Manifest) -> Iterator[Finding]:
    """Refuse dashes and quotes of typography in the options of a rank.

    POSIX, "Utility Syntax Guidelines": an option begins with the hyphen-minus alone; a pasted en
    dash makes a plain argument of it.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for path, word in container.words:
                # Comments and messages are prose.
                plain = word if word.isascii() else _PROSE.sub("", word)
                match = _DASHES.search(plain) or _QUOTES.search(plain)
                if match is not None:
                    begun = plain[match.start() :].strip().split(maxsplit=1)[0]
                    found = (
                        f"{shown(begun)} has a dash or quote of typography: no option is called so"
                    )
                    remedy = 'write it with - and " of the keyboard'
                    yield Finding(Code.REFUSED_IN_POD, path, found, remedy)


def modules(manifest: Manifest) -> Iterator[Finding]:
    """Refuse the name of a file as that of a module.

    Python, "Command line and environment", -m: a module's name has no extension;
    torch/distributed/run.py, --module, does the same: "No module named".
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if "-m" not in container.line and "--module" not in container.line:
                continue
            words = [(path, word) for path, line in container.words for word in split_words(line)]
            launched = False
            for (path, word), (_, after) in zip(words, [*words[1:], ((), "")], strict=True):
                if word in _ENDS:
                    launched = False
                by_python = re.fullmatch(r"(\S*/)?python[0-9.]*", word) is not None
                launched = launched or by_python or _LAUNCHER.fullmatch(word) is not None
                if launched and word in _MODULE and after.endswith(".py"):
                    found = f"{word} {shown(after)}: that is a file, and no module is called so"
                    yield Finding(Code.REFUSED_IN_POD, path, found, f"remove {word}")
                    break
                # Behind the program it is an option of its own.
                launched = launched and not word.endswith(".py")


def by_python(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a launcher that Python looks for as a file.

    Python, "Command line and environment": the first argument is a file in the working directory,
    and torchrun is one of PATH.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for path, line in container.words if "torchrun" in container.line else ():
                if _BY_PYTHON.search(line):
                    found = "python looks for a file torchrun in the working directory"
                    remedy = "write torchrun, or python -m torch.distributed.run"
                    yield Finding(Code.REFUSED_IN_POD, path, found, remedy)
            words = [word for _, word in container.words]
            first = container.words[0][0] if words else ()
            if words[1:2] == ["torchrun"] and _PYTHON_ALONE.fullmatch(words[0]):
                found = "python looks for a file torchrun in the working directory"
                remedy = "write torchrun, or python -m torch.distributed.run"
                yield Finding(Code.REFUSED_IN_POD, first, found, remedy)


def signals(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a shell that keeps SIGTERM from a program that is to save at it.

    Kubernetes, "Pod Lifecycle", termination: the signal goes to the container's first process; a
    shell waits for its child and does not hand it on, and after the grace period all are killed.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for path, script in scripts_of(container):
                commands = commands_of(script)
                last = _LAST_RUN.match(f"{commands[-1]} ") if commands else None
                # One command alone takes the shell's place.
                if len(commands) < 2 or last is None or _PASSES_ON.search(script):  # noqa: PLR2004 -- two commands
                    continue
                if "--exit-signal-handler" in {flag for _, flag, _ in megatron_flags(container)}:
                    found = "--exit-signal-handler, and the shell before it keeps SIGTERM: nothing "
                    found += "is saved when its node goes"
                    remedy = "write exec before the last command"
                    yield Finding(Code.CHECKPOINTS_LOST, path, found, remedy, Level.WARNING)


def directories(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a working directory that is not written from the root.

    OCI runtime specification, "Process", cwd: "This value MUST be an absolute path".
    """
    for pod in manifest.pods:
        for container in pod.containers:
            given = text(container.body.get("workingDir"))
            if (
                given
                and not given.startswith(("/", "\\"))
                and given[1:2] != ":"
                and not is_placeholder(given)
            ):
                found = f"{shown(given)} is no absolute path: the container does not start"
                path = (*container.path, "workingDir")
                yield Finding(Code.REFUSED_IN_POD, path, found, f"write /{given.lstrip('./')}")


def capabilities(manifest: Manifest) -> Iterator[Finding]:
    """Refuse GPUs without the driver's part for computing.

    NVIDIA Container Toolkit, "User Guide", driver capabilities: compute is "required for CUDA and
    OpenCL applications"; without it libcuda is not in the container.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            gpus = container.amount(GPU)
            for each in container.variables if gpus and not container.is_init else ():
                parts = {part.strip() for part in (each.value or "").split(",")}
                if (
                    each.name != _CAPABILITIES
                    or not parts - {""}
                    or is_placeholder(each.value or "")
                ):
                    continue
                if parts.isdisjoint({"compute", "all"}):
                    found = f"{_CAPABILITIES} without compute: no CUDA in the container"
                    path = (*container.path, "env", each.index)
                    remedy = 'write "compute,utility", or remove it'
                    yield Finding(Code.REFUSED_VARIABLE, path, found, remedy)


def unmounted_waits(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an init container that waits for a file of a volume which it does not mount.

    Kubernetes, "Volumes": each container of a pod mounts a volume for itself; here the path is one
    of its own image, where no other puts anything.
    """
    for pod in manifest.pods:
        shared = {place for each in pod.containers for place in _claimed(pod, each)}
        for container in pod.containers if shared else ():
            wait = _WAITS.search(container.line) if container.is_init else None
            match = _FILE.search(wait["test"]) if wait is not None else None
            if match is None:
                continue
            own = _places(container)
            inside = [each for each in shared if f"{match['path']}/".startswith(f"{each}/")]
            if inside and not any(f"{match['path']}/".startswith(f"{each}/") for each in own):
                found = f"waits for {match['path']}, and does not mount {inside[0]}: it never ends"
                remedy = "add the volume to its volumeMounts"
                yield Finding(Code.NEVER_ENDS, container.path, found, remedy)


def _claimed(pod: Pod, container: Container) -> Iterator[str]:
    """Return where a container mounts claims, which others fill."""
    claims = {
        text(body.get("name"))
        for each in items(pod.spec.get("volumes")) or []
        if (body := mapping(each)) and mapping(body.get("persistentVolumeClaim"))
    }
    for value in items(container.body.get("volumeMounts")) or []:
        mount = mapping(value) or {}
        place = text(mount.get("mountPath"))
        if place and text(mount.get("name")) in claims:
            yield place.rstrip("/")


def _places(container: Container) -> list[str]:
    mounts = [mapping(each) or {} for each in items(container.body.get("volumeMounts")) or []]
    return [(text(each.get("mountPath")) or "").rstrip("/") for each in mounts]
