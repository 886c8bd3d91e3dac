"""Rules over PyTorchJobs: what the training operator's webhook refuses, and what it overlooks."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import zip_longest

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import GPU, MAIN_CONTAINER, Manifest, Pod

_REPLICAS = ("spec", "pytorchReplicaSpecs")
_TYPES = ("Master", "Worker")
_RESTART_POLICIES = ("Always", "ExitCode", "Never", "OnFailure")

# RFC 1035 label: the operator names a Service after each pod.
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_LENGTH = 63

# Where pods of one job may well stand differs; what they run may not.
_PLACEMENT = frozenset(
    {"affinity", "hostname", "nodeName", "subdomain", "topologySpreadConstraints"}
)
_OF_A_RANK = frozenset({"livenessProbe", "ports", "readinessProbe", "startupProbe"})
_NUMBERS = ("GROUP_RANK", "NODE_RANK", "RANK")
_OWN_WORD = re.compile(r"--(node[_-]rank|master[_-]addr|rdzv[_-]endpoint)")
_OWN_FLAG = re.compile(rf"({_OWN_WORD.pattern})[= ]+\S+")
_FIRST = "initContainers"
_MAX_DEPTH = 12
_MAY_BE_SECRET = frozenset({"args", "command", "env"})


def containers(manifest: Manifest) -> Iterator[Finding]:
    """Require a container named `pytorch` in every replica type.

    kubeflow/trainer v1.9.4, pkg/webhooks/pytorch/pytorchjob_webhook.go; the operator writes the
    rendezvous for that container.
    """
    for pod in _pods(manifest):
        named = [container.name for container in pod.containers if not container.is_init]
        if items(pod.spec.get("containers")) is not None and MAIN_CONTAINER not in named:
            others = ", ".join(shown(name) for name in named) or "none"
            found = f"no container named {MAIN_CONTAINER!r}, only {others}"
            path = (*pod.path, "containers")
            yield Finding(
                Code.CONTAINER_NAME, path, found, f"name the training container {MAIN_CONTAINER!r}"
            )


def replicas(manifest: Manifest) -> Iterator[Finding]:
    """Require one Master, or an elastic policy, and at least one Worker where any are named.

    kubeflow/trainer v1.9.4, pytorchjob_webhook.go and pkg/controller.v1/pytorch/envvar.go:
    workers alone without an elastic policy all take themselves for node 0 and wait for ever,
    unless their own command names where they meet: every worker has a Service too.
    """
    types = manifest.pytorch_replicas
    # Under a name that is nearly this one they are found as an unknown key.
    if types is None or (not types and get_close_matches(_REPLICAS[-1], manifest.spec, 1)):
        return
    unknown = [name for name in types if name not in _TYPES]
    for name in unknown:
        path, said = (*_REPLICAS, name), f"unknown replica type {shown(name)}"
        yield manifest.find(Code.MASTER_REPLICAS, path, said, "use Master and Worker")
    # Master or Worker in other letters is what is meant.
    if not any(name.capitalize() in _TYPES for name in unknown):
        yield from _counts(manifest, types)


def _counts(manifest: Manifest, types: "Mapping[str, Json]") -> Iterator[Finding]:
    def found(path: Path, problem: str, remedy: str) -> Finding:
        return manifest.find(Code.MASTER_REPLICAS, (*_REPLICAS, *path), problem, remedy)

    elastic = not is_absent(manifest.spec.get("elasticPolicy"))
    master, worker = (types.get(name) for name in _TYPES)
    if is_absent(master) and not elastic and not _meets_by_itself(manifest):
        yield found(
            (), "no Master: the ranks never find each other", "add a Master with replicas: 1"
        )
    elif not is_absent(master):
        count = (mapping(master) or {}).get("replicas")
        if number(count) != 1 or isinstance(count, str):
            given = "not given" if is_absent(count) else shown(count)
            yield found(("Master", "replicas"), f"Master replicas: {given}", "write replicas: 1")
    if elastic and is_absent(worker):
        yield found((), "an elastic policy without a Worker", "add a Worker")
    count = number((mapping(worker) or {}).get("replicas"))
    if count is not None and count < 1:
        remedy = "use 1 or more, or remove the Worker"
        yield found(("Worker", "replicas"), f"Worker replicas: {count}", remedy)


def _meets_by_itself(manifest: Manifest) -> bool:
    """Tell whether every pod's command names a place to meet, and needs no number for it."""
    return bool(manifest.pods) and all(
        any(
            {name for _, name, _ in launcher_flags(each)} >= {"rdzv-backend", "rdzv-endpoint"}
            for each in pod.containers
        )
        for pod in manifest.pods
    )


