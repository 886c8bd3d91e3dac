"""Rules over the names by which ranks meet: that a pod bears them, and that DNS knows them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.job_meeting import without_number
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.jobs.replicated_jobs import indices, pods_of_set, set_of
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.pod_selection import pods_beside, selects
from megatron_eks.rules.values import is_absent, is_placeholder, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_FLAGS = ("master-addr", "rdzv-endpoint")
_VARIABLES = frozenset({"MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "RDZV_ENDPOINT"})
_LOOP = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1"})  # noqa: S104 -- not listened at
_WHOLE_NAME = re.compile(r"\$[({]?(HOSTNAME|POD_NAME)[)}]?|\$\(hostname\)")
_RENAMED = re.compile(
    r"\bNODE_RANK=[\"']?(\$\{?(HOSTNAME|POD_NAME)\}?|\$\(hostname\))[\"']?(\s|;|$)"
)
PORT = re.compile(r":[0-9$({][^:]*$")
_WAITS_FOR_NAMES = re.compile(r"\b(nslookup|getent\s+(ahosts|hosts)|dig|host|ping|nc)\b")


@dataclass(frozen=True)
class Names:
    """The names of an object's pods."""

    hosts: frozenset[str]
    subdomain: str | None
    stem: str
    """How each of them begins."""
    unnamed: bool = False
    """Whether DNS is switched off for them."""


def names(manifest: Manifest) -> Iterator[Finding]:
    """Require of an address that names a pod of this object that there is one, in its subdomain.

    Kubernetes, "StatefulSet Basics", stable network identity (NAME-INDEX.SERVICENAME), and "Jobs",
    completion mode (NAME-INDEX.SUBDOMAIN); JobSet, "Concepts" (SET-JOB-INDEX-INDEX.SUBDOMAIN).
    """
    own = names_of(manifest)
    for pod in manifest.pods if own is not None else ():
        for container in pod.containers:
            for path, value in places(container, of_job=manifest.kind == "Job"):
                host = PORT.sub("", value)
                if own is None or "$" in host or is_placeholder(host):
                    continue
                said = _elsewhere(own, host)
                said = said or without_number(manifest, own.stem, own.subdomain, host)
                if said is None and own.unnamed and host.partition(".")[0] in own.hosts:
                    found = f"{shown(value)}: enableDNSHostnames is false, so no pod has a name"
                    remedy = "write enableDNSHostnames: true under spec.network"
                    yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)
                if said is not None:
                    first = min(own.hosts)
                    found = f"{shown(value)}: {said}"
                    remedy = f"write {first}.{own.subdomain}" if own.subdomain else f"use {first}"
                    service = host.partition(".")[2].partition(".")[0]
                    if manifest.kind == "StatefulSet" and service not in {"", own.subdomain}:
                        remedy = f"write serviceName: {service}, or {first}.{own.subdomain}"
                    yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)


def _elsewhere(own: Names, host: str) -> str | None:
    first, _, rest = host.partition(".")
    if not re.fullmatch(rf"{re.escape(own.stem)}(-[a-z0-9-]+)?", first):
        return None
    service = rest.partition(".")[0]
    if first not in own.hosts:
        # The object's own name may be that of a Service.
        numbered = re.search(r"-[0-9]+$", first) is not None
        return f"no pod is called {first}" if numbered else None
    if own.subdomain is not None and service != own.subdomain:
        return f"its pods are in {own.subdomain}, so DNS has no such name"
    return None


def names_of(manifest: Manifest) -> Names | None:
    """Return the names that an object's pods have, where it gives them names that stay."""
    name = manifest.name
    if name is None or is_placeholder(name):
        return None
    kind = (manifest.group, manifest.kind)
    # Ordinals may begin with another number.
    if kind == ("apps", "StatefulSet") and is_absent(manifest.spec.get("ordinals")):
        count = number(manifest.spec.get("replicas", 1))
        hosts = [f"{name}-{index}" for index in indices(count)]
        return _known(hosts, text(manifest.spec.get("serviceName")), name)
    if kind == ("batch", "Job") and manifest.spec.get("completionMode") == "Indexed":
        count = number(manifest.spec.get("completions"))
        pod = manifest.pods[0].spec if manifest.pods else {}
        hosts = [f"{name}-{index}" for index in indices(count)]
        return _known(hosts, text(pod.get("subdomain")), name)
    if kind == ("jobset.x-k8s.io", "JobSet"):
        hosts = pods_of_set(manifest)
        network = mapping((set_of(manifest) or ((), {}))[1].get("network")) or {}
        given = network.get("subdomain")
        known = _known(hosts, name if is_absent(given) else text(given), name)
        off = network.get("enableDNSHostnames") is False
        return replace(known, unnamed=True) if known is not None and off else known
    return None


