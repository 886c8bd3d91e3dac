"""Judges the Kubernetes objects that templates of the CDK's aws-eks hold as texts of JSON."""

import json
from collections.abc import Iterator

from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.manifests import check_manifests
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import written

_OBJECTS = "Custom::AWSCDK-EKS-KubernetesResource"
_MANIFEST = "Manifest"


def embedded(templates: TemplateSet) -> Iterator[Finding]:
    """Apply the rules over objects to those that a template's custom resources apply.

    aws-cdk-lib, aws-eks, k8s-manifest.ts: Manifest is a list of objects in JSON, with references
    that Fn::Join puts in; kubectl applies them when the stack is made.
    """
    for resource in templates.resources(_OBJECTS):
        for finding in check_manifests(_objects(resource.properties.get(_MANIFEST))):
            place = _shown(finding.path)
            found = f"{place}: {finding.found}" if place else finding.found
            yield resource.find(finding.code, (_MANIFEST,), found, finding.remedy, finding.level)


def _objects(value: Json) -> list[Json]:
    """Return the objects of a manifest; a reference in them is a text that nobody knows."""
    said = written(value)
    try:
        read = json.loads(said) if said is not None else None
    except ValueError:
        return []
    return read if isinstance(read, list) else [read] if isinstance(read, dict) else []


def _shown(path: Path) -> str:
    words = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(words).removeprefix(".")
