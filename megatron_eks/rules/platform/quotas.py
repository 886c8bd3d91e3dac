"""Rules over quotas and limits of a namespace, and the workloads in it."""

from collections.abc import Iterator
from difflib import get_close_matches
from fractions import Fraction

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, may_share
from megatron_eks.rules.values import is_absent, items, mapping, shown, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_PLAIN = ("cpu", "memory")
_CLOSE = 0.85


def quotas(together: ManifestSet) -> Iterator[Found]:
    """Refuse a workload that alone asks for more than its namespace's quota.

    Kubernetes, "Resource Quotas": the pods above it are never made.
    """
    for quota in together.of("ResourceQuota"):
        hard = mapping(quota.spec.get("hard")) or {}
        for manifest in together.objects:
            if not may_share(quota, manifest) or manifest.namespace is None:
                continue
            pods = [pod for pod in manifest.pods if _counts(quota, pod)]
            if not pods:
                continue
            yield from _unnamed(quota, manifest, pods, together)
            for name, written in hard.items():
                most, wanted = quantity(written), _wanted(pods, name)
                if most is not None and wanted is not None and wanted > most:
                    found = f"{wanted} of {name}, and {quota.title} allows {shown(written)}"
                    remedy = "ask for less, or raise the quota"
                    yield manifest, manifest.find(Code.ABOVE_QUOTA, ("spec",), found, remedy)


def _counts(quota: Manifest, pod: Pod) -> bool:
    """Tell whether a quota surely counts a pod: without a scope, or by its priority class."""
    if not is_absent(quota.spec.get("scopes")):
        return False
    selector = mapping(quota.spec.get("scopeSelector")) or {}
    for value in items(selector.get("matchExpressions")) or []:
        body = mapping(value) or {}
        name, values = pod.spec.get("priorityClassName"), items(body.get("values")) or []
        fits = {
            "Exists": not is_absent(name),
            "DoesNotExist": is_absent(name),
            "In": name in values,
            "NotIn": name not in values,
        }
        known = body.get("scopeName") == "PriorityClass"
        if not known or not fits.get(text(body.get("operator")) or "", False):
            return False
    return True


# Kubernetes, plugin/pkg/admission/limitranger, and "Limit Ranges": what stands for each other.
_FILLED_BY = {
    "limits": ("default", "max"),
    "requests": ("default", "defaultRequest", "max", "min"),
}


def _is_filled(quota: Manifest, together: ManifestSet, kind: str, resource: str) -> bool:
    """Tell whether a LimitRange of the namespace fills in what containers do not say."""
    for each in together.of("LimitRange"):
        bounds = items(each.spec.get("limits"))
        if not may_share(quota, each):
            continue
        if bounds is None:
            return True
        for value in bounds:
            bound = mapping(value) or {}
            given = [mapping(bound.get(key)) for key in _FILLED_BY[kind]]
            if bound.get("type") == "Container" and any(
                one is None or resource in one for one in given
            ):
                return True
    return False


def _unnamed(
    quota: Manifest, manifest: Manifest, pods: list[Pod], together: ManifestSet
) -> Iterator[Found]:
    """Find containers that do not say how much of something they take that a quota counts."""
    for name in mapping(quota.spec.get("hard")) or {}:
        kind, _, resource = (f"requests.{name}" if name in _PLAIN else name).partition(".")
        if resource not in _PLAIN or kind not in {"limits", "requests"}:
            continue
        if _is_filled(quota, together, kind, resource):
            continue
        for pod in pods:
            for container in pod.containers:
                given = container.amounts(kind), container.amounts("limits")
                if any(resource in each for each in given):
                    continue
                found = f"no {resource}, which {quota.title} counts: the pod is refused"
                path = (*container.path[1:], "resources", kind, resource)
                remedy = f"write {kind}.{resource} here, or a LimitRange with a default"
                yield manifest, manifest.find(Code.ABOVE_QUOTA, path, found, remedy)


def _wanted(pods: list[Pod], name: str) -> Fraction | None:
    """Return what pods ask for together; None where a quota's name says something else."""
    if name in {"pods", "count/pods"}:
        return Fraction(sum(1 if pod.replicas is None else pod.replicas for pod in pods))
    kind, _, resource = name.partition(".")
    if name in {"cpu", "memory"}:
        kind, resource = "requests", name
    if kind not in {"limits", "requests"} or not resource:
        return None
    total = Fraction(0)
    for pod in pods:
        running = [each for each in pod.containers if not each.is_init]
        # Without a request the limit counts as one.
        written = [
            each.amounts(kind).get(resource, each.amounts("limits").get(resource))
            for each in running
        ]
        of_one = sum((quantity(each) or Fraction(0) for each in written), Fraction(0))
        total += of_one * (1 if pod.replicas is None else pod.replicas)
    return total


def scopes(together: ManifestSet) -> Iterator[Found]:
    """Warn of a quota for a priority class that only nearly is the name of one beside it.

    Kubernetes, "Resource Quotas", quota scopes: a class of another name is never counted by it.
    """
    classes = [each.name or "" for each in together.of("PriorityClass")]
    for quota in together.of("ResourceQuota"):
        selector = mapping(quota.spec.get("scopeSelector")) or {}
        for index, value in enumerate(items(selector.get("matchExpressions")) or []):
            body = mapping(value) or {}
            if body.get("scopeName") != "PriorityClass":
                continue
            for place, each in enumerate(items(body.get("values")) or []):
                name = text(each) or ""
                close = get_close_matches(name, classes, 1, _CLOSE)
                if close and name not in classes and not name.startswith("system-"):
                    found = f"no PriorityClass {shown(name)} among these: it counts no pod of it"
                    path = ("spec", "scopeSelector", "matchExpressions", index, "values", place)
                    remedy = f"did you mean {close[0]}?"
                    finding = quota.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
                    yield quota, finding


def limit_ranges(together: ManifestSet) -> Iterator[Found]:
    """Refuse containers above or below what a LimitRange of their namespace allows.

    Kubernetes, "Limit Ranges": the API server refuses the pods, and the job makes none.
    """
    for limits in together.of("LimitRange"):
        bounds = [mapping(each) or {} for each in items(limits.spec.get("limits")) or []]
        of_containers = [each for each in bounds if each.get("type") == "Container"]
        for manifest in together.objects if of_containers else ():
            if manifest.namespace is None or not may_share(limits, manifest):
                continue
            for pod in manifest.pods:
                for container in pod.containers:
                    for bound in of_containers:
                        yield from _out_of_bounds(manifest, container, limits, bound)


def _out_of_bounds(
    manifest: Manifest, container: Container, limits: Manifest, bound: "dict[str, Json]"
) -> Iterator[Found]:
    for side, kind, word in (("max", "limits", "most"), ("min", "requests", "least")):
        for name, written in (mapping(bound.get(side)) or {}).items():
            allowed, given = quantity(written), container.amounts(kind).get(name)
            asked = quantity(given)
            if allowed is None or asked is None:
                continue
            if (asked > allowed) if side == "max" else (asked < allowed):
                most = f"allows at {word} {shown(written)}"
                found = f"{shown(given)} of {name}, and {limits.title} {most}"
                path = (*container.path[1:], "resources", kind, name)
                remedy = "stay within it, or change the LimitRange"
                yield manifest, manifest.find(Code.LIMIT_RANGE, path, found, remedy)