def _known(hosts: list[str], subdomain: str | None, stem: str) -> Names | None:
    unclear = subdomain is not None and is_placeholder(subdomain)
    return Names(frozenset(hosts), subdomain, stem) if hosts and not unclear else None


def places(container: Container, *, of_job: bool) -> Iterator[tuple[Path, str]]:
    """Return addresses; those in flags of a Job are judged with its other flags."""
    for path, name, value in () if of_job else launcher_flags(container):
        if name in _FLAGS:
            yield path, value
    for each in container.variables:
        if each.name in _VARIABLES and each.value is not None:
            yield (*container.path, "env", each.index, "value"), each.value


def alone(manifest: Manifest) -> Iterator[Finding]:
    """Refuse ranks that meet at their own pod, and warn of a launcher that is told of one node.

    torch/distributed/run.py: --nnodes is 1 where nothing is said, and MASTER_ADDR is then read by
    nobody; at localhost each node waits for the others.
    """
    # The operators of Kubeflow tell the launcher how many nodes there are.
    told = manifest.group in {"kubeflow.org", "trainer.kubeflow.org", "ray.io"}
    own = names_of(manifest)
    # Several jobs of a set have several first pods.
    named = own is not None and own.subdomain and len(manifest.pods) == 1 and not own.unnamed
    first = f": {min(own.hosts)}.{own.subdomain}" if own is not None and named else ""
    for pod in manifest.pods if not told else ():
        for container in pod.containers if (pod.replicas or 1) > 1 else ():
            if container.is_init or not container.has_launcher:
                continue
            flags = {name: path for path, name, _ in launcher_flags(container)}
            address = [each for each in container.variables if each.name == "MASTER_ADDR"]
            for each in address:
                if each.value in _LOOP and "standalone" not in flags:
                    found = f"{shown(each.value)}: each pod waits at itself, and none meets another"
                    path: Path = (*container.path, "env", each.index, "value")
                    remedy = f"name the first pod by its headless Service{first}"
                    yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)
            known = any(each.name.startswith("PET_") for each in container.variables)
            said = flags.keys() & {"nnodes", "standalone", "rdzv-endpoint", "rdzv-id"}
            if address and not said and not known and "$@" not in container.line:
                found = (
                    f"{pod.replicas} pods, and the launcher is told of one node: each trains alone"
                )
                path = (*container.path, "command")
                remedy = f"add --nnodes={pod.replicas}, --node-rank and --master-addr"
                yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy, Level.WARNING)


def counted(manifest: Manifest) -> Iterator[Finding]:
    """Require of a launcher as many nodes as a StatefulSet or a group has pods.

    LeaderWorkerSet, API reference, size; Volcano, tasks[].replicas: `--nnodes` waits for that many.
    """
    total = _group_size(manifest)
    for pod in manifest.pods if total else ():
        for container in pod.containers:
            for path, name, value in launcher_flags(container):
                nodes = number(value) if name == "nnodes" and not container.is_init else None
                if not nodes or not total or nodes in {1, total}:
                    continue
                few = "the launcher waits for ever" if nodes > total else "others have no place"
                found = f"--nnodes {nodes}, and {total} pods: {few}"
                # Several groups of ranks, each with an address of its own, are possible.
                level = Level.WARNING if total % nodes == 0 else Level.ERROR
                remedy = f"write {total}, or change the pods"
                yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy, level)


