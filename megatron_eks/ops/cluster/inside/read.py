"""Reads what is judged of a cluster; what may not be read is noted, and the rest is read."""

from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.ops.checks import Unknown
from megatron_eks.ops.cluster import readiness
from megatron_eks.ops.cluster.inside.facts import (
    SET_UP,
    Claim,
    Live,
    Part,
    PartState,
    Plugin,
    parts,
)
from megatron_eks.ops.jobs import room
from megatron_eks.ops.kube.access import Access, explained
from megatron_eks.ops.kube.objects import CLUSTER_LABEL
from megatron_eks.ops.kube.pods import one_line
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import Project

_Found = TypeVar("_Found")

_APPS, _BATCH = "apps/v1", "batch/v1"
_ADMISSION = "admissionregistration.k8s.io/v1"
_MOUNT_PROBLEMS = frozenset({"FailedMount", "FailedAttachVolume"})

# The last part of an image's name, before tag and digest: mirrors keep it.
DEVICES = {
    "k8s-device-plugin": "nvidia.com/gpu",
    "aws-efa-k8s-device-plugin": "vpc.amazonaws.com/efa",
}


def _asked(live: Live, check: str, question: Callable[[], _Found]) -> _Found | None:
    """Return the answer, or None where this user may not look; that is noted."""
    try:
        return question()
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        failure = explained(error)
        live.unknown.append(Unknown(check, failure.found, failure.remedy))
        return None


def read(access: Access, project: Project) -> Live:
    """Read everything; raise what the client raises where the server does not answer."""
    client, plan = access.client, project.cluster
    live = Live(plan, access.is_local)
    ask = partial(_asked, live)
    live.missing_namespaces = ask("namespaces", lambda: _missing_namespaces(client, live)) or ()
    nodes = ask("nodes", lambda: client.list("v1", "Node")) or []
    live.nodes = room.rooms(nodes, ())
    daemon_sets = ask("platform workloads", lambda: client.list(_APPS, "DaemonSet")) or []
    live.plugins = [plugin for each in daemon_sets for plugin in _plugins(each, live)]
    found = (
        ask("platform workloads", partial(_state, client, part))
        for part in parts(plan, is_local=access.is_local)
    )
    live.parts = [state for state in found if state is not None]
    live.missing_definitions = ask("job definitions", lambda: _unknown_kinds(client, plan)) or ()
    live.webhooks = ask("webhooks of jobs", lambda: _webhooks(client, plan)) or ()
    live.claims = ask("shared file system", lambda: _claims(client, live)) or ()
    live.mounts = ask("mounts", lambda: _mounts(client, live)) or ()
    live.set_up = ask("shared directories", lambda: _set_up(client, live))
    live.missing_secrets = ask("secrets of jobs", lambda: _secrets(client, project)) or ()
    return live


def _missing_namespaces(client: Client, live: Live) -> list[str]:
    platform = live.plan.platform
    wanted = [platform.namespace, platform.system_namespace]
    wanted += [each.controller[0] for each in platform.workloads if each.controller]
    found = {each["metadata"]["name"] for each in client.list("v1", "Namespace")}
    return [name for name in wanted if name not in found]


def _state(client: Client, part: Part) -> PartState:
    found = client.find(_APPS, part.kind, part.name, part.namespace)
    if found is None:
        return PartState(part, exists=False, why=None)
    manifest = {**found, "apiVersion": _APPS, "kind": part.kind}
    return PartState(part, exists=True, why=readiness.unready(client, manifest))


def _plugins(daemon_set: Object, live: Live) -> list[Plugin]:
    metadata, pod = daemon_set["metadata"], daemon_set["spec"]["template"]["spec"]
    images = {_image_name(each.get("image", "")) for each in pod["containers"]}
    nodes = frozenset(each.name for each in live.nodes if each.takes(pod))
    owner = (metadata.get("labels") or {}).get(CLUSTER_LABEL)
    known = {part.name for part in parts(live.plan, is_local=True)}
    return [
        Plugin(
            device=device,
            namespace=metadata["namespace"],
            name=metadata["name"],
            ours=owner is not None or metadata["name"] in known,
            nodes=nodes,
        )
        for image, device in DEVICES.items()
        if image in images
    ]


