"""Rules over settings by which a job never starts, or which do nothing."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import GPU, MAIN_CONTAINER, Container, Manifest, Variable

_QUEUE = "kueue.x-k8s.io/queue-name"
_VARIABLE = re.compile(r"(?<!\$)\$\((?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\)")
_OF_THE_OPERATOR = frozenset({"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"})
_LEAST_GRACE = 30
_LEAST_RUN = 300
_BALANCER = "service.beta.kubernetes.io/aws-load-balancer-"
_FIRST, _LAST = 30000, 32767
_NONE = ("0", "0%")


def never_started(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a job left suspended, and refuse a gang of more pods than it has.

    Kubernetes, "Job", suspending; kubeflow/trainer v1.9.4, RunPolicy.suspend and
    SchedulingPolicy.minAvailable: no pod is made, or none is placed.
    """
    policy = mapping(manifest.spec.get("runPolicy")) or {}
    holder, path = (policy, ("spec", "runPolicy")) if policy else (manifest.spec, ("spec",))
    if manifest.is_job and holder.get("suspend") is True and _QUEUE not in manifest.labels:
        found = "suspended, and no queue that starts it: no pod is made"
        remedy = f"remove it, or name a queue by the label {_QUEUE}; keep it if a person resumes it"
        if manifest.kind == "CronJob":
            found = "suspended: its schedule starts nothing"
            remedy = "remove it, unless its Jobs are started by kubectl create job --from"
        yield manifest.find(Code.IDLE, (*path, "suspend"), found, remedy, Level.WARNING)
    deadline = number(holder.get("activeDeadlineSeconds"))
    waits = manifest.is_job and any(pod.names(GPU) for pod in manifest.pods)
    if deadline is not None and 0 < deadline < _LEAST_RUN and waits:
        found = f"the job is ended after {deadline} seconds, pulling its image included"
        place: Path = (*path, "activeDeadlineSeconds")
        remedy = "give it the time of the run, or remove it"
        yield manifest.find(Code.IDLE, place, found, remedy, Level.WARNING)
    gang = mapping(policy.get("schedulingPolicy")) or {}
    wanted = number(gang.get("minAvailable"))
    pods = sum(1 if pod.replicas is None else pod.replicas for pod in manifest.pods)
    if wanted is not None and manifest.pods and wanted > pods:
        found = f"{wanted} pods at once, and the job has {pods}: none is ever placed"
        place = (*path, "schedulingPolicy", "minAvailable")
        yield manifest.find(Code.IDLE, place, found, f"write {pods}")
    fixed = manifest.pytorch_replicas is not None and not manifest.spec.get("elasticPolicy")
    if wanted is not None and fixed and waits and 0 < wanted < pods:
        found = (
            f"{wanted} pods at once, and {pods} wait for each other: some hold their GPUs while "
        )
        found += "the others find none"
        place = (*path, "schedulingPolicy", "minAvailable")
        yield manifest.find(Code.IDLE, place, found, f"write {pods}", Level.WARNING)


def strategies(manifest: Manifest) -> Iterator[Finding]:
    """Refuse settings of a rolling update beside a strategy that has none.

    Kubernetes, pkg/apis/apps/validation: may not be specified when strategy type is Recreate.
    """
    strategy = mapping(manifest.spec.get("strategy")) or {}
    rolling = not is_absent(strategy.get("rollingUpdate"))
    if manifest.kind == "Deployment" and strategy.get("type") == "Recreate" and rolling:
        found = "rollingUpdate beside Recreate: the API server refuses the object"
        path = ("spec", "strategy", "rollingUpdate")
        yield manifest.find(Code.MANIFEST_VALUE, path, found, "remove it")


