"""Rules over torchrun's rendezvous flags: whether all nodes of a job meet at one place."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.job_launches import OTHER_BACKEND
from megatron_eks.rules.jobs.rank_names import names_of
from megatron_eks.rules.jobs.rendezvous import gpus_of, in_command, launcher_flags, may_launch
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_HOST_FLAGS = ("rdzv-endpoint", "master-addr")
LAST_PORT = 65535
_BACKENDS = ("c10d", "etcd", "etcd-v2", "static")
# What carries the collectives, or begins the address of a store.
_NO_MEETING = frozenset({"env", "file", "gloo", "mpi", "nccl", "tcp", "torch", "ucc", "xccl"})
_CLOSE = 0.6
# The pod itself, by the loop or by its own name or address.
_LOOP = re.compile(r"localhost|127\.[0-9.]+|0\.0\.0\.0|\[?::1?\]?", re.IGNORECASE)
# A part of it, such as a StatefulSet's name, may be that of the first pod.
_OWN_NAME = re.compile(r"\$[({]?(HOSTNAME|POD_NAME|POD_IP)[)}]?|\$\(hostname\)?|`hostname`?|POD_IP")
_CUT_NAME = re.compile(r"hostname\s*(-[a-zA-Z]\s*)*\|")
_CUT_AT_DASH = re.compile(r"\$\{(HOSTNAME|POD_NAME)##\*-\}")
_OWN_FIELDS = frozenset(
    {"metadata.name", "metadata.uid", "status.podIP", "status.podIPs", "status.hostIP"}
)
# What a shell of each pod computes for itself.
_DRAWN = re.compile(
    r"RANDOM|\$\(date|`date|uuidgen|/uuid\b|\$\(hostname|`hostname|\$\$|\$[({]?HOSTNAME(?![%#:/])"
    r"|\$[({]?((NODE_|GROUP_)?RANK|JOB_COMPLETION_INDEX)\b|mktemp|EPOCHSECONDS|openssl rand"
)
_NEEDS_SHELL = re.compile(r"\$\((date|hostname|cat|uuidgen|openssl)\b|`|RANDOM|\$\$|\$[A-Z{]")
_ALONE = frozenset({"Job", "StatefulSet"})
_OF_GROUPS = frozenset({"JobSet", "LeaderWorkerSet"})
_SHELL = re.compile(r"(\S*/)?(ba|da|k|z|a)?sh")
_NAME = re.compile(r"\$[({]?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[)}]?")
# Other schedulers, and torchrun itself for its workers, set these.
_FOREIGN = re.compile(r"\$[({]?(?P<name>SLURM_\w+|OMPI_\w+|LSB_\w+|PBS_\w+|LOCAL_RANK|GROUP_RANK)")
_REMOVE = "remove it: torchrun reads PET_ variables; another rendezvous goes into elasticPolicy"
_AT_MASTER = "remove it, or add --rdzv-endpoint=$(MASTER_ADDR):$(MASTER_PORT)"
_MASTER = "use $(MASTER_ADDR):$(MASTER_PORT), or no flag: torchrun reads PET_ variables"


@dataclass(frozen=True)
class Flag:
    """One flag of torchrun."""

    path: Path
    name: str
    value: str

    def wrong(self, found: str, remedy: str = _REMOVE) -> Finding:
        """Say that it keeps the ranks from each other."""
        return Finding(Code.RENDEZVOUS_FLAG, self.path, found, remedy)


def rendezvous_flags(manifest: Manifest) -> Iterator[Finding]:
    """Refuse torchrun's rendezvous flags that differ from what the training operator starts.

    kubeflow/trainer v1.9.4, pkg/controller.v1/pytorch/envvar.go and elastic.go, and
    torch/distributed/run.py: a flag wins over PET_*, so one that says the same does no harm.
    """
    if manifest.pytorch_replicas is None:
        return
    for pod in manifest.pods:
        for container in pod.containers:
            if container.is_init or not may_launch(container):
                continue
            flags = [Flag(*each) for each in launcher_flags(container)]
            for flag in flags:
                yield from _of_operator(manifest, pod, flag, flags)
                if flag.name == "nproc-per-node":
                    yield from _other_count(manifest, container, flag)
            yield from _without_endpoint(manifest, flags)


def one_place(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a rendezvous that each pod of a job finds in itself, or by a name of its own.

    PyTorch, "torchrun (Elastic Launch)": rdzv_endpoint is one host that all nodes reach, rdzv_id
    one text that they share; a pod's localhost is its own.
    """
    if _together(manifest) < 2:  # noqa: PLR2004 -- two nodes meet
        return
    for pod in manifest.pods:
        # Its one master may well be called localhost by itself, if not by the others.
        alone = len(manifest.pods) > 1 and pod.replicas in {None, 1}
        others = [each for other in manifest.pods if other is not pod for each in _flags(other)]
        for container in pod.containers:
            flags = [] if container.is_init else [Flag(*each) for each in launcher_flags(container)]
            nodes = next((flag.value for flag in flags if flag.name == "nnodes"), "")
            # Jobs of a set, and groups, may be runs of their own.
            several = (number(nodes) or 1) > 1 or manifest.kind not in _OF_GROUPS
            launches = container.has_launcher and number(nodes) != 1 and several
            for flag in flags if launches else ():
                same = any((flag.name, flag.value) == (each.name, each.value) for each in others)
                if flag.name in _HOST_FLAGS and (same or not alone):
                    yield from _own_host(manifest, pod, container, flag)
                elif flag.name == "rdzv-id":
                    yield from _own_id(container, flag)
                foreign = _FOREIGN.search(flag.value)
                if foreign and not _is_set(container, foreign["name"]):
                    found = f"--{flag.name} {shown(flag.value)}: nothing in a pod sets "
                    yield flag.wrong(found + foreign["name"], "use what this job's pods have")


