"""Rules over what keeps a container from starting: its user, its command, its name."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_SHELLS = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})
_SCRIPT_FLAG = re.compile(r"-[a-z]*c")
_LABEL_LENGTH, _PORT_LENGTH = 63, 15
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
# A letter somewhere, and no two dashes in a row.
_PORT_NAME = re.compile(r"(?=[-0-9]*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_FORM = f"use up to {_LABEL_LENGTH} lower-case letters, digits and '-'"
_OWN_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
_MOST_PRIORITY = 1_000_000_000
_EXPANDED = re.compile(r"\$\([A-Z_][A-Z0-9_]*\)")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 -- inside a container


def users(manifest: Manifest) -> Iterator[Finding]:
    """Refuse runAsNonRoot together with user 0.

    Kubernetes 1.35, pkg/kubelet/kuberuntime/security_context.go: CreateContainerConfigError.
    """
    for pod in manifest.pods:
        outer = mapping(pod.spec.get("securityContext")) or {}
        told: set[Path] = set()
        for container in pod.containers:
            inner = mapping(container.body.get("securityContext")) or {}
            mine = not is_absent(inner.get("runAsUser"))
            user = inner.get("runAsUser") if mine else outer.get("runAsUser")
            own = inner.get("runAsNonRoot")
            refuses = outer.get("runAsNonRoot") if is_absent(own) else own
            is_root = user == 0 and not isinstance(user, bool)
            path = (*(container.path if mine else pod.path), "securityContext", "runAsUser")
            if is_root and refuses is True and path not in told:
                told.add(path)
                found = "user 0 and runAsNonRoot: true: the container is never made"
                remedy = "set the number of another user, or remove runAsNonRoot"
                yield Finding(Code.REFUSED_IN_POD, path, found, remedy)


def commands(manifest: Manifest) -> Iterator[Finding]:
    """Require a command that is a program, and a script after a shell's -c.

    Kubernetes, "Define a Command and Arguments for a Container": no shell splits a word; POSIX sh:
    -c needs an operand. KubeRay puts the words of its pods into a script of its own.
    """
    for pod in manifest.pods if manifest.group != "ray.io" else ():
        for container in pod.containers:
            given = [items(container.body.get(key)) for key in ("command", "args")]
            if None in given or not given[0]:
                continue
            words = [text(each) for each in [*given[0], *(given[1] or [])]]
            if not any(word is None for word in words):
                yield from _command(container, [word or "" for word in words])


def _command(container: Container, words: list[str]) -> Iterator[Finding]:
    program, path = words[0].strip(), (*container.path, "command")
    if any(char.isspace() for char in program):
        # What a template or Kubernetes puts in at first may be several words.
        first = program.split()[0]
        if not is_placeholder(first) and not is_placeholder(_EXPANDED.sub("", program)):
            found = f"{shown(words[0])} is one word, and no program has that name"
            remedy = 'write each word for itself: [bash, -c, "..."]'
            yield Finding(Code.REFUSED_IN_POD, (*path, 0), found, remedy)
    elif program.rpartition("/")[2] in _SHELLS and _SCRIPT_FLAG.fullmatch(words[-1]):
        found = f"{program} {words[-1]} without a script: the container ends at once"
        yield Finding(Code.REFUSED_IN_POD, path, found, "add the script as the next word")


def shared_memory_on_disk(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a directory on the node's disk at /dev/shm.

    Kubernetes, "Volumes", emptyDir: without `medium: Memory` it is on whatever holds the node.
    """
    for pod in manifest.pods:
        on_disk = _directories_on_disk(pod)
        for container in pod.containers:
            for index, value in enumerate(items(container.body.get("volumeMounts")) or []):
                mount = mapping(value) or {}
                place = text(mount.get("mountPath")) or ""
                if place.rstrip("/") == _SHARED_MEMORY and text(mount.get("name")) in on_disk:
                    path = (*container.path, "volumeMounts", index)
                    found = f"{_SHARED_MEMORY} on the node's disk: an emptyDir without a medium"
                    remedy = "add medium: Memory and a sizeLimit to the volume"
                    yield Finding(Code.SHARED_MEMORY, path, found, remedy, Level.WARNING)


