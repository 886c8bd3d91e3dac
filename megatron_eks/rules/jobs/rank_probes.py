"""Rule over liveness and startup probes of ranks, which answer none."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.jobs.endings import master_ports
from megatron_eks.rules.values import is_absent, items, mapping, number, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest

_KILLING = ("livenessProbe", "startupProbe")
_SMI = re.compile(r"\bnvidia-smi\b")
_ENDS = "the kubelet kills the rank, and with it the run"
_REMEDY = "remove it: a rank ends when it fails"


def probes(manifest: Manifest) -> Iterator[Finding]:
    """Warn of probes that end a rank which trains as it should.

    Kubernetes, "Liveness, Readiness, and Startup Probes": after failureThreshold failures the
    container is killed, and a command has timeoutSeconds, which are 1. torchrun and Megatron serve
    no HTTP, and nvidia-smi asks every GPU and tells nothing of the rank.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            ranks = container.has_launcher or manifest.pytorch_replicas is not None
            if container.is_init or not (ranks and container.names(GPU)):
                continue
            for kind in _KILLING:
                probe = mapping(container.body.get(kind)) or {}
                found = _asked(container, probe, master_ports(manifest, container)) or _smi(probe)
                if found is not None:
                    path = (*container.path, kind)
                    yield Finding(Code.PROBE, path, f"{found}: {_ENDS}", _REMEDY, Level.WARNING)


def _asked(container: Container, probe: "dict[str, Json]", of_master: "set[str]") -> str | None:
    """Return what is wrong with a port that nothing in the container mentions."""
    for how in ("httpGet", "tcpSocket"):
        port = (mapping(probe.get(how)) or {}).get("port")
        if is_absent(port) or number(port) is None or str(port) in of_master:
            continue
        told = (container.line, *(each.value or "" for each in container.variables))
        listed = [mapping(each) or {} for each in items(container.body.get("ports")) or []]
        if any(number(each.get("containerPort")) == number(port) for each in listed):
            continue
        if not any(re.search(rf"\b{number(port)}\b", each) for each in told):
            return f"port {port}, on which no rank listens"
    return None


def _smi(probe: "dict[str, Json]") -> str | None:
    command = items((mapping(probe.get("exec")) or {}).get("command")) or []
    if not any(_SMI.search(text(each) or "") for each in command):
        return None
    seconds = number(probe.get("timeoutSeconds")) or 1
    return f"{shown('nvidia-smi')} in {seconds} s, which takes longer while the GPUs are busy"
