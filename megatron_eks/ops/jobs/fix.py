"""`meks fix CODE`: the remedy of a finding inside the cluster, shown, asked for, and checked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    previews: bool = False
    wait_seconds: float = 120
    """How long a remedy may take to show."""


Step = tuple[str, Callable[[], object]]
"""One thing that a remedy does: in words, and how."""


@dataclass(frozen=True)
class Patient:
    """A cluster with what was found in it, and what the platform should be."""

    live: Live
    found: Sequence[Finding]
    platform: Callable[[], Sequence[Object]]
    """Reads it as `make synth` wrote it."""


def run(wanted: str, options: Options, on: Opened) -> int:
    """Apply the remedy of a code and check again; return 4 if the finding stays."""
    code, (access, project, console) = _code(wanted), on
    live = Live(access, project)
    found = _findings(live, code)
    if not found:
        console.say(f"{code} is not found in this cluster: there is nothing to do")
        return DONE
    console.report(found)
    folder = project.file.with_name(MANIFESTS) / "platform"
    read = partial(apply.read, [folder], access, project, previews=options.previews)
    steps = _REMEDIES[code](Patient(live, found, read))
    if not steps:
        text = f"{code} has no remedy here that is safe to apply"
        raise Failure(Code.NOT_FIXABLE, text, found[0].remedy)
    console.write("".join(f"{text}\n" for text, _ in steps))
    if not console.confirm(f"Do that in {access.client.server}?"):
        console.say("nothing was changed")
        return FAILED
    for _, act in steps:
        act()
    return _checked(code, options, on)


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


def _checked(code: Code, options: Options, on: Opened) -> int:
    left: list[Finding] = []

    def gone() -> bool:
        left[:] = _findings(Live(on.access, on.project), code)
        return not left

    if on.console.wait(options.wait_seconds, _POLL_SECONDS, gone):
        on.console.say(f"{code} is gone")
        return DONE
    on.console.report(left)
    on.console.say("it is still there: do what the finding says, or replace the node")
    return CHECK_FAILED


def _missing(patient: Patient) -> list[Step]:
    """Bring what the cluster lacks of the platform, and leave the rest as it is."""
    client, name = patient.live.client, patient.live.plan.name
    return [
        (f"apply {key(each)}", partial(client.apply, each))
        for each in patient.platform()
        if objects.find_own(client, each, name) is None
    ]


def _taint(patient: Patient) -> list[Step]:
    wanted = patient.live.plan.platform.gpu_taint
    taint = {"key": wanted, "value": "true", "effect": "NoSchedule"}
    return [
        (
            f"taint node {name} with {wanted}=true:NoSchedule",
            partial(_add, patient.live.client, name, taint),
        )
        for name in _nodes(patient.found)
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


def _plugin_pods(name: str, patient: Patient) -> list[Step]:
    client, nodes = patient.live.client, set(_nodes(patient.found))
    found = client.list("v1", "Pod", "kube-system", labels=f"app.kubernetes.io/name={name}")
    steps = []
    for pod in found:
        if (node := pod["spec"].get("nodeName")) in nodes:
            place = pod["metadata"]["name"], pod["metadata"]["namespace"]
            text = f"delete pod {place[1]}/{place[0]} on {node}, which its owner makes again"
            steps.append(_delete(client, text, "v1", "Pod", *place))
    return steps


def _set_up(patient: Patient) -> list[Step]:
    client, namespace = patient.live.client, patient.live.plan.platform.system_namespace
    found = client.list("batch/v1", "Job", namespace, labels=f"app={SET_UP}")
    steps = [
        _delete(client, f"delete Job {namespace}/{name}", "batch/v1", "Job", name, namespace)
        for name in (each["metadata"]["name"] for each in found)
    ]
    return steps + [
        (f"apply {key(each)}", partial(client.apply, each))
        for each in patient.platform()
        if each["kind"] == "Job" and each["metadata"]["labels"].get("app") == SET_UP
    ]


def _delete(client: Client, text: str, *place: str) -> Step:
    return text, partial(client.delete, *place, missing_ok=True)


def _nodes(found: Sequence[Finding]) -> list[str]:
    return [str(each.path[0]).removeprefix("Node/") for each in found]


_REMEDIES: Mapping[Code, Callable[[Patient], list[Step]]] = {
    Code.DEFINITION_MISSING: _missing,
    Code.NODE_EFA: partial(_plugin_pods, EFA_PLUGIN),
    Code.NODE_GPUS: partial(_plugin_pods, NVIDIA_PLUGIN),
    Code.NODE_TAINT: _taint,
    Code.SHARED_CLAIM: _missing,
    Code.SHARED_NOT_WRITABLE: _set_up,
    Code.WEBHOOK_DOWN: _missing,
    Code.WORKLOAD_MISSING: _missing,
}
