"""`meks fix CODE`: the remedy of a finding inside the cluster, shown, asked for, and checked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.endings import CHECK_FAILED, DONE, FAILED, USAGE
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube import apply
from megatron_eks.ops.kube.apply import Options
from megatron_eks.ops.kube.preflight import checks
from megatron_eks.ops.kube.preflight.facts import EFA_PLUGIN, NVIDIA_PLUGIN, SET_UP, Live
from megatron_eks.ops.kube.preflight.read import read

if TYPE_CHECKING:
    from megatron_eks.ops.aws.console import Console
    from megatron_eks.ops.kube.access import Access
    from megatron_eks.project import Project

_CHECK_SECONDS, _POLL_SECONDS = 120, 2
_APPS = "apps/v1"


@dataclass(frozen=True)
class Step:
    """One thing that a remedy does."""

    text: str
    act: Callable[[], object]


def run(
    access: "Access", project: "Project", wanted: str, options: Options, console: "Console"
) -> int:
    """Apply the remedy of a code and check again; return 4 if the finding stays."""
    code = _code(wanted)
    live = read(access, project)
    found = _findings(live, code)
    if not found:
        console.say(f"{code} is not found in this cluster: there is nothing to do")
        return DONE
    for finding in found:
        console.say(str(finding))
    if code in _BY_APPLY:
        return _applied(access, project, code, options, console)
    steps = list(_STEPS[code](access.client, live, found))
    if not steps:
        text = f"{code} has no remedy here that is safe to apply"
        raise Failure(Code.NOT_FIXABLE, text, found[0].remedy)
    for step in steps:
        console.write(f"{step.text}\n")
    if not console.confirm(f"Do that in {access.client.server}?"):
        console.say("nothing was changed")
        return FAILED
    for step in steps:
        step.act()
    if code is Code.SHARED_NOT_WRITABLE:
        return _applied(access, project, code, options, console)
    return _checked(access, project, code, console)


def _code(wanted: str) -> Code:
    text = wanted.upper() if wanted.upper().startswith("MEKS-") else f"MEKS-{wanted}"
    known = sorted((*_BY_APPLY, *_STEPS))
    if text not in known:
        found = f"there is no remedy for {wanted!r} inside the cluster"
        remedy = f"known: {', '.join(known)}; of others: meks explain CODE"
        raise Failure(Code.NOT_FIXABLE, found, remedy, exit_code=USAGE)
    return Code(text)


def _findings(live: Live, code: Code) -> list[Finding]:
    found = [each for result in checks.results(live) for each in result.findings]
    return [each for each in found if each.code is code]


def _applied(
    access: "Access", project: "Project", code: Code, options: Options, console: "Console"
) -> int:
    """Bring the platform in again, which shows and asks by itself."""
    ended = apply.run(access, project, options, console)
    return ended or _checked(access, project, code, console)


def _checked(access: "Access", project: "Project", code: Code, console: "Console") -> int:
    left: list[Finding] = []

    def gone() -> bool:
        left[:] = _findings(read(access, project), code)
        return not left

    if console.wait(_CHECK_SECONDS, _POLL_SECONDS, gone):
        console.say(f"{code} is gone")
        return DONE
    for finding in left:
        console.say(str(finding))
    console.say("it is still there: do what the finding says, or replace the node")
    return CHECK_FAILED


def _taint(client: Client, live: Live, found: Sequence[Finding]) -> list[Step]:
    key = live.plan.platform.gpu_taint
    taint = {"key": key, "value": "true", "effect": "NoSchedule"}
    return [
        Step(f"taint node {name} with {key}=true:NoSchedule", partial(_add, client, name, taint))
        for name in _nodes(found)
    ]


def _add(client: Client, node: str, taint: Object) -> None:
    """Add a taint beside those that a node has."""
    live = client.get("v1", "Node", node)
    before = live["spec"].get("taints") or []
    if any(each["key"] == taint["key"] for each in before):
        return
    # The version makes it fail where somebody else changes the list at the same moment.
    version = live["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": [*before, taint]}}
    path = f"/api/v1/nodes/{node}"
    client.request("PATCH", path, patch, content_type="application/merge-patch+json")


def _plugin_pods(name: str) -> "Callable[[Client, Live, Sequence[Finding]], list[Step]]":
    """Return a remedy that starts a device plugin again on the nodes that lack devices."""

    def steps(client: Client, live: Live, found: Sequence[Finding]) -> list[Step]:
        del live
        nodes = set(_nodes(found))
        labels = f"app.kubernetes.io/name={name}"
        pods = client.list("v1", "Pod", "kube-system", labels=labels)
        return [_restart(client, pod) for pod in pods if pod["spec"].get("nodeName") in nodes]

    return steps


def _parts(client: Client, live: Live, found: Sequence[Finding]) -> list[Step]:
    """Start the pods again that are not ready, of each workload that does not work."""
    del found
    steps = []
    for state in live.parts:
        if state.why is None:
            continue
        part = state.part
        workload = client.get(_APPS, part.kind, part.name, part.namespace)
        chosen = workload["spec"]["selector"]["matchLabels"]
        labels = ",".join(f"{key}={value}" for key, value in chosen.items())
        for pod in client.list("v1", "Pod", part.namespace, labels=labels):
            conditions = pod.get("status", {}).get("conditions") or ()
            ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
            # One that waits for a node would wait again.
            if not ready and pod["spec"].get("nodeName"):
                steps.append(_restart(client, pod))
    return steps


def _foreign_plugins(client: Client, live: Live, found: Sequence[Finding]) -> list[Step]:
    """Remove plugins that are not the platform's, where the platform has one of that device."""
    del found
    ours = {plugin.device for plugin in live.plugins if plugin.ours}
    return [
        Step(
            f"delete DaemonSet {plugin} (an operator or Helm release that made it may bring it "
            "back: remove it there)",
            partial(
                client.delete, _APPS, "DaemonSet", plugin.name, plugin.namespace, missing_ok=True
            ),
        )
        for plugin in live.plugins
        if not plugin.ours and plugin.device in ours
    ]