def _flags(pod: Pod) -> Iterator[Flag]:
    for container in pod.containers:
        yield from (Flag(*each) for each in launcher_flags(container))


def _together(manifest: Manifest) -> int:
    """Return how many pods work together, as far as the object says."""
    if manifest.pytorch_replicas is None and manifest.kind not in _OF_GROUPS | _ALONE:
        return 0
    return sum(1 if pod.replicas is None else pod.replicas for pod in manifest.pods)


def _of_operator(
    manifest: Manifest, pod: Pod, flag: Flag, flags: "list[Flag]"
) -> Iterator[Finding]:
    nodes = _together(manifest)
    processes = number(manifest.spec.get("nprocPerNode")) or 1
    told = f"--{flag.name} {shown(flag.value)}"
    if flag.name == "standalone" and nodes > 1:
        yield flag.wrong("--standalone: every node trains alone")
    elif flag.name == "nnodes" and "WORLD_SIZE" in flag.value and processes > 1:
        yield flag.wrong(f"{told}: WORLD_SIZE counts processes, {processes} for each node")
    elif flag.name == "nnodes" and (said := _other_nodes(manifest, flag.value, nodes)):
        yield flag.wrong(f"{told} overrides what the training operator sets: {said}")
    elif flag.name == "node-rank" and (said := _other_rank(manifest, pod, flag, flags)):
        yield flag.wrong(f"{told} overrides what the training operator sets for each pod{said}")
    elif flag.name == "rdzv-backend" and not _may_be(flag.value, _BACKENDS):
        found = f"{told}: torchrun has no such rendezvous"
        yield replace(flag.wrong(found, "use c10d"), level=of_backend(flag.value))
    elif flag.name == "master-port" and not 0 < (number(flag.value) or 1) <= LAST_PORT:
        yield flag.wrong(f"{told}: no port has this number", "remove it: the operator sets one")
    elif flag.name in _HOST_FLAGS and (said := other_host(manifest, flag.value)):
        yield flag.wrong(f"{told}: {said}", _MASTER)
    elif flag.name == "master-addr" and (said := _unserved(manifest, flag.value, flags)):
        yield flag.wrong(f"{told}: {said}", "use $(MASTER_ADDR), or no flag")


def of_backend(value: str) -> Level:
    """Tell how sure it is that torchrun has no rendezvous of this name.

    torch/distributed/elastic/rendezvous/registry.py, _register_out_of_tree_handlers: packages of
    the image may bring others (torchrun.handlers).
    """
    said = value.lower()
    mistaken = said in _NO_MEETING or get_close_matches(said, _BACKENDS, 1, _CLOSE)
    return Level.ERROR if mistaken else Level.WARNING


def _other_nodes(manifest: Manifest, value: str, nodes: int) -> str | None:
    """Say what is wrong about a number of nodes, or bounds of it."""
    low, _, high = value.partition(":")
    least, most = number(low), number(high or low)
    policy = mapping(manifest.spec.get("elasticPolicy")) or {}
    elastic = bool(policy)
    # An autoscaler may make any number of them.
    scaled = bool(items(policy.get("metrics"))) and (number(policy.get("maxReplicas")) or 0)
    pods = f"{nodes} pod{'' if nodes == 1 else 's'}"
    if least is None or most is None or least <= nodes <= most or least <= scaled or not nodes:
        return None
    if elastic and least <= nodes:
        return f"the job has {pods}, and the others wait"
    return f"the job has {pods}" + (
        ", and torchrun waits for more" if least > nodes else ", and some have no place"
    )


