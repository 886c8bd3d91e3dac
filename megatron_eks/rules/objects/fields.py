"""Rule over any Kubernetes object: its keys, and the kinds of its values."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, dotted
from megatron_eks.config.load import Json
from megatron_eks.config.scalars import Octal
from megatron_eks.rules.shapes import KUBERNETES, OPERATORS, Misfit, misfits, table
from megatron_eks.rules.values import is_absent, shown, text
from megatron_eks.rules.workloads import Manifest

_CLOSE = 0.75
_NEARLY = 0.85
_MODES = frozenset({"defaultMode", "mode"})
_OCTAL = re.compile(r"[0-7]{3}")
_OF_OWNERS = re.compile(r"7[0-7]{2}")
_WHOLE = "a whole number"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# Words that no shell changes, and those of them that YAML takes for texts.
_WORDS = frozenset({"args", "command"})
_PLAIN_WORD = re.compile(r"[\w./=:,@%+-]+", re.ASCII)
_PLAIN_TEXT = re.compile(
    r"(?!(true|false|yes|no|on|off|null)$)(--?|[./])?[A-Za-z][\w./=-]*", re.ASCII
)
_SECRET = re.compile(r"token|key|secret|passw", re.IGNORECASE)
_SHORT_LINE = 80
# What people write under resources itself, and how kinds of volumes call the name of their object.
_AMOUNTS = frozenset({"cpu", "ephemeral-storage", "hugepages-1Gi", "hugepages-2Mi", "memory"})
_NAMES = {"persistentVolumeClaim": "claimName", "secret": "secretName"}
_OF_CONTAINERS = frozenset(
    {
        *("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle"),
        *("livenessProbe", "ports", "readinessProbe", "startupProbe", "volumeMounts"),
        "workingDir",
    }
)
_OF_ONE_CONTAINER = frozenset(
    {"allowPrivilegeEscalation", "capabilities", "privileged", "readOnlyRootFilesystem"}
)
# Words that mean something else at each place.
_EVERYWHERE = frozenset({"apiVersion", "kind", "metadata", "name", "spec", "status", "type"})
# Of these a rule of their own knows which release stopped serving what.
_TOLD_BY_RELEASE = frozenset({"cert-manager.io", "external-secrets.io", "kueue.x-k8s.io"})
# Older versions of operators' kinds, which their CRDs still serve, or which others judge.
_STILL_SERVED = frozenset(
    {"jobset.x-k8s.io/v1alpha1", "kubeflow.org/v1", "kubeflow.org/v1alpha2", "ray.io/v1alpha1"}
)
_OTHERS = frozenset({"ControllerRevision", "Endpoints", "Event", "List", "Node", "PodTemplate"})
# Versions of these are judged by pod_shape.api_versions, or are the affair of others.
_GROUPS = frozenset(
    {
        *("apps", "autoscaling", "batch", "extensions", "kubeflow.org", "networking.k8s.io"),
        "policy",
        *("rbac.authorization.k8s.io", "scheduling.k8s.io", "storage.k8s.io"),
    }
)


def kinds(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a kind or a version that is nearly one of Kubernetes'.

    Kubernetes 1.35, API reference; kubectl finds no resource of that name.
    """
    version, kind = text(manifest.body.get("apiVersion")) or "", manifest.kind
    pairs = [name.split(" ") for name in table(KUBERNETES) if not name.startswith("#")]
    if not kind or [version, kind] in pairs or kind in _OTHERS:
        return
    versions = [each for each, name in pairs if name == kind]
    served = [
        each
        for each, name in (entry.split(" ") for entry in table(OPERATORS) if " " in entry)
        if name == kind and each.partition("/")[0] == version.partition("/")[0]
    ]
    told = version.partition("/")[0] in _TOLD_BY_RELEASE
    if served and version not in served and version not in _STILL_SERVED and not told:
        found = f"no API {shown(version)} has a kind {kind}"
        yield manifest.find(Code.API_VERSION, ("apiVersion",), found, f"use {served[0]}")
        return
    names = [name for each, name in pairs if each == version]
    close = get_close_matches(version, versions, 1, _CLOSE)
    nearly = get_close_matches(kind, names, 1, _NEARLY)
    if close and version.rpartition("/")[0] not in _GROUPS:
        found = f"no API {shown(version)} has a kind {kind}"
        yield manifest.find(Code.API_VERSION, ("apiVersion",), found, f"did you mean {close[0]}?")
    elif nearly:
        found = f"{version} has no kind {shown(kind)}"
        yield manifest.find(Code.API_VERSION, ("kind",), found, f"did you mean {nearly[0]}?")


def fields(manifest: Manifest) -> Iterator[Finding]:
    """Require the fields that Kubernetes describes, with values of their kind.

    Kubernetes 1.35, API reference, and "Server Side Field Validation": kubectl refuses what it
    does not know, and other clients drop it without a word, so that what it should have done is
    not done. Nobody checks the pods inside a custom resource before they are made.
    """
    for path, misfit in _misfits(manifest):
        if not misfit.missing or _is_whole(manifest):
            yield finding(manifest, (*path, *misfit.path), misfit)