def _image_name(image: str) -> str:
    return str(image.partition("@")[0].rpartition("/")[2].partition(":")[0])


def _unknown_kinds(client: Client, plan: ClusterPlan) -> list[str]:
    return [
        f"{each.plural}.{each.group}"
        for each in plan.platform.workloads
        if not client.serves(each.api_version, each.kind)
    ]


def _webhooks(client: Client, plan: ClusterPlan) -> list[tuple[str, str]]:
    found = ((each.webhook, _webhook(client, each.webhook)) for each in plan.platform.workloads)
    return [(name, why) for name, why in found if why]


def _webhook(client: Client, configuration: str) -> str | None:
    """Return what is wrong with the webhook of a controller."""
    found = client.find(_ADMISSION, "ValidatingWebhookConfiguration", configuration)
    if found is None:
        return f"there is no ValidatingWebhookConfiguration {configuration}"
    for each in found.get("webhooks") or ():
        service = each["clientConfig"].get("service")
        if service is None:
            continue  # by its address
        name, namespace = service["name"], service["namespace"]
        live = client.find("v1", "Service", name, namespace)
        if live is None:
            return f"it calls the Service {namespace}/{name}, which is missing"
        if live["spec"].get("type") == "ExternalName":
            continue  # a name outside the cluster, as on a local one
        slices = client.list(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            namespace,
            labels=f"kubernetes.io/service-name={name}",
        )
        ready = [
            one
            for each_slice in slices
            for one in each_slice.get("endpoints") or ()
            if (one.get("conditions") or {}).get("ready", True)
        ]
        if not ready:
            return f"nobody answers for the Service {namespace}/{name}, so every job is refused"
        if not each["clientConfig"].get("caBundle"):
            return "it has no certificate to trust: its controller has not started yet"
    return None


def _claims(client: Client, live: Live) -> list[Claim]:
    platform = live.plan.platform
    names = dict.fromkeys(name for _, name in platform.claims) or {platform.claim: None}
    wanted = [(platform.namespace, name) for name in names]
    if platform.efs_claim:
        wanted.append((platform.namespace, platform.efs_claim))
    wanted += [(platform.system_namespace, name) for name in names]
    found = []
    for namespace, name in wanted:
        claim = client.find("v1", "PersistentVolumeClaim", name, namespace)
        phase = claim.get("status", {}).get("phase", "Pending") if claim else None
        found.append(Claim(namespace, name, phase))
    return found


def _mounts(client: Client, live: Live) -> list[tuple[str, str]]:
    """Return pods that wait for a mount, with the newest reason of each."""
    found: dict[str, str] = {}
    platform = live.plan.platform
    for namespace in (platform.namespace, platform.system_namespace):
        pending = {
            pod["metadata"]["uid"]: pod["metadata"]["name"]
            for pod in client.list("v1", "Pod", namespace, fields="status.phase=Pending")
        }
        if not pending:
            continue
        for event in client.list("v1", "Event", namespace, fields="type=Warning"):
            uid = event["involvedObject"].get("uid")
            if event.get("reason") in _MOUNT_PROBLEMS and uid in pending:
                found[f"{namespace}/{pending[uid]}"] = one_line(event.get("message", ""))
    return list(found.items())


def _set_up(client: Client, live: Live) -> str | None:
    jobs: Sequence[Object] = client.list(
        _BATCH, "Job", live.plan.platform.system_namespace, labels=f"app={SET_UP}"
    )
    if not jobs:
        return "there is no Job that gives them to the pods' user"
    for each in jobs:
        why = readiness.unready(client, {**each, "apiVersion": _BATCH, "kind": "Job"})
        if why is not None:
            return f"Job {each['metadata']['name']}: {why}"
    return None


def _secrets(client: Client, project: Project) -> list[tuple[str, str, str]]:
    namespace = project.cluster.platform.namespace
    wanted = [
        (job.name, each.secret, each.key) for job in project.jobs for each in job.secret_entries
    ]
    found = {
        name: client.find("v1", "Secret", name, namespace) or {}
        for name in {secret for _, secret, _ in wanted}
    }
    return [each for each in wanted if each[2] not in (found[each[1]].get("data") or {})]
