"""Turns Kubernetes' published type definitions into the structural schemas that a CRD needs."""

from collections.abc import Mapping
from typing import Any

# A JSON schema; JSON has no narrower type.
Schema = dict[str, Any]

_API = "io.k8s.api.core.v1."
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_REFERENCE = "#/$defs/"

# Kubernetes documentation, "Quantity": sign, digits, then a binary, decimal or exponent suffix.
_NUMBER = r"([0-9]+(\.[0-9]*)?)|(\.[0-9]+)"
_QUANTITY = rf"^(\+|-)?({_NUMBER})(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?({_NUMBER})))?$"
_INT_OR_STRING: Schema = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}

_STRING: Schema = {"type": "string"}
_STRINGS: Schema = {"type": "object", "additionalProperties": _STRING}

# Written out instead of followed: two types that JSON spells in more than one way, and the metadata
# inside a template, of which the API server keeps only these fields in a custom resource.
_REPLACED: Mapping[str, Schema] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {**_INT_OR_STRING, "pattern": _QUANTITY},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _INT_OR_STRING,
    f"{_META}ObjectMeta": {
        "type": "object",
        "properties": {
            "annotations": _STRINGS,
            "finalizers": {"type": "array", "items": _STRING},
            "labels": _STRINGS,
            "name": _STRING,
            "namespace": _STRING,
        },
    },
}

# The published definitions leave defaults out; these are the `+default` markers of k8s.io/api.
# A list keyed by `protocol` is refused by the API server when that key has no default.
_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "AzureDiskVolumeSource": {"fsType": "ext4", "readOnly": False},
    "ConfigMapEnvSource": {"name": ""},
    "ConfigMapKeySelector": {"name": ""},
    "ConfigMapProjection": {"name": ""},
    "ConfigMapVolumeSource": {"name": ""},
    "ContainerPort": {"protocol": "TCP"},
    "FileKeySelector": {"optional": False},
    "GRPCAction": {"service": ""},
    "ISCSIVolumeSource": {"iscsiInterface": "default"},
    "LocalObjectReference": {"name": ""},
    "RBDVolumeSource": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
    "ScaleIOVolumeSource": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
    "SecretEnvSource": {"name": ""},
    "SecretKeySelector": {"name": ""},
    "SecretProjection": {"name": ""},
}

# These embed a LocalObjectReference, whose marker the published definitions do not hand down.
_ATOMIC = frozenset(
    {
        "ConfigMapEnvSource",
        "ConfigMapProjection",
        "ConfigMapVolumeSource",
        "SecretEnvSource",
        "SecretProjection",
    }
)

_KEPT = frozenset(
    {
        "format",
        "required",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    }
)


def schema_of(definitions: Mapping[str, Schema], name: str) -> Schema:
    """Return the structural schema of a type: no references, no descriptions, no nulls."""
    if name in _REPLACED:
        return _REPLACED[name]
    schema = _structural(definitions, definitions[name])
    short = name.removeprefix(_API)
    for field, value in _DEFAULTS.get(short, {}).items():
        schema["properties"][field] = {**schema["properties"][field], "default": value}
    if short in _ATOMIC:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _structural(definitions: Mapping[str, Schema], node: Schema) -> Schema:
    if "$ref" in node:
        return schema_of(definitions, node["$ref"].removeprefix(_REFERENCE))
    schema = {key: value for key, value in node.items() if key in _KEPT}
    # The definitions say `[string, null]` where a field may be absent.
    schema["type"] = node["type"] if isinstance(node["type"], str) else node["type"][0]
    for key in ("items", "additionalProperties"):
        if key in node:
            schema[key] = _structural(definitions, node[key])
    if "properties" in node:
        properties = node["properties"].items()
        schema["properties"] = {name: _structural(definitions, field) for name, field in properties}
    if "required" in schema:
        schema["required"] = sorted(schema["required"])
    return schema