def fields_of_part(manifest: Manifest) -> Iterator[Finding]:
    """Judge what stands in a patch of Kustomize; whatever it lacks, its object may have.

    Kubernetes, "Update API Objects in Place Using kubectl patch": keys with `$` say how to merge.
    """
    for path, misfit in _misfits(manifest):
        whole = (*path, *misfit.path)
        if not misfit.missing and not any(str(part).startswith("$") for part in whole):
            yield finding(manifest, whole, misfit)


def _misfits(manifest: Manifest) -> Iterator[tuple[Path, Misfit]]:
    shapes = table(KUBERNETES)
    shape = shapes.get(f"{text(manifest.body.get('apiVersion'))} {manifest.kind}")
    if shape is not None:
        for misfit in misfits(dict(manifest.body), shape, shapes, loose=False):
            yield (), misfit
        return
    for pod in manifest.pods:
        for misfit in misfits(dict(pod.spec), "#PodSpec", shapes, loose=False):
            yield pod.path[1:], misfit


def _is_whole(manifest: Manifest) -> bool:
    """Tell an object from a patch of somebody else's, which has no containers, or no images."""
    containers = [each for pod in manifest.pods for each in pod.containers]
    if manifest.group == "apps" and not containers:
        return "selector" in manifest.spec and not manifest.pods
    return bool(containers or not manifest.pods) and all(
        not is_absent(each.body.get("image")) for each in containers
    )


def finding(manifest: Manifest, path: Path, misfit: Misfit) -> Finding:
    """Say what is wrong at a place."""
    key, value = str(path[-1]) if path else "", misfit.value
    if misfit.missing:
        code, found, remedy = Code.MISSING_FIELD, f"Kubernetes needs {key} here", f"add {key}"
    elif misfit.known:
        same = [each for each in misfit.known if each.lower() == key.lower()]
        close = same or get_close_matches(key, misfit.known, 1, _CLOSE)
        code, found = Code.UNKNOWN_POD_KEY, f"Kubernetes knows no {shown(key)} here"
        remedy = f"did you mean {close[0]}?" if close else _home(path, misfit)
        # One of this very name, a level below, is more likely than another that is like it.
        if len(misfit.below) == 1 and not same:
            remedy = f"move it under {_place((*path[:-1], misfit.below[0]))}"
    elif misfit.expected == "a text" and isinstance(value, bool | int | float):
        code = Code.NOT_A_TEXT
        written = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, Octal):
            written = value.written
        found = f"{written} is no text: the API server refuses the object"
        if (
            key == "directoryPerms"
            and isinstance(value, int)
            and _OF_OWNERS.fullmatch(f"{value:o}")
        ):
            written = f"{value:o}"  # YAML reads 0700 as 448
        remedy = f'put it in quotes: "{written}"'
    else:
        # A command's words may be secrets.
        said = "a text" if key in _WORDS and _SECRET.search(str(value)) else shown(value)
        code, found = Code.WRONG_VALUE, f"{said} is not what Kubernetes takes here"
        remedy = _instead(key, value, path, misfit)
    return manifest.find(code, path, found, remedy)


def _instead(key: str, value: Json, path: Path, misfit: Misfit) -> str:
    """Say what to write in the place of a value of another kind."""
    if misfit.expected == _WHOLE and isinstance(value, str) and value.isdecimal():
        return f"write {value}, without quotes"
    if misfit.expected == "a mapping" and "imagePullSecrets" in path:
        return f"write {{name: {value}}}"
    if key == _REQUIRED and "nodeAffinity" in path and isinstance(value, list):
        return "write nodeSelectorTerms: [{matchExpressions: [...]}] under it"
    if key in _WORDS and isinstance(value, str) and (words := _as_list(value)):
        return f"write {words}"
    if key in _MODES and _OCTAL.fullmatch(str(value)):
        # 755 without a 0 is 01363 in octal.
        return f"write 0{value}: without the 0 it is no octal number"
    return f"write {misfit.expected}"


def _as_list(line: str) -> str | None:
    """Write a command's line as the list that it is, unless a shell or a secret may be in it."""
    words = line.split()
    if (
        len(line) > _SHORT_LINE
        or _SECRET.search(line)
        or not all(map(_PLAIN_WORD.fullmatch, words))
    ):
        return None
    quoted = (word if _PLAIN_TEXT.fullmatch(word) else f'"{word}"' for word in words)
    return f"[{', '.join(quoted)}]"


def _home(path: Path, misfit: Misfit) -> str:
    """Say where a key belongs that is unknown at its place."""
    key, around = str(path[-1]), str(path[-2]) if len(path) > 1 else ""
    if ("/" in key or key in _AMOUNTS) and {"limits", "requests"} <= {*misfit.known}:
        return "write it under limits and requests"
    if key in _OF_CONTAINERS and "containers" in misfit.known:
        return f"move it to a container, under {_place((*path[:-1], 'containers'))}"
    if around == "securityContext" and key in _OF_ONE_CONTAINER:
        return "move it to the securityContext of a container"
    if key == "name" and _NAMES.get(around) in misfit.known:
        return f"write {_NAMES[around]}"
    if misfit.above is not None and key not in _EVERYWHERE:
        return f"move it to {_place((*path[: len(path) - len(misfit.path)], *misfit.above, key))}"
    return "remove it, or move it to where it belongs"


def _place(path: Path) -> str:
    """Name a place; inside a pod by its template, as it is the same for every kind of replica."""
    inside = [index for index, part in enumerate(path) if part == "template"]
    return dotted(path[inside[-1] :] if inside else path)
