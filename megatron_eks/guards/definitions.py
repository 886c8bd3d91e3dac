"""Guards of custom resources: what their definitions know."""

from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import Manifests, manifest_guard
from megatron_eks.guards.values import Found, Value, report


@manifest_guard
def fields(manifests: Manifests) -> Found:
    """Write what a kind's definition knows, for the API server drops the rest (Kubernetes)."""
    for made in manifests.of("CustomResourceDefinition"):
        for version in made["spec"]["versions"]:
            api = f"{made['spec']['group'].text}/{version['name'].text}"
            schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
            for each in manifests.of(made["spec"]["names"]["kind"].text):
                if each["apiVersion"].text == api:
                    yield from _unknown(each["spec"], schema)


def _unknown(value: Value, schema: Value) -> Found:
    known, other = schema["properties"], schema["additionalProperties"]
    for key, inner in value.items() if known or other else ():
        free = other or schema["x-kubernetes-preserve-unknown-fields"]
        found = f"no field {key} is known here: the API server drops it"
        row = (not known[key] and not free, inner, found, "correct or remove it")
        yield from report(Rule.JOB_FIELDS, *row)
        yield from _unknown(inner, known[key] or other)
    for each in value:
        yield from _unknown(each, schema["items"])
