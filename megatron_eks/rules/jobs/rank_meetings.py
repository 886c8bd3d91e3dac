"""Rules over ranks that meet by what nothing gives them: numbers, names, namespaces, backends."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.launch_flags import LAST_PORT, of_backend
from megatron_eks.rules.jobs.rank_names import PORT, names_of, places
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.jobs.replicated_jobs import replicated_jobs
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    number,
    shown,
    text,
)
from megatron_eks.rules.workloads import Container, Manifest, Pod

# No operator tells the pods of these what a launcher asks for.
_UNTOLD = frozenset({("batch", "Job"), ("jobset.x-k8s.io", "JobSet"), ("apps", "StatefulSet")})
_TOLD_ELSEWHERE = re.compile(
    r"\$\{?(?P<name>(PET_)?(NODE_RANK|MASTER_ADDR|MASTER_PORT|NNODES)|RANK|WORLD_SIZE)\}?"
    r"(:\$?\{?\w+\}?)?"
)
_SOURCED = re.compile(r"(^|[\s;&])(source|\.|eval)\s|\bread\b")
_CUT = re.compile(r"\$\{(?P<name>HOSTNAME|POD_NAME)(?P<cut>%%?-\*)\}")
_BACKENDS = frozenset({"c10d", "etcd", "etcd-v2", "static"})
_NAMESPACE = 2
_INDEX = r"\$[({]?JOB_COMPLETION_INDEX[)}]?"
_CUT_OUT = r"\$\{(HOSTNAME|POD_NAME)##\*-\}"
_BY_INDEX = re.compile(rf"{_INDEX}|{_CUT_OUT}")
_INDEX_FIELDS = ("job-completion-index", "apps.kubernetes.io/pod-index")
_NAMED = re.compile(r"\$[({]?(?P<name>[A-Za-z_]\w*)[)}]?")


def untold(manifest: Manifest) -> Iterator[Finding]:
    """Refuse in a Job, a set of them or a StatefulSet the variables of the training operator.

    kubeflow/trainer v1.9.4, envvar.go, sets them in a PyTorchJob; in a Job there is
    JOB_COMPLETION_INDEX, and a StatefulSet's pod has its number in its name.
    """
    for pod, container in _ranks(manifest):
        known = {each.name for each in container.variables}
        if container.body.get("envFrom") or _SOURCED.search(container.line):
            continue
        for path, flag, value in launcher_flags(container):
            match = _TOLD_ELSEWHERE.fullmatch(value)
            name = match["name"] if match else ""
            if not name or name in known or re.search(rf"\b{name}=", container.line):
                continue
            found = f"--{flag} {shown(value)}: nothing sets {name} in the pods of a {manifest.kind}"
            yield Finding(Code.RENDEZVOUS_FLAG, path, found, _instead(manifest, pod, flag, name))


def _instead(manifest: Manifest, pod: Pod, flag: str, name: str) -> str:
    if flag == "node-rank":
        by_name = "cut it from the pod's name: ${HOSTNAME##*-}"
        return by_name if manifest.kind == "StatefulSet" else "write $JOB_COMPLETION_INDEX"
    if flag == "nnodes":
        return f"write {pod.replicas}"
    return f"set {name} in env, or write the first pod's name"


def cut_wrongly(manifest: Manifest) -> Iterator[Finding]:
    """Refuse as a node's number the part of its pod's name before the dash.

    POSIX, "Shell Command Language", 2.6.2: `%` cuts off the end, and `##` the beginning;
    Kubernetes, "StatefulSet Basics": the number is what follows the last dash.
    """
    for _, container in _ranks(manifest):
        for path, flag, value in launcher_flags(container):
            name = value.strip("${}") if value.startswith("$") else ""
            own = re.search(rf"\b{re.escape(name)}=[\"']?({_CUT.pattern})", container.line)
            match = _CUT.fullmatch(value) or (own if name else None)
            if flag == "node-rank" and match is not None:
                found = f"{shown(match['cut'])} cuts off the number, and leaves the name"
                remedy = f"write ${{{match['name']}##*-}}"
                yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)


def same_numbers(manifest: Manifest) -> Iterator[Finding]:
    """Require of the tasks of one job another number for each node.

    torch/distributed/run.py, --node-rank, static rendezvous: a number twice is one node twice, and
    the launcher waits for the other.
    """
    if manifest.group not in {"batch.volcano.sh", "jobset.x-k8s.io"} or len(manifest.pods) < 2:  # noqa: PLR2004 -- two tasks
        return
    seen: dict[tuple[int, str], Path] = {}
    for pod in manifest.pods:
        for container in pod.containers:
            flags = {name: (path, value) for path, name, value in launcher_flags(container)}
            nodes, rank = (number(flags.get(each, ((), ""))[1]) for each in ("nnodes", "node-rank"))
            if rank is None or (nodes or 1) < 2:  # noqa: PLR2004 -- two nodes meet
                continue
            meets = flags.get("master-addr", ((), ""))[1]
            if (rank, meets) in seen or (pod.replicas or 1) > 1:
                many = f"each of {pod.replicas} pods" if (pod.replicas or 1) > 1 else "another task"
                found = f"--node-rank {rank}, and {many} is node {rank} too: the launcher waits "
                remedy = "write $RANK, which the plugin pytorch sets"
                if manifest.group == "jobset.x-k8s.io":
                    remedy = "take the label jobset.sigs.k8s.io/job-global-index"
                path = flags["node-rank"][0]
                yield Finding(Code.RENDEZVOUS_FLAG, path, f"{found}for another", remedy)
            seen[(rank, meets)] = flags["node-rank"][0]


def backends(manifest: Manifest) -> Iterator[Finding]:
    """Require of a launcher without an operator a rendezvous that torchrun has, and its endpoint.

    torch/distributed/run.py, get_rdzv_endpoint: --master-addr is read by the static one alone; the
    others meet at --rdzv-endpoint, or else each node at its own localhost.
    """
    for pod, container in _ranks(manifest):
        flags = {name: (path, value) for path, name, value in launcher_flags(container)}
        path, backend = flags.get("rdzv-backend", ((), ""))
        if not backend or "$" in backend or is_placeholder(backend):
            continue
        if backend not in _BACKENDS:
            found = f"--rdzv-backend {shown(backend)}: torchrun has no such rendezvous"
            remedy = "use c10d; the backend of the collectives is the program's own"
            yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy, of_backend(backend))
            continue
        told = any(each.name == "PET_RDZV_ENDPOINT" for each in container.variables)
        told = told or bool(container.body.get("envFrom")) or "standalone" in flags
        # A rule over Jobs says it where no address is given at all.
        if backend == "static" or "rdzv-endpoint" in flags or told or "master-addr" not in flags:
            continue
        if number(flags.get("nnodes", ((), ""))[1]) == 1:
            continue
        host, port = (flags.get(each, ((), ""))[1] for each in ("master-addr", "master-port"))
        found = f"{backend} does not read --master-addr: each of {pod.replicas} pods waits at its "
        remedy = f"write --rdzv-endpoint={host}:{port or 29400}, or remove --rdzv-backend"
        yield Finding(Code.RENDEZVOUS_FLAG, path, f"{found}own localhost", remedy)


def unindexed(manifest: Manifest) -> Iterator[Finding]:
    """Refuse the name of a pod of a Job whose pods have names by chance.

    Kubernetes, "Jobs", completion mode: only an Indexed Job calls its pods JOB-INDEX.
    """
    mode, name = manifest.spec.get("completionMode"), manifest.name
    if (manifest.group, manifest.kind) != ("batch", "Job") or not (
        is_absent(mode) or mode == "NonIndexed"
    ):
        return
    for _, container in _ranks(manifest):
        for path, value in places(container, of_job=False):
            host = PORT.sub("", value).partition(".")[0]
            if name and re.fullmatch(rf"{re.escape(name)}-[0-9]+", host):
                found = f"{shown(value)}: without an index a Job's pods have no such names"
                remedy = "add completionMode: Indexed"
                yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)


def namespaces(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an address of this object's pods in another namespace than its own.

    Kubernetes, "DNS for Services and Pods": NAME.SERVICE.NAMESPACE.svc; a PyTorchJob's pods have a
    Service each, NAME.NAMESPACE.svc.
    """
    own, name = manifest.namespace, manifest.name
    for pod in manifest.pods if own and name else ():
        for container in pod.containers:
            for path, value in places(container, of_job=False):
                parts = PORT.sub("", value).split(".")
                at = 1 if manifest.pytorch_replicas is not None else _NAMESPACE
                mine = re.fullmatch(rf"{re.escape(name or '')}-([a-z0-9-]+-)?[0-9]+", parts[0])
                there = parts[at] if mine and len(parts) > at else own
                # What is cut short may be a domain of its own.
                if len(parts) > at + 1 and parts[at + 1] != "svc":
                    continue
                if there != own and not is_placeholder(there or ""):
                    found = f"{shown(value)} is in namespace {there}, and these pods are in {own}: "
                    found += "DNS has no such name"
                    yield Finding(Code.RENDEZVOUS_FLAG, path, found, f"write {own} there")


