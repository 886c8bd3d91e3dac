"""Writes `charts/platform/crd/*.json`: upstream's kinds of jobs, without their texts.

`python -m tests.upstream.definitions`, in the development environment.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from megatron_eks.catalog import kueue
from tests.upstream.modules import module_directory

# By plural: module and file.
SOURCES = {
    "pytorchjobs": (
        "github.com/kubeflow/training-operator",
        "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
    ),
    "jobsets": ("sigs.k8s.io/jobset", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
    **{
        plural: (
            "github.com/kubeflow/trainer/v2",
            f"manifests/base/crds/trainer.kubeflow.org_{plural}.yaml",
        )
        for plural in ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
    },
    **{
        plural: (
            "sigs.k8s.io/kueue",
            f"config/components/crd/bases/kueue.x-k8s.io_{plural}.yaml",
        )
        for plural in kueue.KINDS.values()
    },
}
# With internal certificates Kueue writes its own into the conversion of these, and does not start
# where it cannot (v0.19.2, pkg/util/cert/cert.go). Nothing is converted: of its two versions of
# each kind only the one that is stored is taken.
_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "workloads")
_CONVERSION = {
    "strategy": "Webhook",
    "webhook": {
        "clientConfig": {
            "service": {"namespace": kueue.NAMESPACE, "name": kueue.SERVICE, "path": "/convert"}
        },
        "conversionReviewVersions": ["v1"],
    },
}
_FOLDER = Path(__file__).parents[2] / "charts/platform/crd"
_WIDTH = 100


def generate(plural: str) -> str:
    """Return the text of a file."""
    module, source = SOURCES[plural]
    text = (module_directory(module) / source).read_text(encoding="utf-8")
    definition = yaml.safe_load(text)
    # Which version of its generator wrote the file says nothing about the definition.
    del definition["metadata"]["annotations"]
    spec = definition["spec"]
    spec["versions"] = [each for each in spec["versions"] if each["storage"]]
    if plural in _CONVERTED:
        spec["conversion"] = _CONVERSION
    return _dump(_without_descriptions(definition)) + "\n"


def _without_descriptions(value: Any, *, names: bool = False) -> Any:
    """Drop the texts, but not the printer columns and fields that are called `description`."""
    match value:
        case dict():
            return {
                key: _without_descriptions(child, names=key == "properties" and not names)
                for key, child in value.items()
                if names or key != "description"
            }
        case list():
            return [_without_descriptions(item) for item in value]
    return value


def _dump(value: object) -> str:
    """Dump as JSON, one line a short value: a diff shows the field, and no byte is indentation."""
    flat = json.dumps(value, sort_keys=True, separators=(",", ":"))
    if len(flat) <= _WIDTH:
        return flat
    match value:
        case dict():
            fields = (f"{json.dumps(key)}:{_dump(value[key])}" for key in sorted(value))
            return "{\n" + ",\n".join(fields) + "\n}"
        case list():
            return "[\n" + ",\n".join(_dump(item) for item in value) + "\n]"
        case _:
            return flat


if __name__ == "__main__":
    for name in SOURCES:
        (_FOLDER / f"{name}.json").write_text(generate(name), encoding="utf-8")
