"""Writes pytorchjobs.json: `python -m charts.platform.crd`, in the development environment."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from charts.platform.crd.definitions import Schema, schema_of
from charts.platform.crd.pytorchjob import definition

# Training operator 1.9.4 is built with k8s.io/api 0.36. A field of a later version would be
# admitted and then dropped by the operator, without a word.
KUBERNETES_MINOR = "1.36"
_DEFINITIONS = f"kubernetes-json-schema/v{KUBERNETES_MINOR}.0-local/_definitions.json"

_TARGET = Path(__file__).with_name("pytorchjobs.json")
_WIDTH = 100


def generate() -> str:
    """Return the text of pytorchjobs.json."""
    source = files("kubernetes_validate").joinpath(_DEFINITIONS).read_text(encoding="utf-8")
    definitions: Mapping[str, Schema] = json.loads(source)["$defs"]
    crd = definition(
        pod_template=schema_of(definitions, "io.k8s.api.core.v1.PodTemplateSpec"),
        metric=schema_of(definitions, "io.k8s.api.autoscaling.v2.MetricSpec"),
        quantity=schema_of(definitions, "io.k8s.apimachinery.pkg.api.resource.Quantity"),
        label_selector=schema_of(definitions, "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"),
    )
    return _dump(crd) + "\n"


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
    _TARGET.write_text(generate(), encoding="utf-8")
