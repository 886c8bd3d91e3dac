"""Writes the table of other operators' kinds from their own definitions.

    python -m tests.upstream.operators FILE...

The files are the definitions (CRDs) of JobSet, Kubeflow Trainer, KubeRay, Volcano, mpi-operator,
LeaderWorkerSet, Kueue, Prometheus' operator, cert-manager and External Secrets, from their
repositories; kinds of others stay in the table as they are. Pod templates and
Jobs inside are `any`: they are judged as pods and Jobs. No other target runs it, as the definitions
are in none of our packages.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from megatron_eks.rules.shapes import OPERATORS

# A JSON schema or a shape made of one, which have no narrower type.
Json = Any

VERSIONS = {
    "JobSet": "v1alpha2",
    "TrainJob": "v1alpha1",
    "TrainingRuntime": "v1alpha1",
    "ClusterTrainingRuntime": "v1alpha1",
    "RayCluster": "v1",
    "RayJob": "v1",
    "Job": "v1alpha1",
    "MPIJob": "v2beta1",
    "LeaderWorkerSet": "v1",
    **dict.fromkeys(("ClusterQueue", "LocalQueue", "ResourceFlavor"), "v1beta1 v1beta2"),
    **dict.fromkeys(("Cohort", "Topology", "WorkloadPriorityClass"), "v1beta1 v1beta2"),
    **dict.fromkeys(("PodMonitor", "PrometheusRule", "ServiceMonitor"), "v1"),
    "Certificate": "v1",
    "ExternalSecret": "v1 v1beta1",
}
_ANYTHING = ("int-or-string", "preserve-unknown-fields")
_NARROW = {"string": "text", "integer": "whole", "boolean": "truth", "number": "number"}
# What has these keys is a pod template, a Job's or a claim's spec, or a part of Kubernetes' own.
_OWN = ({"containers"}, {"podFailurePolicy", "completions"}, {"accessModes"}, {"matchLabels"})


def shape_of(schema: Json) -> Json:
    """Return the shape of a part of a definition."""
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if any(schema.get(f"x-kubernetes-{each}") for each in _ANYTHING):
        return "any"
    if properties is not None:
        return _mapping(properties, set(schema.get("required", ())))
    if isinstance(others, dict):
        return {"*": shape_of(others)}
    if "items" in schema:
        return [shape_of(schema["items"])]
    choices = {"=": sorted(str(each) for each in schema.get("enum", ()))}
    return choices if choices["="] else _NARROW.get(schema.get("type", ""), "any")


def _mapping(properties: Json, needed: set[str]) -> Json:
    if any(keys <= properties.keys() for keys in _OWN):
        return "any"
    return {
        f"{key}!" if key in needed and "default" not in each else key: shape_of(each)
        for key, each in sorted(properties.items())
    }


def operators(files: list[Path]) -> dict[str, Json]:
    """Return the shapes of the kinds that definitions are of."""
    found = {}
    for file in files:
        for document in yaml.safe_load_all(file.read_text()):
            names, group = document["spec"]["names"], document["spec"]["group"]
            for version in document["spec"]["versions"]:
                if version["name"] in VERSIONS[names["kind"]].split():
                    shape = shape_of(version["schema"]["openAPIV3Schema"])
                    shape.pop("status", None)
                    name = f"{group}/{version['name']} {names['kind']}"
                    found[name] = shape | {"metadata": "any"}
    return dict(sorted(found.items()))


def main() -> None:
    """Write the table."""
    made = operators([Path(each) for each in sys.argv[1:]])
    every = sorted({**json.loads(OPERATORS.read_text()), **made}.items())
    lines = [f"{json.dumps(name)}: {json.dumps(shape)}" for name, shape in every]
    OPERATORS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