def same_pods(manifest: Manifest) -> Iterator[Finding]:
    """Require the same pod on every rank; labels and placement may differ.

    torchrun starts the same program on every node; what differs by accident (an image, a volume,
    a limit) hangs the job or spoils its result.
    """
    pods = _pods(manifest)
    for pod in pods[1:]:
        if pod.spec == pods[0].spec:
            continue
        first, other = (_comparable(each) for each in (pods[0], pod))
        # The workers alone wait for the master, and the master alone prepares data.
        if _is_empty(first.get(_FIRST)) or _is_empty(other.get(_FIRST)):
            first, other = ({**each, _FIRST: None} for each in (first, other))
        where = _difference(first, other, (), _MAX_DEPTH)
        if where is not None:
            path, ours, theirs = where
            # Variables and arguments may hold secrets, which must not travel into a log.
            values = (
                "" if _MAY_BE_SECRET & set(path) else f": {_said(theirs)} here, {_said(ours)} there"
            )
            found = f"differs from the {pods[0].path[3]}'s pod{values}"
            remedy = "use one pod template for all ranks"
            # Without torchrun the master may be a server that only its own program knows.
            launched = any(container.has_launcher for container in pods[0].containers)
            # Nodes of one kind may be told apart by a label on purpose.
            chosen = path[0] == "nodeSelector"
            level = Level.ERROR if launched and not chosen else Level.WARNING
            yield Finding(Code.REPLICAS_DIFFER, (*pod.path, *path), found, remedy, level)


def lifecycle(manifest: Manifest) -> Iterator[Finding]:
    """Warn of pods that outlive their job, and refuse restart policies that no pod has.

    kubeflow/trainer v1.9.4, pkg/core/job.go: with the default, None, the pods of a failed job keep
    their GPUs. Neither field is checked by the CRD. PastBackoffLimit counts restarts of all pods,
    those of the init container included that waits some minutes for the master's name.
    """
    types = manifest.pytorch_replicas
    if types is None:
        return
    policy = mapping(manifest.spec.get("runPolicy"))
    clean = (policy or {}).get("cleanPodPolicy")
    # A single pod that is never started again ends with its job.
    alone = len(manifest.pods) == 1 and manifest.pods[0].replicas in (None, 1)
    policies = [text((mapping(value) or {}).get("restartPolicy")) for value in types.values()]
    ends = alone and policies == ["Never"] and clean in (None, "None")
    # At the wrong place it is found as that.
    known = "cleanPodPolicy" in manifest.spec or clean in ("Running", "All")
    if policy is not None and not known and not ends:
        found = (
            f"unknown cleanPodPolicy {shown(clean)}"
            if not is_absent(clean) and clean != "None"
            else "pods of a failed job keep running, and keep " + _held(manifest)
        )
        path = ("spec", "runPolicy", "cleanPodPolicy")
        yield manifest.find(Code.CLEAN_POD_POLICY, path, found, "set it to Running", Level.WARNING)
    for name, value in types.items():
        restart = text((mapping(value) or {}).get("restartPolicy"))
        if restart is not None and restart not in _RESTART_POLICIES:
            found = f"unknown restart policy {shown(restart)}"
            remedy = f"use one of {', '.join(_RESTART_POLICIES)}"
            yield manifest.find(
                Code.RESTART_POLICY, (*_REPLICAS, name, "restartPolicy"), found, remedy
            )
    yield from _overwritten(manifest, types)
    again = [text((mapping(types.get(name)) or {}).get("restartPolicy")) for name in _TYPES]
    if number((policy or {}).get("backoffLimit")) == 0 and again == ["OnFailure", "OnFailure"]:
        found = "OnFailure, and no restart is allowed, not even of the container in which a "
        found += "worker waits for the master"
        remedy = "allow some for each pod, or write restartPolicy: Never"
        path = ("spec", "runPolicy", "backoffLimit")
        yield manifest.find(Code.RESTART_POLICY, path, found, remedy, Level.WARNING)