def _directories_on_disk(pod: Pod) -> set[str]:
    names, others = set(), set()
    for value in items(pod.spec.get("volumes")) or []:
        volume = mapping(value) or {}
        empty, name = mapping(volume.get("emptyDir")), text(volume.get("name"))
        if name and "emptyDir" in volume and empty is not None and not empty.get("medium"):
            names.add(name)
        elif name:
            others.add(name)
    return names - others


def container_names(manifest: Manifest) -> Iterator[Finding]:
    """Require a DNS label as the name of each container, and of the pod's host and subdomain.

    Kubernetes 1.35, pkg/apis/core/validation/validation.go, ValidateDNS1123Label.
    """
    for pod in manifest.pods:
        for key in ("hostname", "subdomain"):
            if _is_wrong(text(pod.spec.get(key))):
                found = f"{shown(pod.spec[key])} is no DNS label: the API server refuses the pod"
                yield Finding(Code.REFUSED_IN_POD, (*pod.path, key), found, _LABEL_FORM)
        for container in pod.containers:
            if _is_wrong(container.name):
                found = f"{shown(container.name)} is no DNS label: the API server refuses the pod"
                path = (*container.path, "name")
                yield Finding(Code.REFUSED_IN_POD, path, found, _LABEL_FORM)


def service_ports(manifest: Manifest) -> Iterator[Finding]:
    """Require names of a Service's ports as the API server takes them.

    Kubernetes 1.35, pkg/apis/core/validation/validation.go: a port's name is a DNS label, a target
    port's the name of a port of a container.
    """
    if (manifest.group, manifest.kind) != ("", "Service"):
        return
    for index, value in enumerate(items(manifest.spec.get("ports")) or []):
        port, path = mapping(value) or {}, ("spec", "ports", index)
        if _is_wrong(text(port.get("name"))):
            found = f"{shown(port['name'])} is no DNS label: the API server refuses the Service"
            yield manifest.find(Code.WRONG_VALUE, (*path, "name"), found, _LABEL_FORM)
        target = text(port.get("targetPort"))
        if not target or target.isdigit() or is_placeholder(target):
            continue
        if len(target) > _PORT_LENGTH or not _PORT_NAME.fullmatch(target):
            found = f"{shown(target)} is no name of a port: the API server refuses the Service"
            remedy = f"use up to {_PORT_LENGTH} lower-case letters, digits and '-'"
            yield manifest.find(Code.WRONG_VALUE, (*path, "targetPort"), found, remedy)


def _is_wrong(name: str | None) -> bool:
    if not name or is_placeholder(name):
        return False
    return len(name) > _LABEL_LENGTH or not _LABEL.fullmatch(name)


def priorities(manifest: Manifest) -> Iterator[Finding]:
    """Require a priority, and a name, that are not kept for the system.

    Kubernetes, "Pod Priority and Preemption": larger numbers are those of its own two classes, and
    the name of no other begins with system-.
    """
    name = manifest.name or ""
    if manifest.kind != "PriorityClass" or name in _OWN_CLASSES:
        return
    if name.startswith("system-"):
        found = f"{shown(name)}: names with system- are kept for the system, and the API server "
        found += "refuses the class"
        remedy = f"write {name.removeprefix('system-') or 'another name'}"
        yield manifest.find(Code.WRONG_VALUE, ("metadata", "name"), found, remedy)
    value = manifest.body.get("value")
    if isinstance(value, int) and not isinstance(value, bool) and value > _MOST_PRIORITY:
        found = f"{value} is kept for the system: the API server refuses the class"
        yield manifest.find(Code.WRONG_VALUE, ("value",), found, f"use at most {_MOST_PRIORITY}")
