"""Rule over External Secrets: the kind of the store in which a secret is looked for."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.values import items, mapping, text

_GROUP = "external-secrets.io"
_STORES = ("SecretStore", "ClusterSecretStore")


def stores(together: ManifestSet) -> Iterator[Found]:
    """Warn of a secret that looks for its store among those of the other kind.

    External Secrets, ExternalSecret, secretStoreRef: kind is SecretStore unless it is written, and
    a SecretStore serves its own namespace.
    """
    near = [each for each in together.of(*_STORES) if each.group == _GROUP]
    for secret in together.of("ExternalSecret"):
        asked: list[tuple[Path, Json]] = [
            (("spec", "secretStoreRef"), secret.spec.get("secretStoreRef"))
        ]
        for key in ("data", "dataFrom"):
            for index, value in enumerate(items(secret.spec.get(key)) or []):
                source = mapping((mapping(value) or {}).get("sourceRef")) or {}
                path: Path = ("spec", key, index, "sourceRef", "storeRef")
                asked.append((path, source.get("storeRef")))
        for path, value in asked if secret.group == _GROUP else ():
            body = mapping(value) or {}
            kind, name = text(body.get("kind")) or _STORES[0], text(body.get("name"))
            named = [each for each in near if each.name == name and is_near(secret, each)]
            if named and kind in _STORES and all(each.kind != kind for each in named):
                found = f"looks for {kind}/{name}, and there is {named[0].title}"
                remedy = f"write kind: {named[0].kind}"
                finding = secret.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
                yield secret, finding