def _overwritten(manifest: Manifest, types: "Mapping[str, Json]") -> Iterator[Finding]:
    """Warn of a pod's own policy, in the place of which the operator puts the replica's."""
    for pod in manifest.pods:
        given = text((mapping(types.get(str(pod.path[3]))) or {}).get("restartPolicy"))
        own, policy = text(pod.spec.get("restartPolicy")), given or "OnFailure"
        if own is not None and own != policy and not is_placeholder(f"{own}{policy}"):
            said = "" if given else ", its default"
            found = f"{own}, and the operator overwrites it with the replica's {policy}{said}"
            remedy = f"write restartPolicy: {own} beside replicas, or remove it"
            path = (*pod.path, "restartPolicy")
            yield Finding(Code.RESTART_POLICY, path, found, remedy, Level.WARNING)


def _held(manifest: Manifest) -> str:
    return "their GPUs" if any(pod.names(GPU) for pod in manifest.pods) else "what they asked for"


def names(manifest: Manifest) -> Iterator[Finding]:
    """Require a name that the Services of all ranks can bear.

    Kubernetes, "Object Names and IDs", RFC 1035 label names.
    """
    if manifest.pytorch_replicas is None or manifest.name is None or is_placeholder(manifest.name):
        return
    workers = number((mapping(manifest.pytorch_replicas.get("Worker")) or {}).get("replicas")) or 1
    longest = f"{manifest.name}-worker-{max(workers - 1, 0)}"
    if not _LABEL.fullmatch(manifest.name):
        found = f"{shown(manifest.name)} is no RFC 1035 label: the webhook refuses it"
        remedy = "use lower-case letters, digits and dashes, a letter first"
    elif len(longest) > _LABEL_LENGTH:
        found = f"the last worker's Service would have a name of {len(longest)} characters"
        remedy = f"shorten the name by {len(longest) - _LABEL_LENGTH}"
    else:
        return
    yield manifest.find(Code.JOB_NAME, ("metadata", "name"), found, remedy)


def _pods(manifest: Manifest) -> list[Pod]:
    return manifest.pods if manifest.pytorch_replicas is not None else []


def _comparable(pod: Pod) -> dict[str, Json]:
    spec = {key: value for key, value in pod.spec.items() if key not in _PLACEMENT}
    listed = items(spec.get("containers"))
    if listed is not None:
        spec["containers"] = [_without_own(each) for each in listed]
    return spec


def _without_own(value: Json) -> Json:
    """Return a container without what each rank may have for itself: its number, its probes."""
    container = mapping(value)
    if container is None:
        return value
    own = {key: each for key, each in container.items() if key not in _OF_A_RANK}
    variables = items(own.get("env"))
    if variables:
        own["env"] = [_without_rank(each) for each in variables]
    for key in ("command", "args"):
        words = items(own.get(key))
        if words:
            before = ["", *words[:-1]]
            own[key] = [
                _OWN_FLAG.sub(r"\1", word)
                if isinstance(word, str) and not _OWN_WORD.fullmatch(str(last))
                else None
                for last, word in zip(before, words, strict=True)
            ]
    return own


def _without_rank(value: Json) -> Json:
    """Return a variable, and only the name of one that numbers a rank's node."""
    name = (mapping(value) or {}).get("name")
    return {"name": name} if name in _NUMBERS else value


def _difference(ours: Json, theirs: Json, path: Path, depth: int) -> tuple[Path, Json, Json] | None:
    """Return where two values differ first, and both values there; nothing equals empty."""
    if depth == 0 or (_is_empty(ours) and _is_empty(theirs)):
        return None
    pairs: list[tuple[str | int, Json, Json]]
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = {**ours, **theirs}
        pairs = [(key, ours.get(key), theirs.get(key)) for key in keys]
    elif isinstance(ours, list) and isinstance(theirs, list):
        pairs = [(index, *pair) for index, pair in enumerate(zip_longest(ours, theirs))]
    else:
        return None if ours == theirs else (path, ours, theirs)
    found = (_difference(one, other, (*path, key), depth - 1) for key, one, other in pairs)
    return next((each for each in found if each is not None), None)


def _said(value: Json) -> str:
    body = mapping(value) or {}
    name, place = text(body.get("name")), text(body.get("mountPath"))
    if name is not None:
        return f"{shown(name)} at {place}" if place else shown(name)
    return "nothing" if _is_empty(value) else shown(value)


def _is_empty(value: Json) -> bool:
    return value is None or value in ({}, [])
