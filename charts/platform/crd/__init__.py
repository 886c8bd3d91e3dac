"""The custom resource definitions of jobs, typed down to the last field of a pod."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import cdk8s
from constructs import Construct


@cache
def read_definition(plural: str) -> dict[str, Any]:
    """Return the CustomResourceDefinition that tests/upstream/definitions.py wrote."""
    text = files(__package__).joinpath(f"{plural}.json").read_text(encoding="utf-8")
    definition: dict[str, Any] = json.loads(text)
    return definition


class JobDefinition(cdk8s.ApiObject):
    """Teaches a cluster a kind of jobs, or of what stands beside them."""

    def __init__(self, scope: Construct, construct_id: str, plural: str) -> None:
        definition = read_definition(plural)
        super().__init__(
            scope,
            construct_id,
            api_version=definition["apiVersion"],
            kind=definition["kind"],
            metadata=cdk8s.ApiObjectMetadata(name=definition["metadata"]["name"]),
        )
        # As a patch, because the typed class of cdk8s-plus drops what Kubernetes 1.27 did not know.
        self.add_json_patch(cdk8s.JsonPatch.add("/spec", definition["spec"]))