def _set_up(client: Client, live: Live, found: Sequence[Finding]) -> list[Step]:
    """Remove the Job that failed, so that the platform brings it again."""
    del found
    namespace = live.plan.platform.system_namespace
    jobs = client.list("batch/v1", "Job", namespace, labels=f"app={SET_UP}")
    names = [str(each["metadata"]["name"]) for each in jobs]
    if not names:
        return [Step("apply the platform, whose Job it is", lambda: None)]
    return [
        Step(
            f"delete Job {namespace}/{name}, and apply the platform, which brings it again",
            partial(client.delete, "batch/v1", "Job", name, namespace, missing_ok=True),
        )
        for name in names
    ]


def _restart(client: Client, pod: Object) -> Step:
    metadata = pod["metadata"]
    name, namespace = str(metadata["name"]), str(metadata["namespace"])
    where = pod["spec"].get("nodeName", "no node")
    return Step(
        f"delete pod {namespace}/{name} on {where}, which its owner makes again",
        lambda: client.delete("v1", "Pod", name, namespace, missing_ok=True),
    )


def _nodes(found: Sequence[Finding]) -> list[str]:
    return [str(each.path[0]).removeprefix("Node/") for each in found]


_BY_APPLY = frozenset(
    {
        Code.DEFINITION_MISSING,
        Code.NAMESPACE_MISSING,
        Code.SHARED_CLAIM,
        Code.WEBHOOK,
        Code.WORKLOAD_MISSING,
    }
)
_STEPS: Mapping[Code, Callable[[Client, Live, Sequence[Finding]], list[Step]]] = {
    Code.NODE_EFA: _plugin_pods(EFA_PLUGIN),
    Code.NODE_GPUS: _plugin_pods(NVIDIA_PLUGIN),
    Code.NODE_TAINT: _taint,
    Code.SHARED_NOT_WRITABLE: _set_up,
    Code.TWO_DEVICE_PLUGINS: _foreign_plugins,
    Code.WORKLOAD_NOT_READY: _parts,
}
