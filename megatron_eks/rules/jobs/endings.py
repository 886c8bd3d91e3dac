"""Rules over pods of jobs that never come to an end, or not in the time they are given."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.jobs.training_flags import megatron_flags
from megatron_eks.rules.pod_templates import REPLICA_SPECS
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, text
from megatron_eks.rules.workloads import GPU, Container, Manifest

# What Kubernetes gives a pod that names no other (API reference, PodSpec).
_GRACE = 30
_LEAST_SAVING = 60
_ENDLESS = re.compile(
    r"\btail\s+(\S+\s+)*?(-\w*[fF]\b|--follow)|\bsleep\s+(infinity|inf)\b"
    r"|\bwhile\s+(true|:|\[\s*1\s*\]|sleep\b)|\btensorboard\s|-m\s+http\.server\b|\bsshd\s+-D"
    r"|\bjupyter(-|\s+)(lab|notebook|server)\b|\buntil\s+false\b"
)
# Their policies end a set when some of its pods have succeeded.
_ENDED_BY_OTHERS = frozenset({"batch.volcano.sh", "jobset.x-k8s.io"})
_ENDS = re.compile(r"\b(break|exit|kill|pkill|killall|timeout|return)\b|--pid\b|\btrap\b")
# Programs that serve until somebody stops them.
_SERVERS = re.compile(
    r"(^|/)(aws-for-fluent-bit|fluent-bit|fluentd|filebeat|vector|promtail|cloudwatch-agent"
    r"|aws-otel-collector|opentelemetry-collector(-contrib)?|cloud-sql-proxy|envoy|proxyv2"
    r"|dcgm-exporter|node-exporter|pushgateway|prometheus|tensorboard|nginx|redis|memcached"
    r"|aws-xray-daemon|datadog-agent|agent-datadog)([:@]|$)"
)
_SERVING = frozenset({"Evaluator", "PS"})
_SLEEP = re.compile(r"\bsleep\s+(?P<seconds>[0-9]+)\b")
_STATE_BYTES, _BYTES_PER_SECOND = 14, 5 * 10**9


def restarted(manifest: Manifest) -> Iterator[Finding]:
    """Refuse pods of a run that are started again when they have succeeded.

    Kubernetes, "Pod Lifecycle", restartPolicy Always; kubeflow/trainer v1.9.4, pkg/core/pod.go:
    the policy of a replica is that of its pods, which never succeed then.
    """
    if manifest.kind not in REPLICA_SPECS or not manifest.pods:
        return
    specs = mapping(manifest.spec.get(REPLICA_SPECS[manifest.kind])) or {}
    for name, value in specs.items():
        # Workers of an MPIJob serve until the launcher ends, and so do parameter servers.
        ends = (manifest.kind != "MPIJob" or name == "Launcher") and name not in _SERVING
        if ends and (mapping(value) or {}).get("restartPolicy") == "Always":
            found = "Always: a pod that has ended well is started again, so the job is never done"
            path = ("spec", REPLICA_SPECS[manifest.kind], name, "restartPolicy")
            yield manifest.find(Code.NEVER_ENDS, path, found, "use OnFailure")


def companions(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a second container that runs for ever, in a pod that is to end.

    Kubernetes, "Sidecar Containers" and "Jobs with sidecar containers": a pod has ended when all
    its ordinary containers have; an init container with restartPolicy Always is stopped then.
    """
    for pod in manifest.pods if manifest.is_job else ():
        ordinary = [each for each in pod.containers if not each.is_init]
        endless = [each for each in ordinary if _is_endless(each)]
        # Pods of Ray, and those that an operator or a policy ends, serve on purpose.
        if manifest.group == "ray.io" or (manifest.kind == "MPIJob" and "Launcher" not in pod.path):
            continue
        for container in endless if len(endless) < len(ordinary) else ():
            certain = _ENDLESS.search(container.line) is not None
            found = "runs on when the others have ended, so the pod and its job are never done"
            remedy = "make it an init container with restartPolicy: Always"
            level = Level.ERROR if certain else Level.WARNING
            yield Finding(Code.NEVER_ENDS, container.path, found, remedy, level)
        # Also the only one: whoever looks into a node by hand forgets it with its GPUs.
        idle = [each for each in endless if each.names(GPU) and _ENDLESS.search(each.line)]
        ended = manifest.group in _ENDED_BY_OTHERS
        for container in idle if len(endless) == len(ordinary) and not ended else ():
            found = "does nothing and never ends, with the GPUs of its node"
            remedy = "start the program here, or let it end: sleep 4h"
            path = (*container.path, "command")
            yield Finding(Code.NEVER_ENDS, path, found, remedy, Level.WARNING)