def short_names(together: ManifestSet) -> Iterator[Found]:
    """Refuse a pod's name without its Service as the place where all meet.

    Kubernetes, "DNS for Services and Pods": a pod has a record below the headless Service that is
    its subdomain, and none by its name alone; only the pod itself knows that one.
    """
    for manifest in together.objects:
        # Of other kinds, and of variables, another rule asks for the Service's name.
        names = names_of(manifest) if manifest.kind == "Job" else None
        if names is None:
            continue
        for _, container in _ranks(manifest):
            for path, value in places(container, of_job=False):
                if names.subdomain is not None and "env" in path:
                    continue
                host = PORT.sub("", value)
                if host not in names.hosts or together.named(manifest, "Service", host):
                    continue
                found = f"{shown(value)} without a Service: only that pod itself knows the name"
                remedy = f"write {host}.{names.subdomain}"
                if names.subdomain is None:
                    remedy = "set subdomain to a headless Service, and write it behind the name"
                level = Level.ERROR if together.of("Service") else Level.WARNING
                yield manifest, Finding(Code.RENDEZVOUS_FLAG, path, found, remedy, level)


def first_pods(manifest: Manifest) -> Iterator[Finding]:
    """Require of ranks that are counted by their pods' numbers that they meet at the first one.

    torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py, next_rendezvous: node 0 alone
    serves the store, whatever the address is.
    """
    known = names_of(manifest)
    for pod, container in _ranks(manifest) if known is not None else ():
        flags = {name: (path, value) for path, name, value in launcher_flags(container)}
        static = flags.get("rdzv-backend", ((), "static"))[1] == "static"
        if not static or "rdzv-endpoint" in flags or "master-addr" not in flags:
            continue
        if not _is_index(container, flags.get("node-rank", ((), ""))[1]):
            continue
        path, value = _address(container, *flags["master-addr"])
        first = PORT.sub("", value).partition(".")[0]
        stem, _, index = first.rpartition("-")
        own = _job_of(manifest, pod)
        if known is not None and first in known.hosts and index != "0" and stem.startswith(own):
            found = f"{shown(value)} is node {index}, and node 0 alone listens: none meets another"
            remedy = f"write {value.replace(first, f'{stem}-0', 1)}"
            yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)


