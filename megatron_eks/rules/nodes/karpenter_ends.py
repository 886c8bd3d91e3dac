"""Rule over pools of Karpenter that take nodes away from under a training run."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.rules.nodes.karpenter_pods import asked, class_of, trainings
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, may_share
from megatron_eks.rules.objects.named_pools import Pool, pools_of
from megatron_eks.rules.objects.pod_selection import selects
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_KEEP = "karpenter.sh/do-not-disrupt"
_DURATION = re.compile(r"([0-9]+(s|m|h))+")
_PART = re.compile(r"([0-9]+)(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_FAMILIES = {name.partition(".")[0] for name, each in INSTANCES.items() if each.nvlink_gb_s}
# A run of pre-training takes days, so a node has to live longer than a few.
_LEAST_LIFE = 3 * 24 * 3600
_UNDERUTILIZED = {
    "karpenter.sh/v1": "WhenEmptyOrUnderutilized",
    "karpenter.sh/v1beta1": "WhenUnderutilized",
}


def disrupted(together: ManifestSet) -> Iterator[Found]:
    """Warn of a job on a pool that consolidates its nodes, or lets them live for hours only.

    Karpenter, "Disruption": WhenEmptyOrUnderutilized, the default, takes nodes with pods on them
    for cheaper ones; an expired node is drained at once. The annotation do-not-disrupt keeps a
    node of the pod until terminationGracePeriod, if the pool has one. One rank gone ends them all.
    """
    seen: list[Manifest] = []
    for job, pod, pools in trainings(together):
        if any(each is job for each in seen):
            continue
        kept = _is_kept(pod) or _has_budget(job, pod, together)
        for pool in pools:
            said = _bounded(pool.manifest) if kept else _ends(pool)
            if said is not None:
                seen.append(job)
                yield _found(job, pod, pool, said, kept=kept)
                break


def pools_alone(together: ManifestSet) -> Iterator[Found]:
    """Warn of a pool for training that ends its nodes with pods on them, where no job is beside.

    As `disrupted`; and Karpenter, "NodeClasses", alias: with @latest each new AMI makes all nodes
    drift, and they are replaced, so it is not for production.
    """
    with_jobs = [(pod, pool.manifest) for _, pod, pools in trainings(together) for pool in pools]
    for manifest in together.of("NodePool"):
        pool = next(pools_of(manifest), None)
        if pool is None or not is_for_training(pool):
            continue
        pods = [pod for pod, other in with_jobs if other is manifest]
        # Where nothing is written, it may be that no pod is ever without the annotation.
        disruption = mapping(manifest.spec.get("disruption")) or {}
        written = not is_absent(disruption.get("consolidationPolicy"))
        dynamic = not pods and is_absent(manifest.spec.get("replicas"))
        said = _ends(pool) if dynamic and written else None
        if said is not None:
            found = f"{said}: a rank without {_KEEP} is evicted, and its whole job starts again"
            remedy = "write consolidationPolicy: WhenEmpty, and expireAfter: Never"
            path: Path = ("spec", "disruption")
            yield manifest, manifest.find(Code.KARPENTER, path, found, remedy, Level.WARNING)
        used = class_of(manifest, together)
        moving = used is not None and _moves_on(used) and not _stopped(manifest, "Drifted")
        if used is not None and moving and not (pods and all(_is_kept(pod) for pod in pods)):
            found = f"{_moves_on(used)}, of {manifest.title}: with each new AMI its nodes are "
            found += "replaced, and the pods on them evicted"
            remedy = "name a version of the AMI, such as al2023@vYYYYMMDD"
            path = ("spec", "amiSelectorTerms")
            yield used, used.find(Code.KARPENTER, path, found, remedy, Level.WARNING)


def is_for_training(pool: Pool) -> bool:
    """Tell a pool whose nodes are all made for jobs over several of them."""
    if pool.types:
        known = [INSTANCES.get(name) for name in pool.types]
        return all(each is not None and each.nvlink_gb_s for each in known)
    families = asked(pool.manifest, "karpenter.k8s.aws/instance-family")
    return bool(families) and _FAMILIES.issuperset(families)


def _moves_on(used: Manifest) -> str | None:
    """Return an alias that means another AMI next week."""
    terms = [mapping(each) or {} for each in items(used.spec.get("amiSelectorTerms")) or []]
    aliases = [text(each.get("alias")) or "" for each in terms]
    return next((each for each in aliases if each.endswith("@latest")), None)


def _found(job: Manifest, pod: Pod, pool: Pool, said: str, *, kept: bool) -> Found:
    if kept:
        path: Path = ("spec", "template", "spec", "terminationGracePeriod")
        found = f"{said}, and then its pods are killed, do-not-disrupt or not: {job.title} ends"
        remedy = "write expireAfter: Never, or leave terminationGracePeriod out"
        return pool.manifest, pool.manifest.find(Code.KARPENTER, path, found, remedy, Level.WARNING)
    path = (*pod.path[1:-1], "metadata", "annotations", _KEEP)
    found = f"{pool.title} {said}: one pod evicted, and the whole job starts again"
    remedy = f'annotate the pods {_KEEP}: "true", or change the pool'
    return job, job.find(Code.KARPENTER, path, found, remedy, Level.WARNING)


def _is_kept(pod: Pod) -> bool:
    said = pod.annotations.get(_KEEP)
    # A time after the pod's start is a promise as well; what is no text the API server refuses.
    return not is_absent(said) and said is not False and text(said) != "false"


def _has_budget(job: Manifest, pod: Pod, together: ManifestSet) -> bool:
    """Tell whether a PodDisruptionBudget lets no eviction of the pods pass."""
    for each in together.of("PodDisruptionBudget"):
        labels = mapping((mapping(each.spec.get("selector")) or {}).get("matchLabels")) or {}
        least, most = each.spec.get("minAvailable"), each.spec.get("maxUnavailable")
        none = str(most) in {"0", "0%"} or text(least) == "100%"
        if none and may_share(each, job) and selects(labels, job, pod):
            return True
    return False


def _ends(pool: Pool) -> str | None:
    """Say how a pool takes nodes with pods on them."""
    manifest = pool.manifest
    disruption = mapping(manifest.spec.get("disruption")) or {}
    policy, after = disruption.get("consolidationPolicy"), disruption.get("consolidateAfter")
    usual = _UNDERUTILIZED.get(text(manifest.body.get("apiVersion")) or "")
    said = usual if is_absent(policy) else text(policy)
    # Balanced takes fewer nodes with pods than WhenEmptyOrUnderutilized, and takes some.
    moves = usual is not None and said in {usual, "Balanced"}
    if moves and after != "Never" and not _stopped(manifest):
        how = f"consolidates {said}" + (", its default" if is_absent(policy) else "")
        return f"{how}, with pods on the node"
    life = _life(manifest)
    if life is not None and life < _LEAST_LIFE:
        return f"replaces each node after {_said(manifest)}"
    return None


def _stopped(manifest: Manifest, reason: str = "Underutilized") -> bool:
    """Tell whether a budget of no node always holds for what ends a pool's nodes."""
    disruption = mapping(manifest.spec.get("disruption")) or {}
    for value in items(disruption.get("budgets")) or []:
        body = mapping(value) or {}
        reasons = items(body.get("reasons")) or []
        none = text(body.get("nodes")) in {"0", "0%"} and is_absent(body.get("schedule"))
        if none and (not reasons or reason in reasons):
            return True
    return False


def _life(manifest: Manifest) -> int | None:
    """Return the seconds after which a node is drained; None where it is for ever, or unknown."""
    return _seconds(_said(manifest))


def _said(manifest: Manifest) -> str | None:
    template = mapping(manifest.spec.get("template")) or {}
    spec = mapping(template.get("spec")) or {}
    disruption = mapping(manifest.spec.get("disruption")) or {}
    # Of v1beta1 it stands with the disruption.
    return text(spec.get("expireAfter")) or text(disruption.get("expireAfter"))


def _seconds(value: str | None) -> int | None:
    if value is None or is_placeholder(value) or not _DURATION.fullmatch(value):
        return None
    return sum(int(amount) * _SECONDS[unit] for amount, unit in _PART.findall(value))


def _bounded(manifest: Manifest) -> str | None:
    """Say when a pool kills even the pods that are not to be disrupted."""
    template = mapping(manifest.spec.get("template")) or {}
    grace = text((mapping(template.get("spec")) or {}).get("terminationGracePeriod"))
    life, waits = _life(manifest), _seconds(grace)
    if life is None or waits is None or life + waits >= _LEAST_LIFE:
        return None
    return f"a node is drained after {_said(manifest)}, for {shown(grace)} at most"
