"""A container's environment, command and arguments, as a kubelet works them out."""

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from megatron_eks.kubernetes.client import Object
from megatron_eks.kubernetes.quantity import quantity

# The kubelet does not offer a variable under another kind of name.
_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")

Data = Callable[[str, str], Mapping[str, str] | None]
"""Reads a ConfigMap or Secret by kind and name; None if there is none."""


class ConfigError(Exception):
    """A container refers to something that does not exist."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by a variable's value, and $$ by $; an unknown name stays as it is."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


def command(container: Object, entrypoint: "tuple[str, ...]", env: Mapping[str, str]) -> list[str]:
    """Return the words of a container's program: its own command, or its image's."""
    words = container.get("command") or entrypoint
    return [expand(each, env) for each in (*words, *container.get("args", ()))]


def variables(
    container: Object, pod: Object, allocatable: Mapping[str, str], data: Data
) -> dict[str, str]:
    """Return a container's variables; raise ConfigError for a missing ConfigMap, Secret or key."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        kind = "Secret" if "secretRef" in source else "ConfigMap"
        reference = source.get("secretRef") or source["configMapRef"]
        values = _object(kind, reference, data)
        found |= {source.get("prefix", "") + key: each for key, each in values.items()}
    for each in container.get("env", ()):
        if "valueFrom" in each:
            value = _value(each["valueFrom"], container, pod, allocatable, data)
            if value is not None:
                found[each["name"]] = value
        else:
            found[each["name"]] = expand(each.get("value", ""), found)
    return found


def _value(
    source: Object, container: Object, pod: Object, allocatable: Mapping[str, str], data: Data
) -> str | None:
    if "fieldRef" in source:
        return pod_field(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return resource_field(pod, container, source["resourceFieldRef"], allocatable)
    kind = "Secret" if "secretKeyRef" in source else "ConfigMap"
    reference = source.get("secretKeyRef") or source["configMapKeyRef"]
    key = reference["key"]
    values = _object(kind, reference, data)
    if key not in values and not reference.get("optional"):
        namespace = pod["metadata"]["namespace"]
        raise ConfigError(f"couldn't find key {key} in {kind} {namespace}/{reference['name']}")
    return values.get(key)


def _object(kind: str, reference: Object, data: Data) -> Mapping[str, str]:
    found = data(kind, reference["name"])
    if found is None:
        if not reference.get("optional"):
            raise ConfigError(f'{kind.lower()} "{reference["name"]}" not found')
        return {}
    return found


def pod_field(pod: Object, path: str) -> str:
    """Return a field of a pod as the downward API writes it."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    if match := _KEYED_FIELD.fullmatch(path):
        return str(metadata.get(match[1], {}).get(match[2], ""))
    match path:
        case "metadata.labels" | "metadata.annotations":
            entries = metadata.get(path.removeprefix("metadata."), {})
            return "\n".join(f"{key}={_quoted(entries[key])}" for key in sorted(entries))
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata[path.removeprefix("metadata.")])
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.removeprefix("spec."), ""))
        case "status.hostIP" | "status.podIP":
            return str(status.get(path.removeprefix("status."), ""))
        case "status.hostIPs" | "status.podIPs":
            listed = status.get(path.removeprefix("status."), ())
            return ",".join(each["ip"] for each in listed)
    raise ConfigError(f"unsupported fieldPath: {path}")


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def resource_field(
    pod: Object, container: Object, reference: Object, allocatable: Mapping[str, str]
) -> str:
    """Return a request or limit in units of the divisor; a missing limit is all of the node."""
    if named := reference.get("containerName"):
        everything = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
        container = next(each for each in everything if each["name"] == named)
    group, _, name = str(reference["resource"]).partition(".")
    resources = container.get("resources", {})
    text = resources.get(group, {}).get(name)
    if text is None:
        text = allocatable.get(name, "0") if group == "limits" else "0"
    divisor = size(reference.get("divisor") or "0") or Fraction(1)
    return str(math.ceil(size(text) / divisor))


def size(written: str) -> Fraction:
    """Return the number that a quantity stands for; the API server lets no other text pass."""
    found = quantity(written)
    if found is None:
        raise ConfigError(f"not a quantity: {written}")
    return found
