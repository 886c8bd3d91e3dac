"""Objects on disk and in the cluster: how they are read, named, ordered, compared and found."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.outputs import CLUSTER_ANNOTATION, PREVIEW_ANNOTATION
from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.ops.failure import NOT_FOUND, USAGE, Failure
from megatron_eks.ops.kube import jobs
from megatron_eks.programs.printable import plain
from megatron_eks.project import synth_command

CLUSTER_LABEL = CLUSTER_ANNOTATION
"""On whatever `meks apply` has put into a cluster, so that it is found again and pruned."""

_NAMED_IN = ("annotations", "labels")

# What is left out of a comparison: the server's own book-keeping.
_SERVERS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

# What others need goes first; what a CRD defines, last.
_STAGES = {"Namespace": 0, "CustomResourceDefinition": 1}
_STAGES |= dict.fromkeys(("Deployment", "DaemonSet", "Job"), 3)


@dataclass(frozen=True)
class Key:
    """What names an object in a cluster."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return it as people write it."""
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


def key(manifest: Object) -> Key:
    """Return what names an object; versions of one group are the same object."""
    metadata, version = manifest["metadata"], manifest["apiVersion"]
    group = version.rpartition("/")[0]
    return Key(group, manifest["kind"], metadata.get("namespace", ""), metadata["name"])


def read(paths: Sequence[Path], again: str = "") -> list[Object]:
    """Read manifests from files and folders, in the order of application.

    `again` is the command that writes them.
    """
    found: list[Object] = []
    for path in paths:
        files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        if not path.exists() or not files:
            what = "no manifest in it" if path.exists() else "no such file or folder"
            remedy = f"run: {again or synth_command()}"
            place = str(path)
            raise Failure(Code.NOT_SYNTHESISED, what, remedy, where=place, exit_code=NOT_FOUND)
        for file in files:
            found += _read_file(file)
    return sorted(found, key=stage)


def _read_file(file: Path) -> list[Object]:
    try:
        objects = manifests.read_file(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "problem", None) or "not YAML"
        objects, found = [], str(why)
    else:
        found = "not a Kubernetes object"
    named = [
        each
        for each in objects
        if isinstance(each, dict)
        and {"apiVersion", "kind", "metadata"} <= each.keys()
        and "name" in (each["metadata"] or {})
    ]
    if len(named) < len(objects) or not named:
        remedy = f"write it again: {synth_command()}"
        raise Failure(Code.NOT_SYNTHESISED, found, remedy, where=str(file), exit_code=USAGE)
    return named


def stage(manifest: Object) -> int:
    """Return when an object is applied: 0 and 1 before all, 3 what runs, 4 what needs that."""
    group = key(manifest).group
    # A group with a dot that is not Kubernetes' own comes from a CRD, and may have a webhook.
    is_custom = "." in group and not group.endswith(".k8s.io")
    return _STAGES.get(manifest["kind"], 4 if is_custom else 2)


def previews(objects: Iterable[Object]) -> list[Object]:
    """Return those that hold a placeholder for what AWS has not chosen yet."""
    return [
        each
        for each in objects
        if (each["metadata"].get("annotations") or {}).get(PREVIEW_ANNOTATION) == "true"
    ]


def differences(live: Object, wanted: Object) -> list[str]:
    """Return a unified diff of two states of an object, without what the server adds."""
    before, after = _comparable(live), _comparable(wanted)
    if before == after:
        return []
    if live["kind"] == "Secret":
        hide(before)
        hide(after)
    lines = list(difflib.unified_diff(_lines(before), _lines(after), lineterm="", n=2))[2:]
    return lines or ["+ hidden data of the Secret"]


def owner(manifest: Object) -> str | None:
    """Return the cluster that an object names as its own; older releases set only the label."""
    metadata = manifest["metadata"]
    named = ((metadata.get(each) or {}).get(CLUSTER_ANNOTATION) for each in _NAMED_IN)
    return next((str(name) for name in named if name), None)


def mark(manifest: Object, cluster: str) -> None:
    """Let an object carry the cluster's name, and be found again by it."""
    for each in _NAMED_IN:
        manifest["metadata"].setdefault(each, {})[CLUSTER_ANNOTATION] = cluster


