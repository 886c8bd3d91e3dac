"""Judges a manifest as the API server does before any admission: types, unknown fields, list keys.

Core kinds by the schemas of kubernetes-validate, jobs and queues by those of our own definitions.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import kubernetes_validate
from jsonschema import Draft202012Validator, FormatChecker, ValidationError, validators
from jsonschema.protocols import Validator

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WITH_PODS, WORKLOADS, templates
from megatron_eks.charts.platform.crd import read_definition

Manifest = Mapping[str, Any]

KUBERNETES_VERSION = "1.36"

_INTEGERS = {"int32": 2**31, "int64": 2**63}


def assert_valid(manifest: Manifest) -> None:
    """Fail if the API server would refuse the object, or if nothing here can judge its kind."""
    name = f"{manifest['kind']}/{manifest['metadata']['name']}"
    workload = {**WORKLOADS, **WITH_PODS}.get(manifest["kind"])
    if manifest["apiVersion"] == kueue.API_VERSION:
        problems = list(_job_problems(manifest, kueue.KINDS[manifest["kind"]]))
    elif workload and workload.controller and workload.api_version == manifest["apiVersion"]:
        problems = list(_job_problems(manifest, f"{manifest['kind'].lower()}s"))
    else:
        problems = list(_core_problems(manifest))
    assert not problems, f"{name}: {'; '.join(problems)}"


def _core_problems(manifest: Manifest) -> Iterator[str]:
    try:
        kubernetes_validate.validate(dict(manifest), KUBERNETES_VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield _describe(error)
    except kubernetes_validate.SchemaNotFoundError:
        yield f"no schema for {manifest['apiVersion']} {manifest['kind']}"


def _job_problems(manifest: Manifest, plural: str) -> Iterator[str]:
    for error in _validator(plural).iter_errors(manifest):
        yield _describe(error)
    yield from _core_problems({"apiVersion": "v1", "kind": "Pod", "metadata": manifest["metadata"]})
    # The definition follows its controller's Kubernetes version, the pods must fit the cluster's.
    for _, each in templates(manifest) if manifest["kind"] in WITH_PODS else ():
        template = {"metadata": {"name": "template"}, "template": each}
        yield from _core_problems({"apiVersion": "v1", "kind": "PodTemplate", **template})


def _describe(error: ValidationError) -> str:
    return f"{'.'.join(map(str, error.absolute_path))}: {error.message}"


@cache
def _validator(plural: str) -> Validator:
    schema = read_definition(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    formats = FormatChecker(formats=())
    for name, limit in _INTEGERS.items():
        formats.checks(name)(lambda value, limit=limit: -limit <= value < limit)
    judge = validators.extend(Draft202012Validator, {"x-kubernetes-list-type": _unique_items})
    validator: Validator = judge(_hardened(schema), format_checker=formats)
    return validator


def _hardened(schema: Any) -> Any:
    """Return the schema with unknown fields refused, as under strict field validation."""
    if isinstance(schema, list):
        return [_hardened(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    hardened = {key: _hardened(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        hardened["additionalProperties"] = False
    return hardened


def _unique_items(
    _validator: Validator, list_type: str, items: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if list_type == "atomic":
        return
    keys = schema.get("x-kubernetes-list-map-keys", ())
    fields = schema["items"].get("properties", {})
    seen = []
    for item in items:
        identity = [item.get(key, fields[key].get("default")) for key in keys] or item
        if identity in seen:
            yield ValidationError(f"duplicate item {identity}")
        seen.append(identity)
