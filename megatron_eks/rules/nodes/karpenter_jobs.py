"""Rules over a whole job and the pools of Karpenter that take its pods: room, and zones."""

from collections.abc import Iterator
from fractions import Fraction

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.quantity import quantity
from megatron_eks.rules.nodes.karpenter_ends import is_for_training
from megatron_eks.rules.nodes.karpenter_pods import ZONE, asked, class_of, instances, trainings
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.named_pools import Pool, pools_of
from megatron_eks.rules.objects.node_pools import wanted_labels
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, text
from megatron_eks.rules.workloads import EFA, GPU, Manifest, Pod

_CAPACITY = "karpenter.sh/capacity-type"
_MIB = 2**20
# Of the memory that EC2 names, Karpenter takes 7.5 % off.
_SHARE = Fraction(9, 10)


def room(together: ManifestSet) -> Iterator[Found]:
    """Warn of pools whose limits are below what one job needs at once.

    Karpenter, "NodePools", spec.limits: no node beyond them is started. Ranks wait for all others,
    so with the last pods Pending the first ones hold their GPUs for nothing.
    """
    jobs: list[tuple[Manifest, list[Pod], list[Pool]]] = []
    for job, pod, pools in trainings(together):
        if jobs and jobs[-1][0] is job:
            jobs[-1][1].append(pod)
            jobs[-1][2].extend(each for each in pools if each not in jobs[-1][2])
        else:
            jobs.append((job, [pod], list(pools)))
    for job, pods, pools in jobs:
        counted = [_nodes(pool) for pool in pools]
        gpus = sum(_gpus(pod) * _replicas(job, pod) for pod in pods)
        most = sum(count * each for each, count, _ in filter(None, counted))
        if None in counted or not most or gpus <= most or any(not each for each in counted):
            continue
        first = next(each for each in counted if each is not None)
        names = ", ".join(pool.title for pool in pools)
        found = f"room for {most} GPUs in {names}, and {job.title} needs {gpus} at once: "
        found += "its last pods stay Pending, and the others wait for them"
        path: Path = ("spec", "limits", first[2])
        pool = pools[0].manifest
        remedy = "raise the limit, or ask for fewer nodes"
        yield pool, pool.find(Code.KARPENTER, path, found, remedy, Level.WARNING)


def _gpus(pod: Pod) -> int:
    return sum(int(each.amount(GPU) or 0) for each in pod.containers if not each.is_init)


def _replicas(job: Manifest, pod: Pod) -> int:
    """Return how many pods of a template the job cannot start without."""
    count = 1 if pod.replicas is None else pod.replicas
    least = number((mapping(job.spec.get("elasticPolicy")) or {}).get("minReplicas"))
    return count if least is None else min(count, least)


def _nodes(pool: Pool) -> tuple[int, int, str] | None:
    """Return a pool's GPUs for each node, how many nodes, and the limit that says it.

    None where its types differ or are unknown, or where nothing bounds it.
    """
    types = instances(pool)
    if len(types) != 1 or not types[0].gpus:
        return None
    one = types[0]
    of_node = {GPU: one.gpus, "cpu": one.vcpus, "memory": int(one.memory_mib * _MIB * _SHARE)}
    of_node["nodes"] = 1
    found = []
    for name, written in (mapping(pool.manifest.spec.get("limits")) or {}).items():
        most = quantity(written)
        if most is not None and name in of_node:
            found.append((int(most // of_node[name]), name))
    if not found:
        return None
    count, name = min(found)
    # A pool for no node at all is meant so, or has its own finding.
    return (one.gpus, count, name) if count else None


def zones(together: ManifestSet) -> Iterator[Found]:
    """Warn of ranks with EFA on a pool that starts nodes in several zones.

    EC2 User Guide, "Elastic Fabric Adapter", limitations: EFA's traffic stays in one zone.
    Karpenter picks a zone for each node by price and capacity, unless pod or pool name one.
    """
    for job, pod, pools in trainings(together):
        several = sum(1 if each.replicas is None else each.replicas for each in job.pods) > 1
        if not several or not pod.names(EFA) or _is_kept_together(job, pod):
            continue
        for pool in pools:
            there = _zones(pool.manifest, together)
            if there is not None:
                found = f"{pool.title} starts nodes in {there}, and EFA reaches no other zone: "
                found += "ranks cannot meet by it"
                path = (*pod.path[1:], "nodeSelector")
                remedy = f"select one {ZONE} here, or in the pool"
                finding = job.find(Code.NODE_SELECTOR, path, found, remedy, Level.WARNING)
                yield job, finding
                break


def pools_alone(together: ManifestSet) -> Iterator[Found]:
    """Warn of a pool for training over several zones that it names, where no job is beside it.

    As `zones`; a placement group of the class keeps the nodes in one.
    """
    with_jobs = [pool.manifest for _, _, pools in trainings(together) for pool in pools]
    for manifest in together.of("NodePool"):
        pool = next(pools_of(manifest), None)
        if pool is None or not is_for_training(pool) or any(each is manifest for each in with_jobs):
            continue
        used = class_of(manifest, together)
        grouped = used is not None and not is_absent(used.spec.get("placementGroupSelector"))
        types = [INSTANCES[name] for name in pool.types if name in INSTANCES]
        most = _nodes(pool)
        alone = most is not None and most[1] == 1
        there = None if grouped or alone or not types else _zones(manifest, together)
        if there is not None:
            found = f"nodes of {types[0].name} in {there}, and EFA reaches no other zone: ranks of "
            found += "one job cannot meet by it"
            path: Path = ("spec", "template", "spec", "requirements")
            remedy = f"name one zone for {ZONE}, and another pool for each other zone"
            yield manifest, manifest.find(Code.KARPENTER, path, found, remedy, Level.WARNING)


def _zones(pool: Manifest, together: ManifestSet) -> str | None:
    """Say in which zones a pool starts nodes, if there are surely several that it may choose."""
    named = asked(pool, ZONE)
    used = class_of(pool, together)
    terms = items(used.spec.get("subnetSelectorTerms")) or [] if used is not None else []
    subnets = [text((mapping(each) or {}).get("id")) for each in terms]
    reserved = asked(pool, _CAPACITY) == ["reserved"]
    # One subnet, or capacity that is reserved, is in one zone.
    if (len(subnets) == 1 and subnets[0]) or reserved or any(is_placeholder(e) for e in named):
        return None
    if len(set(named)) > 1:
        return f"{len(set(named))} zones"
    return None if named or len(subnets) < 2 or None in subnets else f"{len(subnets)} subnets"  # noqa: PLR2004 -- two are several


def _is_kept_together(job: Manifest, pod: Pod) -> bool:
    """Tell whether pod or job is for one zone, or a scheduler is to keep the pods near."""
    if any(key == ZONE and len(values) == 1 for key, values in wanted_labels(pod)):
        return True
    affinity = mapping((mapping(pod.spec.get("affinity")) or {}).get("podAffinity")) or {}
    metadata = mapping(job.body.get("metadata")) or {}
    notes = mapping(metadata.get("annotations")) or {}
    keys = [*notes, *pod.annotations, *job.spec]
    return ZONE in str(affinity) or any("topology" in str(key).lower() for key in keys)
