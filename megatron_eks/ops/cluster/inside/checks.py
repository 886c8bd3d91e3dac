"""Checks of a cluster: its nodes against their instance types, the platform, the shared files."""

from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from http import HTTPStatus

from megatron_eks.catalog.instances import HUGEPAGES_REQUEST_MIB
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.kubernetes.client import ApiError
from megatron_eks.ops.checks import KUBERNETES, Check, Result, in_kubernetes, judged
from megatron_eks.ops.cluster import readiness
from megatron_eks.ops.cluster.inside.live import MISSING, SET_UP, Live
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs.room import NodeRoom
from megatron_eks.ops.kube.access import explained
from megatron_eks.plan.cluster.pools import POOL_LABEL

_APPLY = "install the platform: meks apply"
_TYPE = "node.kubernetes.io/instance-type"
_ZONE = "topology.kubernetes.io/zone"
_MIB = 2**20


def _path(node: NodeRoom, field: str) -> Path:
    return (f"Node/{node.name}", field)


def state(live: Live) -> Iterator[Finding]:
    """Ask for nodes that are ready and take pods."""
    for node in live.nodes:
        path = _path(node, "status")
        if not node.ready:
            remedy = f"kubectl describe node {node.name}; if it stays so, give it back"
            yield in_kubernetes(Code.NODE_STATE, path, "it is not ready", remedy)
        elif node.cordoned:
            remedy = f"if nobody means it: kubectl uncordon {node.name}"
            found = "it is cordoned and takes no pods"
            yield in_kubernetes(Code.NODE_STATE, path, found, remedy, Level.WARNING)


def types(live: Live) -> Iterator[Finding]:
    """Compare type and zone with the pool's: resources of jobs are computed for them."""
    for node, pool in live.pool_nodes:
        for label, wanted in ((_TYPE, pool.instance.name), (_ZONE, pool.zone)):
            found = node.labels.get(label)
            if found != wanted:
                text = f"{found}, and pool {pool.name} says {wanted}"
                remedy = "meks deploy, then take the nodes again"
                yield in_kubernetes(Code.NODE_TYPE, _path(node, label), text, remedy)


def _devices(device: str, fact: str, code: StrEnum, live: Live) -> Iterator[Finding]:
    """Compare the devices of each node with the catalogue, where a `fact` counts them."""
    for node, pool in live.pool_nodes:
        path, wanted = _path(node, "status.allocatable"), getattr(pool.instance, fact)
        # A node whose kubelet is silent offers nothing new.
        offered = int(node.allocatable.get(device, 0))
        if node.ready and offered < wanted:
            text = f"{offered} of {wanted} {device}"
            remedy = f"start its device plugin again: meks fix {code}; else replace the node"
            yield in_kubernetes(code, path, text, remedy)
        elif offered > wanted:
            text = f"{offered} {device}, and its type has {wanted}"
            remedy = "look for a plugin that shares devices; jobs expect whole ones"
            yield in_kubernetes(code, path, text, remedy, Level.WARNING)


gpus = partial(_devices, "nvidia.com/gpu", "gpus", Code.NODE_GPUS)
efa = partial(_devices, "vpc.amazonaws.com/efa", "efa_interfaces", Code.NODE_EFA)


def huge_pages(live: Live) -> Iterator[Finding]:
    """Ask for the huge pages that a pod with EFA takes."""
    for node, pool in live.pool_nodes:
        if not (pool.instance.efa_interfaces and node.ready):
            continue
        offered = int(node.allocatable.get("hugepages-2Mi", 0)) // _MIB
        if offered < HUGEPAGES_REQUEST_MIB:
            text = f"{offered} MiB of hugepages-2Mi, and a pod asks for {HUGEPAGES_REQUEST_MIB}"
            remedy = "use an EKS AMI with the EFA driver, and replace the node"
            path = _path(node, "status.allocatable")
            yield in_kubernetes(Code.NODE_HUGE_PAGES, path, text, remedy)


def taints(live: Live) -> Iterator[Finding]:
    """Ask for the taint that keeps pods without GPUs away."""
    key = live.plan.platform.gpu_taint
    for node, _ in live.pool_nodes:
        if not any(taint["key"] == key for taint in node.taints):
            text = f"no taint {key}, so any pod may fill it"
            remedy = f"put it back: meks fix {Code.NODE_TAINT}"
            yield in_kubernetes(Code.NODE_TAINT, _path(node, "spec.taints"), text, remedy)


def workloads(live: Live) -> Iterator[Finding]:
    """Ask for every DaemonSet and Deployment, and for its pods."""
    for part, why in live.parts:
        path = (f"{part.kind}/{part.namespace}/{part.name}",)
        if why == MISSING:
            remedy = f"the add-on {part.addon}: meks deploy" if part.addon else _APPLY
            yield in_kubernetes(Code.WORKLOAD_MISSING, path, why, remedy)
        elif why is not None:
            remedy = "read its logs; to start its pods again: kubectl rollout restart "
            remedy += f"{part.kind}/{part.name} -n {part.namespace}"
            yield in_kubernetes(Code.WORKLOAD_NOT_READY, path, why, remedy)


def device_plugins(live: Live) -> Iterator[Finding]:
    """Refuse two plugins that offer one device on the same nodes."""
    for device in dict.fromkeys(plugin.device for plugin in live.plugins):
        same = [plugin for plugin in live.plugins if plugin.device == device]
        for index, one in enumerate(same):
            for other in same[index + 1 :]:
                nodes = sorted(one.nodes & other.nodes)
                # Before there are nodes, both may run on those to come.
                if nodes or not (one.nodes or other.nodes):
                    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
                    shared = f"{nodes[0]}{more}" if nodes else "nodes to come"
                    text = f"{one} and {other} both offer {device} on {shared}"
                    foreign = next((each for each in (one, other) if not each.ours), other)
                    remedy = f"remove {foreign} where it comes from: an operator, or Helm"
                    path = (f"DaemonSet/{foreign}",)
                    yield in_kubernetes(Code.TWO_DEVICE_PLUGINS, path, text, remedy)