def _group_size(manifest: Manifest) -> int | None:
    if manifest.kind == "LeaderWorkerSet":
        return number((mapping(manifest.spec.get("leaderWorkerTemplate")) or {}).get("size", 1))
    if (manifest.group, manifest.kind) == ("batch.volcano.sh", "Job"):
        # Tasks without a launcher, such as a master that only prepares, are no nodes.
        launching = [pod for pod in manifest.pods if any(c.has_launcher for c in pod.containers)]
        return sum(1 if pod.replicas is None else pod.replicas for pod in launching)
    if manifest.kind == "StatefulSet":
        return number(manifest.spec.get("replicas", 1))
    return None


def made_in_order(manifest: Manifest) -> Iterator[Finding]:
    """Warn of ranks of a StatefulSet that are made only when the one before is ready.

    Kubernetes, "StatefulSets", podManagementPolicy OrderedReady, the default: the second pod waits
    for the first one's probe, and the first for the second one's rank.
    """
    policy = manifest.spec.get("podManagementPolicy")
    ordered = is_absent(policy) or policy == "OrderedReady"
    if manifest.kind != "StatefulSet" or not ordered:
        return
    for pod in manifest.pods if (number(manifest.spec.get("replicas")) or 1) > 1 else ():
        for container in pod.containers:
            if _is_rank(container) and not is_absent(container.body.get("readinessProbe")):
                found = "each pod is made when the one before is ready, and ranks wait for all"
                path = ("spec", "podManagementPolicy")
                remedy = "write podManagementPolicy: Parallel"
                yield manifest.find(Code.RANKS_WAIT, path, found, remedy, Level.WARNING)


def _is_rank(container: Container) -> bool:
    flags = {name: value for _, name, value in launcher_flags(container)}
    return container.has_launcher and flags.get("nnodes") != "1" and "standalone" not in flags


def unready_names(together: ManifestSet) -> Iterator[Found]:
    """Warn of a headless Service that hides the pods that wait for each other's names.

    Kubernetes, Service API reference, publishNotReadyAddresses: DNS has a pod's name when it is
    ready, which it is not before its init containers end or its readiness probe succeeds.
    """
    for service in together.of("Service"):
        headless = service.spec.get("clusterIP") == "None"
        selector = mapping(service.spec.get("selector")) or {}
        if not headless or service.spec.get("publishNotReadyAddresses") is True or not selector:
            continue
        for manifest, pod in pods_beside(service, together):
            if (pod.replicas or 1) < 2 or not selects(selector, manifest, pod):  # noqa: PLR2004 -- two pods wait for each other
                continue
            said = _waits(service, pod.containers)
            if said is not None:
                found = f"{manifest.title} {said}, and its pods have names here only when ready"
                path = ("spec", "publishNotReadyAddresses")
                remedy = "write publishNotReadyAddresses: true"
                finding = service.find(Code.RANKS_WAIT, path, found, remedy, Level.WARNING)
                yield service, finding
                break


def _waits(service: Manifest, containers: list[Container]) -> str | None:
    """Say how the pods of a Service wait for its names before they are ready."""
    name = service.name or ""
    for each in containers:
        # What is restarted beside the others is a companion.
        first = each.is_init and each.body.get("restartPolicy") != "Always"
        mine = re.search(rf"[\w-]-[0-9]+\.{re.escape(name)}\b", each.line) is not None
        if first and mine and _WAITS_FOR_NAMES.search(each.line):
            return "waits for these names in an init container"
        by_name = any(f".{name}" in value for _, value in places(each, of_job=False))
        if not each.is_init and _is_rank(each) and by_name and "readinessProbe" in each.body:
            return "has a readiness probe, and its ranks meet by these names"
    return None


def no_numbers(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a pod's whole name as the number of its node.

    Kubernetes, "StatefulSet Basics", stable network identity: the number is what follows the last
    dash; torch/distributed/run.py, --node-rank: a whole number.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if not any(each in container.line for each in ("HOSTNAME", "POD_NAME", "hostname")):
                continue
            renamed = _RENAMED.search(container.line)
            for path, name, value in launcher_flags(container):
                held = renamed is not None and value in {"$NODE_RANK", "${NODE_RANK}"}
                if name == "node-rank" and (_WHOLE_NAME.fullmatch(value) or held):
                    found = f"{shown(value)} is the pod's whole name, and no number"
                    remedy = "cut it: ${HOSTNAME##*-}"
                    yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)