def _other_rank(manifest: Manifest, pod: Pod, flag: Flag, flags: "list[Flag]") -> str | None:
    """Say what is wrong about a rank; only a static rendezvous reads it."""
    backend = next((each.value for each in flags if each.name == "rdzv-backend"), "static")
    given, types = number(flag.value), manifest.pytorch_replicas or {}
    if _together(manifest) == 1 or backend != "static":
        return None
    cut = _CUT_AT_DASH.search(flag.value) or _is_cut(pod, flag)
    if cut and {"Master", "Worker"} <= types.keys():
        return ": names of Master and Worker are each counted from 0, so two are node 0"
    if given is None:
        return None
    wanted = 0 if "Master" in pod.path else 1
    if pod.replicas in {None, 1}:
        return None if given == wanted else f": this pod is node {wanted}"
    return f": it is the same in each of {pod.replicas} pods"


def _is_cut(pod: Pod, flag: Flag) -> bool:
    """Tell whether a rank is a variable that a shell fills with the end of the pod's name."""
    match = _NAME.fullmatch(flag.value)
    return match is not None and any(
        re.search(rf"(?<![\w-]){match['name']}=[\"']?{_CUT_AT_DASH.pattern}", each.line)
        for each in pod.containers
    )


def other_host(manifest: Manifest, value: str) -> str | None:
    """Say that a host is a pod of this job that does not exist, or not its first one."""
    host = value.partition(":")[0].partition(".")[0]
    types = manifest.pytorch_replicas or {}
    name = manifest.name
    if name is None or is_placeholder(name) or is_placeholder(host) or "$" in host:
        return None
    ending = re.fullmatch(rf"{re.escape(name)}-(master|worker)(-[0-9]+)?", host)
    elsewhere = re.fullmatch(r"(?P<job>.+)-(master|worker)-[0-9]+", host)
    if ending is None:
        # Another job's pod, or the name before the job was renamed.
        of_other = elsewhere is not None and elsewhere["job"] != name
        return f"{host} is no pod of this job" if of_other else None
    kind = ending[1].capitalize()
    count = number((mapping(types.get(kind)) or {}).get("replicas")) or 1
    index = number((ending[2] or "").removeprefix("-"))
    if kind not in types:
        return f"the job has no {kind}"
    if index is None or index >= count:
        return f"the job has no pod {host}"
    return None


def _unserved(manifest: Manifest, value: str, flags: "list[Flag]") -> str | None:
    """Say that a host is a pod of this job which the operator does not make node 0.

    torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py: node 0 alone serves the store.
    """
    given = {each.name: each.value for each in flags}
    static = given.get("rdzv-backend", "static") == "static" and "rdzv-endpoint" not in given
    elastic = not is_absent(manifest.spec.get("elasticPolicy"))
    if not static or elastic or "node-rank" in given or _together(manifest) < 2:  # noqa: PLR2004 -- two nodes meet
        return None
    types, name = manifest.pytorch_replicas or {}, re.escape(manifest.name or "?")
    match = re.fullmatch(rf"{name}-(master|worker)-([0-9]+)(\..*)?", value.partition(":")[0])
    first = "master" if "Master" in types else "worker"
    if match is None or (match[1], match[2]) == (first, "0"):
        return None
    return "the pod of node 0 alone listens, and this is another one"


def _other_count(manifest: Manifest, container: Container, flag: Flag) -> Iterator[Finding]:
    """Judge a number of processes by the operator's field, or by the GPUs where it is not set."""
    given, gpus = number(flag.value), gpus_of(manifest)
    elastic = mapping(manifest.spec.get("elasticPolicy")) or {}
    wanted = number(manifest.spec.get("nprocPerNode")) or number(elastic.get("nProcPerNode"))
    if given is None:
        return
    if wanted:
        if given != wanted:
            found = f"--nproc-per-node {given} overrides nprocPerNode, {wanted}"
            yield flag.wrong(found, "remove it: torchrun reads PET_NPROC_PER_NODE")
    elif gpus and given != gpus and not OTHER_BACKEND.search(container.line):
        ranks = f"{given} process{'' if given == 1 else 'es'}"
        found = f"{ranks}, and the container has {gpus} GPU{'s' * (gpus > 1)}: "
        found += (
            "the last ones end with 'invalid device ordinal'" if given > gpus else "others idle"
        )
        remedy = f'write {gpus}, or remove it and set nprocPerNode: "{gpus}"'
        level = Level.ERROR if given > gpus else Level.WARNING
        yield Finding(Code.PROCESSES_PER_NODE, flag.path, found, remedy, level)


