"""Rules over init containers that wait for their own pod, or for one of another job."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.launch_flags import other_host
from megatron_eks.rules.values import is_placeholder
from megatron_eks.rules.workloads import Container, Manifest, Pod

_LOOP = re.compile(r"\b(until|while)\b")
_PORT = re.compile(r"\b(nc|ncat|netcat|curl|wget|telnet)\b|/dev/tcp/")
_LOOKS = re.compile(r"\b(nslookup|getent|dig|host|ping|nc)\b")
_LOOKS_OR_ASKS = re.compile(f"{_LOOKS.pattern}|{_PORT.pattern}")
_OF_OPERATOR = re.compile(r"\$[({]?(?P<name>MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK)\b")
_POD = re.compile(r"(?<![\w.$-])[a-z][a-z0-9-]*-(master|worker)-[0-9]+\b")
# What ends the wait, or leaves the first pod out of it.
_ENDS = re.compile(r"\b(if|case|break|timeout|seq|test|HOSTNAME|hostname)\b|\[ |INDEX|RANK|POD_")


def own_ports(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an init container that waits until its own pod answers at a port.

    Kubernetes, "Init Containers": the others of the pod start when all of these have ended, so
    nothing listens before. The workers wait for the first rank; its own pod cannot.
    """
    for pod in manifest.pods:
        own, remedy = _first(manifest, pod)
        if own is None or any(_is_companion(each) for each in pod.containers):
            continue
        for container in pod.containers if own is not None else ():
            line = container.line
            waits = container.is_init and _LOOP.search(line) and _PORT.search(line)
            if waits and not _ENDS.search(line) and own.search(line):
                name = own.search(line)
                found = f"{name[0] if name else ''} is this pod, and nothing listens in it before "
                found += "its init containers end: it never starts"
                yield Finding(Code.RANKS_WAIT, container.path, found, remedy)


def names_of_others(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an init container that waits for a pod that this job does not have.

    kubeflow/trainer v1.9.4: pods are JOB-master-0 and JOB-worker-INDEX, and so are their Services.
    """
    if manifest.pytorch_replicas is None:
        return
    for pod in manifest.pods:
        for container in pod.containers:
            line = container.line
            waits = container.is_init and _LOOP.search(line) and _LOOKS.search(line)
            for match in _POD.finditer(line) if waits else ():
                said = other_host(manifest, match[0])
                if said is not None:
                    found = f"waits for {match[0]}: {said}"
                    remedy = f"write {manifest.name}-master-0, or remove it: the operator's own "
                    remedy += "init container waits"
                    path = container.path
                    yield Finding(Code.RANKS_WAIT, path, found, remedy, Level.WARNING)
                    break


def variables_of_others(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an init container that waits by a variable which the operator gives to others.

    kubeflow/trainer v1.9.4, pkg/controller.v1/pytorch/envvar.go, setPodEnv: it goes over
    Spec.Containers, and not over initContainers; an unset variable is an empty text in a shell.
    """
    for pod in manifest.pods if manifest.pytorch_replicas is not None else ():
        for container in pod.containers:
            line = container.line
            waits = container.is_init and _LOOP.search(line) and _LOOKS_OR_ASKS.search(line)
            match = _OF_OPERATOR.search(line) if waits else None
            if match is None or container.body.get("envFrom"):
                continue
            name = match["name"]
            own = any(each.name == name for each in container.variables)
            # What the script sets, or leaves at its default, is there.
            if not own and not re.search(rf"\b{name}(=|:)", line):
                found = f"waits by {name}, which the operator sets in containers, and in no init "
                found += "container"
                first = "master" if "Master" in (manifest.pytorch_replicas or {}) else "worker"
                remedy = "remove it: the operator's own init container waits; or write "
                remedy += f"{manifest.name or 'the job'}-{first}-0"
                yield Finding(Code.RANKS_WAIT, container.path, found, remedy)


def _first(manifest: Manifest, pod: Pod) -> "tuple[re.Pattern[str] | None, str]":
    """Return the name of the pod, or of the first one, and what to do with its wait."""
    name = manifest.name
    if name is None or is_placeholder(name):
        return None, ""
    stem = rf"(?<![\w-]){re.escape(name)}"
    if manifest.pytorch_replicas is not None:
        of_master = "Master" in pod.path
        remedy = "remove it from the Master: the operator's Worker waits by itself"
        return re.compile(rf"{stem}-master-0\b(?!-)") if of_master else None, remedy
    guard = "leave the first pod out"
    if (manifest.group, manifest.kind) == ("apps", "StatefulSet"):
        guard += ': [ "${HOSTNAME##*-}" = 0 ] || until ...'
        return re.compile(rf"{stem}-0\b(?!-)"), guard
    guard += ': [ "$JOB_COMPLETION_INDEX" = 0 ] || until ...'
    indexed = manifest.spec.get("completionMode") == "Indexed"
    if (manifest.group, manifest.kind) == ("batch", "Job") and indexed:
        return re.compile(rf"{stem}-0\b(?!-)"), guard
    if (manifest.group, manifest.kind) == ("jobset.x-k8s.io", "JobSet") and len(manifest.pods) == 1:
        return re.compile(rf"{stem}-[a-z0-9-]+-0-0\b(?!-)"), guard
    return None, ""


def _is_companion(container: Container) -> bool:
    """Tell a container that runs beside the others, and may be the one that listens."""
    return container.is_init and container.body.get("restartPolicy") == "Always"
