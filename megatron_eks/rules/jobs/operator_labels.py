"""Rule over selectors of the training operator's labels, by values that it never writes."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

# Of a JobSet or a TrainJob there are other values; these two labels are of the operator alone.
_LABELS = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")


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


def _selectors(manifest: Manifest) -> "Iterator[tuple[Path, dict[str, Json]]]":
    spec = manifest.spec
    if manifest.kind == "Service":
        yield ("spec", "selector"), mapping(spec.get("selector")) or {}
    elif manifest.kind == "PodDisruptionBudget":
        yield from _matched(("spec", "selector"), spec.get("selector"))
    elif manifest.kind == "NetworkPolicy":
        yield from _matched(("spec", "podSelector"), spec.get("podSelector"))
        for way, peers in (("ingress", "from"), ("egress", "to")):
            for index, rule in enumerate(items(spec.get(way)) or []):
                for place, value in enumerate(items((mapping(rule) or {}).get(peers)) or []):
                    path = ("spec", way, index, peers, place, "podSelector")
                    yield from _matched(path, (mapping(value) or {}).get("podSelector"))


def _matched(path: Path, selector: Json) -> "Iterator[tuple[Path, dict[str, Json]]]":
    labels = mapping((mapping(selector) or {}).get("matchLabels"))
    if labels:
        yield (*path, "matchLabels"), labels
