"""Rules over where the ranks of a Job meet: an address at all, of this Job, that DNS knows."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.values import is_placeholder, items, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_SET_BY_OPERATORS = re.compile(r"\$\((?P<name>RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|NODE_RANK)\)")
_PLACES = ("rdzv-endpoint", "master-addr")
_SHELL = re.compile(r"(\S*/)?(ba|da|k|z|a)?sh")
_OF_AN_INDEX = re.compile(
    r"(?P<job>[a-z0-9][a-z0-9-]*)-(?P<index>[0-9]+)\.(?P<service>[a-z0-9-]+)(\..+)?"
)
_PORT = re.compile(r":[0-9]+$")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def meeting(manifest: Manifest) -> Iterator[Finding]:
    """Require of a Job's launcher a place to meet, which is the first pod of this Job.

    torch/distributed/run.py: without one each node meets itself at 127.0.0.1; Kubernetes, "Jobs",
    completion mode, and "DNS for Services and Pods": pods are JOB-INDEX.SUBDOMAIN.
    """
    together = number(manifest.spec.get("parallelism"))
    job = (manifest.group, manifest.kind) == ("batch", "Job")
    for pod in manifest.pods if job and together and together > 1 else ():
        for container in pod.containers:
            if container.is_init or not container.has_launcher:
                continue
            flags = {name: (path, value) for path, name, value in launcher_flags(container)}
            told = any(each.name == "MASTER_ADDR" for each in container.variables)
            if "standalone" in flags and told:
                found = f"--standalone, and a MASTER_ADDR for {together} pods: each trains alone"
                remedy = f"write --nnodes={together} --node_rank=$JOB_COMPLETION_INDEX "
                remedy += "--master_addr=$MASTER_ADDR"
                path = flags["standalone"][0]
                yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy, Level.WARNING)
            if "nnodes" not in flags or number(flags["nnodes"][1]) in {None, 1}:
                continue
            yield from _unset(container, flags)
            places = [flags[each] for each in _PLACES if each in flags]
            if not places and not _may_be_set(container) and "standalone" not in flags:
                found = "several nodes and no address to meet at: each waits at its own 127.0.0.1"
                remedy = "add --rdzv-backend=c10d and --rdzv-endpoint with the first pod's name"
                yield Finding(Code.RENDEZVOUS_FLAG, flags["nnodes"][0], found, remedy)
            subdomain = text(pod.spec.get("subdomain"))
            # Fewer pods than nodes join those of another Job.
            all_here = number(flags["nnodes"][1]) == together
            for path, value in places if all_here else ():
                said = _elsewhere(manifest, subdomain, value.rpartition(":")[0] or value)
                if said is not None:
                    found, remedy = f"{shown(value)}: {said}", _remedy(manifest, subdomain, value)
                    yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)


def variables(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a variable that names a pod of another Job, where all ranks are in this one.

    As `meeting`: an Indexed Job's pods are JOB-INDEX.SUBDOMAIN.
    """
    together = number(manifest.spec.get("parallelism"))
    job = (manifest.group, manifest.kind) == ("batch", "Job") and manifest.name is not None
    for pod in (
        manifest.pods if job and together and not is_placeholder(manifest.name or "") else ()
    ):
        for container in pod.containers:
            nodes = [number(v) for _, flag, v in launcher_flags(container) if flag == "nnodes"]
            for each in container.variables if nodes == [together] and together != 1 else ():
                match = _OF_AN_INDEX.fullmatch(_PORT.sub("", each.value or ""))
                if each.name == "MASTER_ADDR" and match and match["job"] != manifest.name:
                    other = f"{match['job']}-{match['index']}"
                    found = f"{shown(each.value)}: {other} is no pod of this Job"
                    path: Path = (*container.path, "env", each.index, "value")
                    remedy = f"write {manifest.name}-0.{match['service']}"
                    yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)


def _elsewhere(manifest: Manifest, subdomain: str | None, host: str) -> str | None:
    match, job = _OF_AN_INDEX.fullmatch(host), manifest.name
    if job is None or is_placeholder(job):
        return None
    if match is None:
        return without_number(manifest, job, subdomain, host)
    first = f"{match['job']}-{match['index']}"
    if match["job"] != job:
        return f"{first} is no pod of this Job"
    count = number(manifest.spec.get("completions"))
    if count is not None and int(match["index"]) >= count:
        return f"no pod is called {first}"
    if subdomain != match["service"] and not is_placeholder(subdomain or ""):
        given = "no subdomain" if subdomain is None else f"subdomain {subdomain}"
        return f"its pods have {given}, so DNS has no such name"
    return None


def without_number(manifest: Manifest, stem: str, subdomain: str | None, host: str) -> str | None:
    """Say that a name below the Service of an object's pods has no number, and so is no pod's.

    Kubernetes, "DNS for Services and Pods": what is not a pod's hostname before its subdomain may
    be a Service before its namespace.
    """
    first, *rest = host.split(".")
    if subdomain is None or rest[:1] != [subdomain] or rest[1:2] == ["svc"]:
        return None
    own = manifest.namespace
    a_service = own == subdomain or (own is None and first == subdomain)
    named = re.fullmatch(rf"{re.escape(stem)}(-[a-z0-9-]*[a-z])?", first) is not None
    return f"no pod is called {first}" if named and not a_service else None


def _remedy(manifest: Manifest, subdomain: str | None, value: str) -> str:
    """Say what to write where: the address has one name of a Service, and the pods may another."""
    service = value.partition(":")[0].split(".")[1]
    if subdomain == service:
        return f"write {manifest.name}-0.{service}"
    match = _OF_AN_INDEX.fullmatch(value.partition(":")[0])
    if match is not None and match["job"] != manifest.name:
        there = f"write {manifest.name}-0.{subdomain or service}"
        return there if subdomain else f"{there}, and subdomain: {service} in the pods"
    there = f"write subdomain: {service} in the pods, which is to be a headless Service"
    usable = subdomain is not None and _LABEL.fullmatch(subdomain) is not None
    return f"{there}, or {manifest.name}-0.{subdomain}" if usable else there


def _unset(container: Container, flags: "dict[str, tuple[Path, str]]") -> Iterator[Finding]:
    known = {each.name for each in container.variables}
    shell = bool(container.words) and _SHELL.fullmatch(container.words[0][1]) is not None
    for path, value in flags.values() if not shell and not container.body.get("envFrom") else ():
        match = _SET_BY_OPERATORS.search(value)
        if match is not None and match["name"] not in known:
            found = f"{shown(value)}: nothing sets {match['name']} in the pods of a Job"
            remedy = "set it in env: the training operator does so in a PyTorchJob alone"
            yield Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)


def _may_be_set(container: Container) -> bool:
    own = any(each.name.startswith(("PET_", "MASTER_")) for each in container.variables)
    return own or bool(items(container.body.get("envFrom"))) or "$" in container.line
