"""Rule over variables that a container takes from a ConfigMap beside it."""

from collections.abc import Iterator

from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.variables import Set, of_container
from megatron_eks.rules.workloads import GPU, Container, Manifest


def from_config_maps(together: ManifestSet) -> Iterator[Found]:
    """Judge variables whose value stands in a ConfigMap like those that an object writes itself.

    Kubernetes, "Configure a Pod to Use a ConfigMap": by valueFrom one key, by envFrom all that are
    names of variables; what `env` gives counts before what `envFrom` gives.
    """
    for manifest in together.objects if together.of("ConfigMap", "Kustomization") else ():
        operator = manifest.pytorch_replicas is not None
        for pod in manifest.pods:
            for container in pod.containers:
                if container.is_init or not (operator or container.names(GPU)):
                    continue
                single = list(_by_key(container, manifest, together))
                for finding in of_container(manifest, pod, container, single):
                    yield manifest, finding
                for source, listed in _whole(container, manifest, together):
                    for finding in of_container(manifest, pod, container, listed):
                        yield source, finding


def _by_key(container: Container, manifest: Manifest, together: ManifestSet) -> Iterator[Set]:
    for index, each in enumerate(items(container.body.get("env")) or []):
        entry = mapping(each) or {}
        name = text(entry.get("name"))
        source = mapping((mapping(entry.get("valueFrom")) or {}).get("configMapKeyRef")) or {}
        key, target = text(source.get("key")), _target(source.get("name"), manifest, together)
        if name is not None and key is not None and target is not None:
            value = text(_data(target).get(key))
            if value is not None:
                yield Set((*container.path, "env", index), name, value.strip("\n"))


def _whole(
    container: Container, manifest: Manifest, together: ManifestSet
) -> Iterator[tuple[Manifest, list[Set]]]:
    own = {each.name for each in container.variables}
    for each in items(container.body.get("envFrom")) or []:
        entry = mapping(each) or {}
        source = mapping(entry.get("configMapRef")) or {}
        target, prefix = (
            _target(source.get("name"), manifest, together),
            text(entry.get("prefix")) or "",
        )
        if target is None:
            yield from _generated(text(source.get("name")), prefix, own, manifest, together)
        else:
            yield (
                target,
                [
                    Set((target.title, "data", key), f"{prefix}{key}", value.strip("\n"))
                    for key, given in _data(target).items()
                    if f"{prefix}{key}" not in own and (value := text(given)) is not None
                ],
            )


def _generated(
    name: str | None, prefix: str, own: set[str], manifest: Manifest, together: ManifestSet
) -> Iterator[tuple[Manifest, list[Set]]]:
    """Return the literals of a ConfigMap that Kustomize makes (reference, configMapGenerator)."""
    for each in together.of("Kustomization") if name else ():
        for index, value in enumerate(items(each.body.get("configMapGenerator")) or []):
            entry = mapping(value) or {}
            if entry.get("name") != name or not in_one_folder(each, manifest):
                continue
            listed = []
            for place, literal in enumerate(items(entry.get("literals")) or []):
                key, sign, given = (text(literal) or "").partition("=")
                if sign and f"{prefix}{key}" not in own:
                    path = (each.title, "configMapGenerator", index, "literals", place)
                    listed.append(Set(path, f"{prefix}{key}", given.strip("\"'")))
            yield each, listed


def _target(name: Json, manifest: Manifest, together: ManifestSet) -> Manifest | None:
    return together.named(manifest, "ConfigMap", name) if isinstance(name, str) and name else None


def _data(target: Manifest) -> dict[str, Json]:
    return dict(mapping(target.body.get("data")) or {})