def _is_index(container: Container, rank: str) -> bool:
    """Tell whether a node's number is that of its pod, by itself or by a variable."""
    match = _NAMED.fullmatch(rank)
    if match is None or _BY_INDEX.fullmatch(rank):
        return _BY_INDEX.fullmatch(rank) is not None
    name = match["name"]
    for each in items(container.body.get("env")) or []:
        entry = mapping(each) or {}
        source = mapping((mapping(entry.get("valueFrom")) or {}).get("fieldRef")) or {}
        field, value = text(source.get("fieldPath")) or "", text(entry.get("value")) or ""
        if entry.get("name") == name:
            return _BY_INDEX.fullmatch(value) is not None or any(
                each in field for each in _INDEX_FIELDS
            )
    assigned = re.findall(rf"\b{name}=[\"']?([^\s;&|\"']*)", container.line)
    return len(assigned) == 1 and _BY_INDEX.fullmatch(assigned[0]) is not None


def _address(container: Container, path: Path, value: str) -> tuple[Path, str]:
    """Return an address, by the variable that holds it."""
    match = _NAMED.fullmatch(value)
    for each in container.variables if match is not None else ():
        set_again = re.search(rf"\b{each.name}=", container.line)
        if match and each.name == match["name"] and each.value and not set_again:
            return (*container.path, "env", each.index, "value"), each.value
    return path, value


def _job_of(manifest: Manifest, pod: Pod) -> str:
    """Return how the names of the pods begin that are counted together."""
    for job in replicated_jobs(manifest):
        if pod.path[1 : 1 + len(job.path)] == job.path:
            return f"{manifest.name}-{job.name}-"
    return manifest.name or ""


def ports(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a port for the ranks above the last one that there is.

    RFC 9293, "Header Format": a port is a number of 16 bits.
    """
    of_operator = manifest.pytorch_replicas is not None
    for pod in manifest.pods:
        for container in pod.containers:
            if not container.has_launcher:
                continue
            for path, value in _ports(container, of_operator=of_operator):
                if (number(value) or 0) > LAST_PORT:
                    found = f"port {value}: the last one is {LAST_PORT}, and the launcher stops"
                    yield Finding(Code.RENDEZVOUS_FLAG, path, found, "write 29500, or another one")


def _ports(container: Container, *, of_operator: bool) -> Iterator[tuple[Path, str]]:
    """Return the ports of a launcher; what an operator sets is judged by what it sets."""
    for path, flag, value in launcher_flags(container):
        if flag == "rdzv-endpoint":
            yield path, value.rpartition(":")[2]
        elif flag == "master-port" and not of_operator:
            yield path, value
    for each in container.variables if not of_operator else ():
        if each.name in {"MASTER_PORT", "PET_MASTER_PORT"}:
            yield (*container.path, "env", each.index, "value"), each.value or ""


def _ranks(manifest: Manifest) -> Iterator[tuple[Pod, Container]]:
    """Return the launchers in pods that no operator tells anything, and of which there are some."""
    if (manifest.group, manifest.kind) not in _UNTOLD:
        return
    for pod in manifest.pods:
        for container in pod.containers if (pod.replicas or 1) > 1 else ():
            if not container.is_init and container.has_launcher:
                yield pod, container
