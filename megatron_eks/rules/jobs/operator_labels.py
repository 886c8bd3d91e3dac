"""Rules over selectors of the training operator's labels, by what it never writes."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

# Of a JobSet or a TrainJob there are other values; these two labels are of the operator alone.
_LABELS = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")

_BEFORE, _SINCE = "pytorch-", "training.kubeflow.org/"
_WORDS = frozenset({"job-name", "replica-index", "replica-type"})


def values(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a selector that asks for `Worker`, where the operator's label is `worker`.

    kubeflow/trainer v1.9.4, pkg/controller.v1/common/pod.go: the replica type is written in
    lower case, and what selects another value selects no pod.
    """
    for path, labels in _selectors(manifest):
        for key in _LABELS:
            value = text(labels.get(key))
            if value and value != value.lower() and not is_placeholder(value):
                found = f"{shown(value)}, and the training operator writes {shown(value.lower())}: "
                found += "this selects no pod"
                code, remedy = Code.SELECTS_NOTHING, f"write {value.lower()}"
                yield manifest.find(code, (*path, key), found, remedy, Level.WARNING)


def of_the_first_operator(together: ManifestSet) -> Iterator[Found]:
    """Warn of a selector of labels that the operator before this one wrote, beside a job of it.

    kubeflow/common, pull request 150, and kubeflow/trainer, issue 1602: what pytorch-operator
    called pytorch-job-name is training.kubeflow.org/job-name, and nobody writes the former.
    """
    for manifest in together.of("NetworkPolicy", "PodDisruptionBudget", "Service"):
        jobs = [e for e in together.of("PyTorchJob") if e.namespace == manifest.namespace]
        known = {key for each in together.objects for pod in each.pods for key in pod.labels}
        met = outdated(manifest) if jobs else None
        if met is not None and met[1] not in known:
            path, key = met
            found = f"no pod has {key}, which an operator before the training operator wrote"
            remedy = f"write {_SINCE}{key[len(_BEFORE) :]}"
            code = Code.SELECTS_NOTHING
            yield manifest, manifest.find(code, path, found, remedy, Level.WARNING)


def outdated(manifest: Manifest) -> tuple[Path, str] | None:
    """Return the first selector of a label that pytorch-operator wrote, and that label."""
    for path, selector in _bodies(manifest):
        labels = selector if manifest.kind == "Service" else mapping(selector.get("matchLabels"))
        expressions = [
            mapping(each) or {} for each in items(selector.get("matchExpressions")) or []
        ]
        keys = [*(labels or {}), *(text(each.get("key")) or "" for each in expressions)]
        for key in keys:
            if key.startswith(_BEFORE) and key[len(_BEFORE) :] in _WORDS:
                return path, key
    return None


def _selectors(manifest: Manifest) -> "Iterator[tuple[Path, dict[str, Json]]]":
    for path, selector in _bodies(manifest):
        if manifest.kind == "Service":
            yield path, selector
        elif labels := mapping(selector.get("matchLabels")):
            yield (*path, "matchLabels"), labels


def _bodies(manifest: Manifest) -> "Iterator[tuple[Path, dict[str, Json]]]":
    spec = manifest.spec
    if manifest.kind in {"PodDisruptionBudget", "Service"}:
        yield ("spec", "selector"), mapping(spec.get("selector")) or {}
    elif manifest.kind == "NetworkPolicy":
        yield ("spec", "podSelector"), mapping(spec.get("podSelector")) or {}
        for way, peers in (("ingress", "from"), ("egress", "to")):
            for index, rule in enumerate(items(spec.get(way)) or []):
                for place, value in enumerate(items((mapping(rule) or {}).get(peers)) or []):
                    path = ("spec", way, index, peers, place, "podSelector")
                    yield path, mapping((mapping(value) or {}).get("podSelector")) or {}