def standing_updates(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a rolling update that may take no pod away and add none, or both of a DaemonSet.

    Kubernetes, pkg/apis/apps/validation: maxUnavailable cannot be 0 when maxSurge is 0, which it is
    in a DaemonSet unless said, as maxUnavailable is 1 there.
    """
    key = {"DaemonSet": "updateStrategy", "Deployment": "strategy"}.get(manifest.kind)
    rolling = mapping((mapping(manifest.spec.get(key or "")) or {}).get("rollingUpdate")) or {}
    if key is None or not rolling:
        return
    agent = manifest.kind == "DaemonSet"
    gone = rolling.get("maxUnavailable", 1 if agent else "25%")
    more = rolling.get("maxSurge", 0 if agent else "25%")
    path: Path = ("spec", key, "rollingUpdate")
    if str(gone) in _NONE and str(more) in _NONE:
        found = "no pod may go and none be added: the API server refuses the object"
        remedy = "write maxUnavailable: 1" if agent else "write maxSurge: 1"
        yield manifest.find(Code.MANIFEST_VALUE, (*path, "maxUnavailable"), found, remedy)
    elif agent and not {str(gone), str(more)} & {*_NONE} and not is_placeholder(f"{gone}{more}"):
        found = f"maxSurge beside maxUnavailable {shown(gone)}: the API server refuses the object"
        remedy = "write maxUnavailable: 0 beside it, or remove it"
        yield manifest.find(Code.MANIFEST_VALUE, (*path, "maxSurge"), found, remedy)


def short_ends(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a training pod that is killed before it can save.

    Kubernetes, "Pod Lifecycle", termination: SIGKILL follows SIGTERM after this time.
    """
    for pod in manifest.pods if manifest.is_job else ():
        seconds = number(pod.spec.get("terminationGracePeriodSeconds"))
        if seconds is not None and seconds < _LEAST_GRACE and pod.names(GPU):
            found = f"{seconds} seconds to save a checkpoint when its node goes"
            path = (*pod.path, "terminationGracePeriodSeconds")
            remedy = f"use {_LEAST_GRACE} or more, as long as saving takes"
            yield Finding(Code.IDLE, path, found, remedy, Level.WARNING)


def spreads(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a constraint that spreads no pods.

    Kubernetes, "Pod Topology Spread Constraints", labelSelector: without one no pod is counted.
    """
    for pod in manifest.pods:
        for index, value in enumerate(items(pod.spec.get("topologySpreadConstraints")) or []):
            body = mapping(value) or {}
            if body and is_absent(body.get("labelSelector")):
                found = "no labelSelector, so it counts no pod and spreads none"
                path = (*pod.path, "topologySpreadConstraints", index, "labelSelector")
                yield Finding(Code.IDLE, path, found, "select the pods' own labels", Level.WARNING)


def references(manifest: Manifest) -> Iterator[Finding]:
    """Report `$(NAME)` in a variable's value that no variable before it has.

    Kubernetes, "Define Dependent Environment Variables": such a value stays as it is written, also
    where the variable comes later in the list.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if items(container.body.get("envFrom")):
                continue
            known: set[str] = set()
            for variable in container.variables:
                # The image's own search paths are judged where they are lost.
                if variable.name in {"LD_LIBRARY_PATH", "PATH"}:
                    known.add(variable.name)
                    continue
                names = [each["name"] for each in _VARIABLE.finditer(variable.value or "")]
                unknown = next((each for each in names if each not in known), None)
                if unknown is not None:
                    yield from _unresolved(manifest, container, variable, unknown)
                known.add(variable.name)


def _unresolved(
    manifest: Manifest, container: Container, variable: Variable, name: str
) -> Iterator[Finding]:
    path = (*container.path, "env", variable.index, "value")
    later = {each.name for each in container.variables[variable.index :]}
    adds = _adds_variable(manifest, container, name)
    if name in later and name != variable.name:
        found = f"{shown(variable.value)}: {name} is defined below, so it stays as it is"
        remedy = f"move {name} above {variable.name}"
        yield Finding(Code.IDLE, path, found, remedy)
    elif adds is not None:
        found = f"{shown(variable.value)}: {adds} adds {name} below, so it stays as it is"
        remedy = f"write $({name}) in command or args, where it is known"
        yield Finding(Code.IDLE, path, found, remedy)
    # Kubernetes gives the addresses of Services so.
    elif not name.endswith(("_HOST", "_PORT")):
        found = f"{shown(variable.value)}: no variable {name} before it"
        remedy = "define it above, or expand it in a shell"
        yield Finding(Code.IDLE, path, found, remedy, Level.WARNING)


def _adds_variable(manifest: Manifest, container: Container, name: str) -> str | None:
    """Say who puts a variable at the end of a container's list, when its pod is made.

    kubeflow/trainer v1.9.4, pkg/controller.v1/pytorch/envvar.go; Kubernetes,
    pkg/controller/job/indexed_job_utils.go, addCompletionIndexEnvVariable.
    """
    types = manifest.pytorch_replicas or {}
    by_operator = "Master" in types and container.name == MAIN_CONTAINER and not container.is_init
    if by_operator and name in _OF_THE_OPERATOR:
        return "the operator"
    indexed = manifest.kind == "Job" and manifest.spec.get("completionMode") == "Indexed"
    return "the Job" if indexed and name == "JOB_COMPLETION_INDEX" else None


def open_services(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a Service that the internet reaches, and refuse ports that no node opens.

    Kubernetes, "Service", type LoadBalancer and nodePort; EKS User Guide, "Route TCP and UDP
    traffic with Network Load Balancers": without a scheme the balancer of Kubernetes is public.
    """
    if (manifest.group, manifest.kind) != ("", "Service"):
        return
    notes = mapping((mapping(manifest.body.get("metadata")) or {}).get("annotations")) or {}
    said = any(text(key) and key.startswith(_BALANCER) for key in notes)
    bounded = items(manifest.spec.get("loadBalancerSourceRanges"))
    classed = not is_absent(manifest.spec.get("loadBalancerClass"))
    if manifest.spec.get("type") == "LoadBalancer" and not (said or bounded or classed):
        found = "a load balancer that everybody reaches, with what it serves"
        remedy = f"annotate {_BALANCER}scheme: internal, or list loadBalancerSourceRanges"
        yield manifest.find(Code.SERVICE, ("spec", "type"), found, remedy, Level.WARNING)
    for index, value in enumerate(items(manifest.spec.get("ports")) or []):
        port = number((mapping(value) or {}).get("nodePort"))
        if port is not None and port and not _FIRST <= port <= _LAST:
            found = f"{port} is no node port: the API server refuses the Service"
            path = ("spec", "ports", index, "nodePort")
            remedy = f"use {_FIRST} to {_LAST}, or leave it out"
            yield manifest.find(Code.SERVICE, path, found, remedy)
