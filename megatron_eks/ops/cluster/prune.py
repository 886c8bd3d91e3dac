"""What `meks apply` has put into a cluster at any time, found by its label."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.ops.kube import jobs, objects
from megatron_eks.ops.kube.objects import CLUSTER_LABEL

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
    return [each for each in found if _is_applied(each)]


def reason_to_keep(client: Client, manifest: Object) -> str:
    """Say why removing an object would take more than itself; nothing if it would not."""
    if manifest["kind"] in _HOLDS_DATA:
        return "others may depend on it; remove it yourself with kubectl delete"
    if manifest["kind"] == "NetworkPolicy":
        # Jobs bring their ranks' policy along, and those of an older release, without a cluster's
        # name, did not: their ranks would not meet again after a restart.
        there = jobs.everything(client, manifest["metadata"]["namespace"])
        older = [each.name for each in there if not each.ended and not objects.owner(each.manifest)]
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


def _is_applied(manifest: Object) -> bool:
    """Say whether we applied it: Kubernetes copies labels of Services to what it derives."""
    managers = manifest["metadata"].get("managedFields") or ()
    return any(each.get("manager") == "meks" and each["operation"] == "Apply" for each in managers)