def find_own(client: Client, manifest: Object, cluster: str) -> Object | None:
    """Return what the API server has of an object; raise Failure if it is another cluster's."""
    place = manifest["metadata"]
    live = client.find(
        manifest["apiVersion"], manifest["kind"], place["name"], place.get("namespace")
    )
    found = owner(live) if live else None
    if found in {None, cluster}:
        return live
    text = f"{key(manifest)} belongs to cluster {found!r}, and the cluster file says {cluster!r}"
    remedy = "name the right file with --cluster, or the right context with --context"
    raise Failure(Code.OWNED_BY_ANOTHER, text, remedy, exit_code=USAGE)


def check_namespace(client: Client, name: str, cluster: str) -> None:
    """Raise Failure where a namespace, and so the API server, is another cluster's."""
    if name:
        find_own(
            client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, cluster
        )


def named_as(live: Object, wanted: Object) -> Object:
    """Return an object with the name of the cluster as another has it."""
    metadata = dict(live["metadata"])
    for each in _NAMED_IN:
        name = (wanted["metadata"].get(each) or {}).get(CLUSTER_ANNOTATION)
        metadata[each] = (metadata.get(each) or {}) | ({CLUSTER_ANNOTATION: name} if name else {})
    return {**live, "metadata": metadata}


def hide(secret: Object) -> None:
    """Take the values out of a Secret, in place."""
    for part in ("data", "stringData"):
        secret[part] = dict.fromkeys(secret.get(part) or {}, "(hidden)")


def _comparable(manifest: Object) -> Object:
    metadata = {k: v for k, v in manifest["metadata"].items() if k not in _SERVERS}
    annotations = dict(metadata.pop("annotations", None) or {})
    annotations.pop(_LAST_APPLIED, None)
    if annotations:
        metadata["annotations"] = annotations
    kept = {k: v for k, v in manifest.items() if k not in {"status", "metadata"}}
    return {**kept, "metadata": metadata}


def _lines(manifest: Object) -> list[str]:
    return [
        plain(line) for line in yaml.safe_dump(manifest, sort_keys=True, width=1000).splitlines()
    ]


_AT_ONCE = 8

# With one of these goes everything in it: jobs, and the way to the data.
_HOLDS_DATA = frozenset(
    {"CustomResourceDefinition", "Namespace", "PersistentVolume", "PersistentVolumeClaim"}
)


def owned(client: Client, cluster: str) -> list[Object]:
    """Return the objects of every kind that carry the cluster's label and were applied by us."""

    def of_kind(kind: tuple[str, str]) -> list[Object]:
        try:
            found = client.list(*kind, labels=f"{CLUSTER_LABEL}={cluster}", missing_ok=True)
        except ApiError as error:
            # A kind that nobody may read, or that answers no list, holds nothing of ours.
            if error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED}:
                return []
            raise
        api_version, name = kind
        # A list does not repeat version and kind on each of its objects.
        return [{**each, "apiVersion": api_version, "kind": name} for each in found]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [each for group in pool.map(of_kind, kinds(client)) for each in group]
    # Kubernetes copies labels of Services to what it derives.
    return [
        each
        for each in found
        if any(
            by.get("manager") == "meks" and by["operation"] == "Apply"
            for by in each["metadata"].get("managedFields") or ()
        )
    ]


def reason_to_keep(client: Client, manifest: Object) -> str:
    """Say why removing an object would take more than itself; nothing if it would not."""
    if manifest["kind"] in _HOLDS_DATA:
        return "others may depend on it; remove it yourself with kubectl delete"
    if manifest["kind"] == "NetworkPolicy":
        # Jobs bring their ranks' policy along, and those of an older release, without a cluster's
        # name, did not: their ranks would not meet again after a restart.
        there = jobs.everything(client, manifest["metadata"]["namespace"])
        older = [each.name for each in there if not each.ended and not owner(each.manifest)]
        if older:
            return f"ranks of {', '.join(older)} may meet through it; apply again when they ended"
    return ""


def kinds(client: Client) -> Iterator[tuple[str, str]]:
    """Yield every kind that can be listed and deleted, in its preferred version."""
    versions = ["v1"] + [
        group["preferredVersion"]["groupVersion"]
        for group in client.request("GET", "/apis")["groups"]
    ]
    for version in versions:
        path = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        for each in client.request("GET", path)["resources"]:
            if "/" not in each["name"] and {"list", "delete"} <= set(each["verbs"]):
                yield version, each["kind"]
