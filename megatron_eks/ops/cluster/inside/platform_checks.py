"""Checks of the platform: what should run, the operator, and the shared file system."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.ops.checks import in_kubernetes
from megatron_eks.ops.cluster.inside.facts import Live, Plugin

_APPLY = "install the platform: meks apply"


def namespaces(live: Live) -> Iterator[Finding]:
    """Ask for the platform's namespaces."""
    for name in live.missing_namespaces:
        path = (f"Namespace/{name}",)
        yield in_kubernetes(Code.NAMESPACE_MISSING, path, "it is missing", _APPLY)


def workloads(live: Live) -> Iterator[Finding]:
    """Ask for every DaemonSet and Deployment, and for its pods."""
    for state in live.parts:
        part = state.part
        path = (f"{part.kind}/{part.namespace}/{part.name}",)
        if not state.exists:
            remedy = f"the add-on {part.addon}: meks deploy" if part.addon else _APPLY
            yield in_kubernetes(Code.WORKLOAD_MISSING, path, "it is missing", remedy)
        elif state.why is not None:
            remedy = f"read its logs; to start its pods again: meks fix {Code.WORKLOAD_NOT_READY}"
            yield in_kubernetes(Code.WORKLOAD_NOT_READY, path, state.why, remedy)


def device_plugins(live: Live) -> Iterator[Finding]:
    """Refuse two plugins that offer one device on the same nodes."""
    for device in dict.fromkeys(plugin.device for plugin in live.plugins):
        same = [plugin for plugin in live.plugins if plugin.device == device]
        for index, one in enumerate(same):
            for other in same[index + 1 :]:
                if shared := _shared(one, other):
                    text = f"{one} and {other} both offer {device} on {shared}"
                    foreign = next((each for each in (one, other) if not each.ours), other)
                    remedy = f"remove {foreign}: meks fix {Code.TWO_DEVICE_PLUGINS}"
                    path = (f"DaemonSet/{foreign}",)
                    yield in_kubernetes(Code.TWO_DEVICE_PLUGINS, path, text, remedy)


def _shared(one: Plugin, other: Plugin) -> str:
    """Say on which nodes both may run; before there are nodes, on those to come."""
    if not (one.nodes or other.nodes):
        return "nodes to come"
    nodes = sorted(one.nodes & other.nodes)
    return f"{nodes[0]} and {len(nodes) - 1} more" if len(nodes) > 1 else "".join(nodes)


def definition(live: Live) -> Iterator[Finding]:
    """Ask for the kinds that jobs are."""
    for name in live.missing_definitions:
        path = (f"CustomResourceDefinition/{name}",)
        yield in_kubernetes(Code.DEFINITION_MISSING, path, "it is missing", _APPLY)


def webhook(live: Live) -> Iterator[Finding]:
    """Ask for the webhooks that refuse mistaken jobs, and for somebody behind them."""
    for name, found in live.webhooks:
        path = (f"ValidatingWebhookConfiguration/{name}",)
        remedy = f"see to the controller's pod, or install it again: meks fix {Code.WEBHOOK_DOWN}"
        yield in_kubernetes(Code.WEBHOOK_DOWN, path, found, remedy)


def claims(live: Live) -> Iterator[Finding]:
    """Ask for claims that are bound."""
    for claim in live.claims:
        path = (f"PersistentVolumeClaim/{claim.namespace}/{claim.name}",)
        if claim.phase is None:
            yield in_kubernetes(Code.SHARED_CLAIM, path, "it is missing", _APPLY)
        elif claim.phase != "Bound":
            text = f"it is {claim.phase}: no volume is bound to it"
            remedy = f"kubectl -n {claim.namespace} describe pvc {claim.name}"
            yield in_kubernetes(Code.SHARED_CLAIM, path, text, remedy)


def mounts(live: Live) -> Iterator[Finding]:
    """Say which pods wait for a mount."""
    for pod, why in live.mounts:
        remedy = (
            "see that the file system is AVAILABLE and its group opens TCP 988 and 1018-1023: "
            "meks preflight aws"
        )
        yield in_kubernetes(Code.SHARED_CLAIM, (f"Pod/{pod}",), why, remedy)


def directories(live: Live) -> Iterator[Finding]:
    """Ask for directories that the pods' user may write."""
    if live.set_up is not None:
        platform = live.plan.platform
        text = f"the directories of user {platform.pod_uid} are not set up: {live.set_up}"
        path = (f"Namespace/{platform.system_namespace}",)
        remedy = f"let it run again: meks fix {Code.SHARED_NOT_WRITABLE}"
        if live.plan.storage.existing:
            remedy += f"; on the file system, which exists, it {platform.shared_directories}"
        yield in_kubernetes(Code.SHARED_NOT_WRITABLE, path, text, remedy)


def secrets(live: Live) -> Iterator[Finding]:
    """Say which jobs name a Secret that is not there."""
    namespace = live.plan.platform.namespace
    for job, secret, key in live.missing_secrets:
        text = f"the job {job} needs its key {key}"
        remedy = f"meks secret set {secret} --key {key} < FILE"
        path = (f"Secret/{namespace}/{secret}",)
        yield in_kubernetes(Code.SECRET_MISSING, path, text, remedy, Level.WARNING)
