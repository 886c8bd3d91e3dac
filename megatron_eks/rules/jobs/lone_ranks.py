"""Rule over ranks that are objects of their own: one pod or Job for each."""

from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, number
from megatron_eks.rules.workloads import Container, Manifest

_VARIABLES = {"MASTER_ADDR": "master-addr", "NODE_RANK": "node-rank"}
_LOOP = frozenset({"localhost", "127.0.0.1"})
_KINDS = frozenset({("", "Pod"), ("batch", "Job"), ("apps", "StatefulSet"), ("apps", "Deployment")})


@dataclass(frozen=True)
class _Rank:
    manifest: Manifest
    path: Path
    rank: int
    nodes: int


def ranks(together: ManifestSet) -> Iterator[Found]:
    """Require of ranks that meet at one address another number of each, below their count.

    torch/distributed/run.py, --node-rank, static rendezvous: a number twice is one node twice, and
    the launcher waits for the other.
    """
    groups: dict[tuple[object, ...], list[_Rank]] = {}
    for manifest in together.objects:
        if (manifest.group, manifest.kind) not in _KINDS:
            continue
        for pod in manifest.pods if len(manifest.pods) == 1 else ():
            # A Job that is Indexed, or of several pods, is judged by itself.
            if (pod.replicas or 1) != 1:
                continue
            for container in pod.containers:
                _take(manifest, container, groups)
    for group in groups.values():
        yield from _judged(group)


def _take(
    manifest: Manifest, container: Container, groups: "dict[tuple[object, ...], list[_Rank]]"
) -> None:
    if container.is_init or not container.has_launcher:
        return
    flags = {name: (path, value) for path, name, value in launcher_flags(container)}
    for each in container.variables:
        name = _VARIABLES.get(each.name)
        if name is not None and each.value is not None:
            path = (*container.path, "env", each.index, "value")
            written = flags[name][1] if name in flags else f"${each.name}"
            if written in {f"${each.name}", f"$({each.name})", f"${{{each.name}}}"}:
                flags[name] = (path, each.value)
    address = flags.get("master-addr", ((), ""))[1]
    path, written = flags.get("node-rank", ((), ""))
    rank, nodes = number(written), number(flags.get("nnodes", ((), ""))[1])
    if not address or address in _LOOP or is_placeholder(address) or rank is None:
        return
    # Runs of one node may all be node 0 of their own.
    if nodes is None or nodes < 2:  # noqa: PLR2004 -- two nodes meet
        return
    key = (manifest.file, manifest.namespace, address, flags.get("master-port", ((), ""))[1], nodes)
    groups.setdefault(key, []).append(_Rank(manifest, path, rank, nodes))


def _judged(group: list[_Rank]) -> Iterator[Found]:
    seen: dict[int, str] = {}
    for each in group:
        found = None
        if each.rank >= each.nodes:
            found = f"node {each.rank} of {each.nodes}, which are counted from 0"
        elif each.rank in seen:
            found = f"node {each.rank} is {seen[each.rank]} already: the launcher waits for another"
        seen.setdefault(each.rank, each.manifest.title)
        if found is not None:
            taken = {one.rank for one in group}
            free = next((rank for rank in range(each.nodes) if rank not in taken), None)
            remedy = f"write {free}" if free is not None else f"use 0 to {each.nodes - 1}"
            yield each.manifest, Finding(Code.RENDEZVOUS_FLAG, each.path, found, remedy)
