"""`meks fix CODE`: the remedy of a finding inside the cluster, shown, asked for, and checked."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.cluster import apply
from megatron_eks.ops.cluster.inside import checks
from megatron_eks.ops.cluster.inside.live import EFA_PLUGIN, NVIDIA_PLUGIN, SET_UP, Live
from megatron_eks.ops.failure import CHECK_FAILED, DONE, FAILED, USAGE, Failure, no_such
from megatron_eks.ops.kube import objects
from megatron_eks.ops.kube.objects import key
from megatron_eks.ops.opening import Opened
from megatron_eks.project import MANIFESTS

_POLL_SECONDS = 2


Step = tuple[str, Callable[[], object]]
"""One thing that a remedy does: in words, and how."""
Platform = Callable[[], Sequence[Object]]
"""Reads what the platform should be, as `make synth` wrote it."""
Remedy = Callable[[Live, Collection[str], Platform], list[Step]]
"""What to do in a cluster, where nodes were found wanting."""


def run(wanted: str, on: Opened, *, previews: bool, wait_seconds: float) -> int:
    """Apply the remedy of a code and check again; return 4 if the finding stays that long."""
    code, (access, project, console) = _code(wanted), on
    live = Live(access, project)
    found = _findings(live, code)
    if not found:
        console.say(f"{code} is not found in this cluster: there is nothing to do")
        return DONE
    console.report(found)
    folder = project.file.with_name(MANIFESTS) / "platform"
    read = partial(apply.read, [folder], access, project, previews=previews)
    nodes = [str(each.path[0]).removeprefix("Node/") for each in found]
    steps = _REMEDIES[code](live, nodes, read)
    if not steps:
        text = f"{code} has no remedy here that is safe to apply"
        raise Failure(Code.NOT_FIXABLE, text, found[0].remedy)
    console.write("".join(f"{text}\n" for text, _ in steps))
    if not console.confirm(f"Do that in {access.client.server}?"):
        console.say("nothing was changed")
        return FAILED
    for _, act in steps:
        act()

    def gone() -> bool:
        found[:] = _findings(Live(access, project), code)
        return not found

    if console.wait(wait_seconds, _POLL_SECONDS, gone):
        console.say(f"{code} is gone")
        return DONE
    console.report(found)
    console.say("it is still there: do what the finding says, or replace the node")
    return CHECK_FAILED


def _code(wanted: str) -> Code:
    text = wanted.upper() if wanted.upper().startswith("MEKS-") else f"MEKS-{wanted}"
    known = sorted(_REMEDIES)
    if text not in known:
        found = f"there is no remedy for {wanted!r} inside the cluster"
        more = "; of others: meks explain CODE"
        raise no_such(Code.NOT_FIXABLE, found, text, known, more=more, exit_code=USAGE)
    return Code(text)


def _findings(live: Live, code: Code) -> list[Finding]:
    found = [each for result in checks.results(live) for each in result.findings]
    return [each for each in found if each.code is code]


def _missing(live: Live, _: Collection[str], platform: Platform) -> list[Step]:
    """Bring what the cluster lacks of the platform, and leave the rest as it is."""
    return [
        (f"apply {key(each)}", partial(live.client.apply, each))
        for each in platform()
        if objects.find_own(live.client, each, live.plan.name) is None
    ]


def _taint(live: Live, nodes: Collection[str], _: Platform) -> list[Step]:
    wanted = live.plan.platform.gpu_taint
    taint = {"key": wanted, "value": "true", "effect": "NoSchedule"}
    text = f"with {wanted}=true:NoSchedule"
    return [
        (f"taint node {node} {text}", partial(_add, live.client, node, taint)) for node in nodes
    ]


def _add(client: Client, node: str, taint: Object) -> None:
    live = client.get("v1", "Node", node)
    before = live["spec"].get("taints") or []
    if any(each["key"] == taint["key"] for each in before):
        return
    # The version makes it fail where somebody else changes the list at the same moment.
    version = live["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": [*before, taint]}}
    path = f"/api/v1/nodes/{node}"
    client.request("PATCH", path, patch, content_type="application/merge-patch+json")


def _plugin_pods(name: str, live: Live, nodes: Collection[str], _: Platform) -> list[Step]:
    labels, steps = f"app.kubernetes.io/name={name}", list[Step]()
    for pod in live.client.list("v1", "Pod", "kube-system", labels=labels):
        if (node := pod["spec"].get("nodeName")) in nodes:
            text, act = _delete(live.client, "v1", "Pod", pod)
            steps.append((f"{text} on {node}, which its owner makes again", act))
    return steps


def _set_up(live: Live, _: Collection[str], platform: Platform) -> list[Step]:
    kind, client = ("batch/v1", "Job"), live.client
    there = client.list(*kind, live.plan.platform.system_namespace, labels=f"app={SET_UP}")
    return [_delete(client, *kind, each) for each in there] + [
        (f"apply {key(each)}", partial(client.apply, each))
        for each in platform()
        if each["kind"] == "Job" and each["metadata"]["labels"].get("app") == SET_UP
    ]


def _delete(client: Client, version: str, kind: str, found: Object) -> Step:
    name, namespace = found["metadata"]["name"], found["metadata"]["namespace"]
    act = partial(client.delete, version, kind, name, namespace, missing_ok=True)
    return f"delete {kind} {namespace}/{name}", act


_REMEDIES: Mapping[Code, Remedy] = {
    Code.DEFINITION_MISSING: _missing,
    Code.NODE_EFA: partial(_plugin_pods, EFA_PLUGIN),
    Code.NODE_GPUS: partial(_plugin_pods, NVIDIA_PLUGIN),
    Code.NODE_TAINT: _taint,
    Code.SHARED_CLAIM: _missing,
    Code.SHARED_NOT_WRITABLE: _set_up,
    Code.WEBHOOK_DOWN: _missing,
    Code.WORKLOAD_MISSING: _missing,
}
