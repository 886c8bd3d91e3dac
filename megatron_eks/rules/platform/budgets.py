"""Rule over disruption budgets that let no node be drained."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, may_share
from megatron_eks.rules.objects.pod_selection import may_select, selects
from megatron_eks.rules.values import is_absent, mapping, number, shown
from megatron_eks.rules.workloads import Manifest


def budgets(together: ManifestSet) -> Iterator[Found]:
    """Warn of a budget that never lets a pod go, and refuse one with two bounds.

    Kubernetes, "Specifying a Disruption Budget for your Application": one bound alone. EKS User
    Guide, "Understand each phase of node updates": an update of a node group waits 15 minutes for
    each node, and fails with PodEvictionFailure. A job that one drain would end may be kept from
    it on purpose: its pods end by themselves.
    """
    for budget in together.of("PodDisruptionBudget"):
        most, least = budget.spec.get("maxUnavailable"), budget.spec.get("minAvailable")
        replicas = _replicas(budget, together)
        if not is_absent(most) and not is_absent(least):
            found = "both minAvailable and maxUnavailable: the API server refuses the budget"
            yield budget, budget.find(Code.DRAIN_BLOCKED, ("spec",), found, "keep one of the two")
            continue
        if most in (0, "0", "0%"):
            path, written = ("spec", "maxUnavailable"), shown(most)
        elif least == "100%" or (replicas and (number(least) or 0) >= replicas):
            path, written = ("spec", "minAvailable"), f"{shown(least)} of {replicas or 'all'}"
        else:
            continue
        if _of_jobs(budget, together):
            continue
        found = f"{written}: no pod may ever go, and no node be drained or updated"
        remedy = "let one go: maxUnavailable: 1"
        finding = budget.find(Code.DRAIN_BLOCKED, path, found, remedy, Level.WARNING)
        yield budget, finding


def _of_jobs(budget: Manifest, together: ManifestSet) -> bool:
    """Tell whether all pods at hand that a budget chooses run to an end."""
    labels = mapping((mapping(budget.spec.get("selector")) or {}).get("matchLabels")) or {}
    chosen = [
        manifest
        for manifest in together.objects
        if labels and may_share(budget, manifest)
        for pod in manifest.pods
        if may_select(labels, manifest, pod)
    ]
    # One whose labels fit no pod, which is told elsewhere, is for the job of its name.
    meant = chosen or [
        each
        for each in together.objects
        if each.is_job and each.name == budget.name and may_share(budget, each)
    ]
    return bool(meant) and all(each.is_job for each in meant)


def _replicas(budget: Manifest, together: ManifestSet) -> int | None:
    """Return how many pods the budget's selector chooses, where they are at hand."""
    labels = mapping((mapping(budget.spec.get("selector")) or {}).get("matchLabels")) or {}
    counts = [
        1 if pod.replicas is None else pod.replicas
        for manifest in together.of("Deployment", "Pod", "StatefulSet")
        if labels and may_share(budget, manifest)
        for pod in manifest.pods
        if selects(labels, manifest, pod)
    ]
    return sum(counts) if counts else None