def definition(live: Live) -> Iterator[Finding]:
    """Ask for the kinds that jobs are."""
    for each in live.plan.platform.workloads:
        if not live.client.serves(each.api_version, each.kind):
            path = (f"CustomResourceDefinition/{each.plural}.{each.group}",)
            yield in_kubernetes(Code.DEFINITION_MISSING, path, MISSING, _APPLY)


def webhook(live: Live) -> Iterator[Finding]:
    """Ask for the webhooks that refuse mistaken jobs; who answers is a workload's check."""
    kind = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
    for each in live.plan.platform.workloads:
        found = live.client.find(*kind, each.webhook)
        why = f"there is no ValidatingWebhookConfiguration {each.webhook}"
        if found is not None:
            why = "it has no certificate to trust: its controller has not started yet"
            hooks = [one["clientConfig"] for one in found.get("webhooks") or ()]
            if all(one.get("caBundle") for one in hooks if "service" in one):
                continue
        path = (f"ValidatingWebhookConfiguration/{each.webhook}",)
        remedy = f"look at the controller's pod, or install it again: meks fix {Code.WEBHOOK_DOWN}"
        yield in_kubernetes(Code.WEBHOOK_DOWN, path, why, remedy)


def claims(live: Live) -> Iterator[Finding]:
    """Ask for claims that are bound."""
    platform = live.plan.platform
    names = dict.fromkeys(name for _, name in platform.claims) or {platform.claim: None}
    spaces = (*platform.namespaces, platform.system_namespace)
    wanted = [(namespace, name) for namespace in spaces for name in names]
    wanted += [(platform.namespace, platform.efs_claim)] if platform.efs_claim else []
    for namespace, name in wanted:
        path = (f"PersistentVolumeClaim/{namespace}/{name}",)
        claim = live.client.find("v1", "PersistentVolumeClaim", name, namespace)
        if claim is None:
            yield in_kubernetes(Code.SHARED_CLAIM, path, MISSING, _APPLY)
        elif (phase := claim.get("status", {}).get("phase", "Pending")) != "Bound":
            text = f"it is {phase}: no volume is bound to it"
            remedy = f"kubectl -n {namespace} describe pvc {name}"
            yield in_kubernetes(Code.SHARED_CLAIM, path, text, remedy)


def directories(live: Live) -> Iterator[Finding]:
    """Ask for directories that the pods' user may write."""
    platform = live.plan.platform
    if why := _not_set_up(live):
        text = f"the directories of user {platform.pod_uid} are not set up: {why}"
        path = (f"Namespace/{platform.system_namespace}",)
        remedy = f"let it run again: meks fix {Code.SHARED_NOT_WRITABLE}"
        if live.plan.storage.existing:
            remedy += f"; on the file system, which exists, it {platform.shared_directories}"
        yield in_kubernetes(Code.SHARED_NOT_WRITABLE, path, text, remedy)


def _not_set_up(live: Live) -> str | None:
    namespace = live.plan.platform.system_namespace
    jobs = live.client.list("batch/v1", "Job", namespace, labels=f"app={SET_UP}")
    for each in jobs:
        job = {**each, "apiVersion": "batch/v1", "kind": "Job"}
        if why := readiness.unready(live.client, job):
            return f"Job {each['metadata']['name']}: {why}"
    return None if jobs else "there is no Job that gives them to the pods' user"


def secrets(live: Live) -> Iterator[Finding]:
    """Say which jobs name a Secret that is not there."""
    for job, wanted in ((each, one) for each in live.project.jobs for one in each.secret_entries):
        namespace = live.plan.of_team(job.team).platform.namespace
        found = live.client.find("v1", "Secret", wanted.secret, namespace) or {}
        if wanted.key not in (found.get("data") or {}):
            text = f"the job {job.name} needs its key {wanted.key}"
            remedy = f"meks secret set {wanted.secret} --key {wanted.key} < FILE"
            path = (f"Secret/{namespace}/{wanted.secret}",)
            yield in_kubernetes(Code.SECRET_MISSING, path, text, remedy, Level.WARNING)


def _has_pool_nodes(live: Live) -> bool:
    return any(POOL_LABEL in node.labels for node in live.nodes)


CHECKS: tuple[Check[Live], ...] = (
    Check("platform workloads", workloads),
    Check("one plugin a device", device_plugins),
    Check("job definition", definition),
    Check("operator webhook", webhook),
    Check("shared file system", claims),
    Check("shared directories", directories),
    Check("secrets of jobs", secrets),
    Check("nodes", state),
    Check("node types", types, _has_pool_nodes),
    Check("GPUs of each node", gpus, _has_pool_nodes),
    Check("EFA of each node", efa, _has_pool_nodes),
    Check("huge pages of each node", huge_pages, _has_pool_nodes),
    Check("taints of GPU nodes", taints, _has_pool_nodes),
)


def results(live: Live) -> list[Result]:
    """Make all checks; raise what the client raises where the server does not answer."""
    return judged(CHECKS, live, _refused, KUBERNETES)


def _refused(error: Exception) -> Failure | None:
    forbidden = isinstance(error, ApiError) and error.status == HTTPStatus.FORBIDDEN
    return explained(error) if forbidden else None