def _without_endpoint(manifest: Manifest, flags: "list[Flag]") -> Iterator[Finding]:
    """Refuse c10d without a host: without elasticPolicy the operator names none for it."""
    backend = next((each for each in flags if each.name == "rdzv-backend"), None)
    named = any(each.name == "rdzv-endpoint" for each in flags)
    elastic = not is_absent(manifest.spec.get("elasticPolicy"))
    if backend is None or named or elastic or _together(manifest) < 2:  # noqa: PLR2004 -- two nodes meet
        return
    if backend.value in {"c10d", "etcd", "etcd-v2"} and not _endpoint_set(manifest):
        found = f"--rdzv-backend {shown(backend.value)} without --rdzv-endpoint: each pod waits "
        yield backend.wrong(found + "at its own localhost", _AT_MASTER)


def _endpoint_set(manifest: Manifest) -> bool:
    return any(
        each.name == "PET_RDZV_ENDPOINT" or items(container.body.get("envFrom"))
        for pod in manifest.pods
        for container in pod.containers
        for each in container.variables
    )


def _own_host(manifest: Manifest, pod: Pod, container: Container, flag: Flag) -> Iterator[Finding]:
    host = flag.value if flag.value.startswith("[") else flag.value.rpartition(":")[0] or flag.value
    name = _NAME.fullmatch(host)
    own = [each.value for each in container.variables if name and each.name == name["name"]]
    of_variable = name is not None and name["name"] == "MASTER_ADDR" and own and own[0] is not None
    host = _assigned(container, host)
    loop = _LOOP.fullmatch(host) is not None
    # There it is the variable that is wrong, and a rule of its own says so.
    if loop and of_variable and manifest.pytorch_replicas is None and (pod.replicas or 1) > 1:
        return
    cut = _CUT_NAME.search(container.line) is not None
    if loop or (_OWN_NAME.fullmatch(host) and not cut):
        found = (
            f"--{flag.name} {shown(flag.value)}: each pod waits at itself, and none meets another"
        )
        yield flag.wrong(found, _one_host(manifest, container))


def _one_host(manifest: Manifest, container: Container) -> str:
    """Say which host all pods of a job know by one name."""
    types, name = manifest.pytorch_replicas, manifest.name
    # A name that the API server makes up, or a template, has no pod that could be called here.
    named = name is not None and not is_placeholder(name)
    address = [each.value for each in container.variables if each.name == "MASTER_ADDR"]
    if "Master" in (types or {}) or (address and not _LOOP.fullmatch(address[0] or "")):
        given = in_command(container, "MASTER_ADDR")
        return f"name one host for all pods: {given}, or the first pod's name"
    if types is not None:
        return f"write {name}-worker-0" if named else "name the first pod"
    own = names_of(manifest)
    # Several jobs of a set have several first pods.
    if own is not None and own.subdomain and len(manifest.pods) == 1:
        return f"write {min(own.hosts)}.{own.subdomain}"
    return "name the first pod by its headless Service"


def _own_id(container: Container, flag: Flag) -> Iterator[Finding]:
    words = [word for _, word in container.words]
    in_shell = bool(words) and _SHELL.fullmatch(words[0]) is not None
    value = _assigned(container, flag.value)
    fields = {each for name in _NAME.finditer(flag.value) for each in _fields(container, name)}
    cut = "hostname" in value and _CUT_NAME.search(container.line) is not None
    drawn = _DRAWN.search(value) and not cut and (in_shell or not _NEEDS_SHELL.search(value))
    if drawn or not _OWN_FIELDS.isdisjoint(fields):
        found = f"--rdzv-id {shown(flag.value)} is another one in every pod: none meets another"
        yield flag.wrong(found, "write one text for all pods, such as the job's name")


def _assigned(container: Container, value: str) -> str:
    """Return what a variable of the container or of its shell's line holds, if one text is it."""
    match = _NAME.fullmatch(value)
    if match is None:
        return value
    name = match["name"]
    for each in container.variables:
        if each.name == name:
            own = not _OWN_FIELDS.isdisjoint(_fields(container, match))
            return "POD_IP" if own else each.value or value
    found = re.search(rf"(?:^|[\s;&])(?:export )?{name}=(\"[^\"]*\"|[^\s;&]+)", container.line)
    return found[1].strip('"') if found else value


def _fields(container: Container, match: "re.Match[str]") -> Iterator[str]:
    for value in items(container.body.get("env")) or []:
        entry: Mapping[str, object] = mapping(value) or {}
        if entry.get("name") == match["name"]:
            source = mapping((mapping(value) or {}).get("valueFrom")) or {}
            yield text((mapping(source.get("fieldRef")) or {}).get("fieldPath")) or ""


def _is_set(container: Container, name: str) -> bool:
    own = any(each.name == name for each in container.variables)
    return own or bool(container.body.get("envFrom")) or f"{name}=" in container.line


def _may_be(value: str, known: "tuple[str, ...]") -> bool:
    return value in known or "$" in value or is_placeholder(value) or not value