def first_steps(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an init container that runs for ever: the others never start.

    Kubernetes, "Init Containers" and "Sidecar Containers": each must end before the next one
    starts, unless its restartPolicy is Always.
    """
    for pod in manifest.pods:
        for container in pod.containers if manifest.group != "ray.io" else ():
            companion = container.body.get("restartPolicy") == "Always"
            endless = _ENDLESS.search(container.line) is not None and _is_endless(container)
            if not container.is_init or companion or not endless:
                continue
            found = "runs for ever, and what comes after it never starts"
            level = Level.WARNING if "while" in container.line else Level.ERROR
            remedy = "let it end, or give it restartPolicy: Always"
            yield Finding(Code.NEVER_ENDS, container.path, found, remedy, level)


def _is_endless(container: Container) -> bool:
    image = text(container.body.get("image")) or ""
    if _ENDS.search(container.line) or container.has_launcher:
        return False
    line = container.line
    if not container.words:
        return _SERVERS.search(image) is not None
    match = _ENDLESS.search(line)
    # What goes on in the background, or stops with another, does not hold the container.
    background = match is not None and re.search(r"[^&]&(\s|$)", line[match.start() :]) is not None
    serves = _SERVERS.search(image) is not None and is_absent(container.body.get("command"))
    return (match is not None and not background) or serves


def saving(manifest: Manifest) -> Iterator[Finding]:
    """Warn of less time than the checkpoint takes that a signal is to save.

    Kubernetes, "Pod Lifecycle", termination: SIGKILL follows after this time; Megatron-LM,
    megatron/training/arguments.py, --exit-signal-handler: "save checkpoint and shutdown".
    """
    for pod in manifest.pods if manifest.is_job else ():
        given = pod.spec.get("terminationGracePeriodSeconds")
        seconds = _GRACE if is_absent(given) else number(given)
        for container in pod.containers:
            options = {flag: value for _, flag, value in megatron_flags(container)}
            handled = {"--exit-signal-handler", "--save"} <= options.keys()
            size = _checkpoint(options)
            least = max(_LEAST_SAVING, size // _BYTES_PER_SECOND)
            # Less than the default is found for every pod with GPUs.
            if not handled or seconds is None or not _GRACE <= seconds < least:
                continue
            much = f" of some {size // 10**9} GB" if size > 10**9 else ""
            found = f"{seconds} seconds for the checkpoint{much} that --exit-signal-handler saves"
            path = (*pod.path, "terminationGracePeriodSeconds")
            remedy = f"use at least {least}, as long as saving takes"
            yield Finding(Code.IDLE, path, found, remedy, Level.WARNING)


def _checkpoint(options: "dict[str, str]") -> int:
    """Estimate the bytes of weights and Adam's state from a dense model's shape; 0 if unknown."""
    layers, hidden = (number(options.get(each)) for each in ("--num-layers", "--hidden-size"))
    if not layers or not hidden or "--num-experts" in options:
        return 0
    return 12 * layers * hidden * hidden * _STATE_BYTES


def hooks(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a preStop hook that uses up the time to end in.

    Kubernetes, "Container Lifecycle Hooks": the grace period counts from before the hook, and
    SIGTERM comes after it.
    """
    for pod in manifest.pods:
        given = pod.spec.get("terminationGracePeriodSeconds")
        grace = _GRACE if is_absent(given) else number(given)
        for container in pod.containers:
            seconds = _hook(container)
            if grace is None or seconds is None or seconds < grace:
                continue
            found = f"sleeps {seconds} of the {grace} seconds until the container is killed"
            path = (*container.path, "lifecycle", "preStop")
            remedy = "use a larger terminationGracePeriodSeconds"
            yield Finding(Code.IDLE, path, found, remedy, Level.WARNING)


def _hook(container: Container) -> int | None:
    hook = mapping((mapping(container.body.get("lifecycle")) or {}).get("preStop")) or {}
    asleep = number((mapping(hook.get("sleep")) or {}).get("seconds"))
    words = [
        text(each) or "" for each in items((mapping(hook.get("exec")) or {}).get("command")) or []
    ]
    line = " ".join(words)
    match = None if is_placeholder(line) else _SLEEP.search(line)
    return asleep if asleep is not None else int(match["seconds"]) if match else None


def master_probes(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a probe of a port on which only the first rank listens, in the pods of others.

    Kubernetes, "Liveness, Readiness, and Startup Probes"; PyTorch, "torchrun (Elastic Launch)": the
    store is on the host of rdzv_endpoint alone, so the kubelet kills every other pod.
    """
    for pod in manifest.pods:
        only_master = "Master" in pod.path
        many = len(manifest.pods) > 1 or (pod.replicas or 1) > 1
        for container in pod.containers:
            trains = manifest.is_job or container.has_launcher
            if only_master or not many or container.is_init or not trains:
                continue
            yield from _probes(container, master_ports(manifest, container))


def master_ports(manifest: Manifest, container: Container) -> set[str]:
    """Return the ports on which the first rank alone listens."""
    ports = {"pytorchjob-port"}
    for _, flag, value in launcher_flags(container):
        if flag in {"rdzv-endpoint", "master-port"}:
            ports.add(value.rpartition(":")[2])
    ports |= {each.value or "" for each in container.variables if each.name == "MASTER_PORT"}
    return ports | ({"23456"} if manifest.pytorch_replicas is not None else set())


def _probes(container: Container, ports: "set[str]") -> Iterator[Finding]:
    for kind in ("livenessProbe", "startupProbe", "readinessProbe"):
        probe = mapping(container.body.get(kind)) or {}
        for how in ("tcpSocket", "httpGet"):
            port = (mapping(probe.get(how)) or {}).get("port")
            if is_absent(port) or str(port) not in ports:
                continue
            kills = kind != "readinessProbe"
            end = "the kubelet kills it again and again" if kills else "it is never ready"
            found = f"port {port}, on which only the first rank listens: {end}"
            level = Level.ERROR if kills else Level.WARNING
            path = (*container.path, kind)
            yield Finding(Code.PROBE, path, found, "remove it: a rank ends when it fails", level)
