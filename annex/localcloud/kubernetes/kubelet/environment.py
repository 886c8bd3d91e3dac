"""A container's environment, command and arguments, as a kubelet works them out."""

import re
from collections.abc import Callable, Mapping

from megatron_eks.kubernetes.client import Object

# What variables and files of pods name here, of what a kubelet offers.
_FIELDS = frozenset(
    {
        *("metadata.name", "metadata.namespace", "metadata.uid"),
        *("spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.podIP"),
    }
)
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


def variables(container: Object, pod: Object, data: Data) -> dict[str, str]:
    """Return a container's variables; raise ConfigError for a missing ConfigMap, Secret or key."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        kind = "Secret" if "secretRef" in source else "ConfigMap"
        reference = source.get("secretRef") or source["configMapRef"]
        values = _object(kind, reference, data)
        found |= {source.get("prefix", "") + key: each for key, each in values.items()}
    for each in container.get("env", ()):
        if "valueFrom" in each:
            value = _value(each["valueFrom"], pod, data)
            if value is not None:
                found[each["name"]] = value
        else:
            found[each["name"]] = expand(each.get("value", ""), found)
    return found


def _value(source: Object, pod: Object, data: Data) -> str | None:
    if "fieldRef" in source:
        return pod_field(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        raise ConfigError("no process plays resourceFieldRef on this machine")
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
    if match := _KEYED_FIELD.fullmatch(path):
        return str(pod["metadata"].get(match[1], {}).get(match[2], ""))
    if path not in _FIELDS:
        raise ConfigError(f"unsupported fieldPath: {path}")
    block, name = path.split(".")
    return str(pod[block].get(name, ""))
