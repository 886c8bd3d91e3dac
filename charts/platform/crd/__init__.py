"""The custom resource definitions of jobs, typed down to the last field of a pod."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import cdk8s
from constructs import Construct

from megatron_eks.charts.pods import add_object


@cache
def read_definition(plural: str) -> dict[str, Any]:
    """Return the CustomResourceDefinition that tests/upstream/definitions.py wrote."""
    text = files(__package__).joinpath(f"{plural}.json").read_text(encoding="utf-8")
    definition: dict[str, Any] = json.loads(text)
    return definition


def add_definition(scope: Construct, plural: str) -> None:
    """Teach a cluster a kind of jobs, or of what stands beside them."""
    found = read_definition(plural)
    metadata = cdk8s.ApiObjectMetadata(name=found["metadata"]["name"])
    # The typed class of cdk8s-plus drops what Kubernetes 1.27 did not know.
    add_object(scope, plural, found["apiVersion"], found["kind"], metadata, spec=found["spec"])
