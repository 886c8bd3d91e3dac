"""The Secrets that controllers make in the cluster, by what other objects ask of them."""

from collections.abc import Iterator

from megatron_eks.rules.objects.manifest_set import ManifestSet
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import Manifest


def secrets_made(together: ManifestSet) -> set[str]:
    """Return the names of the Secrets that come into the cluster by other objects.

    cert-manager, "Certificate resource", secretName; External Secrets Operator, "ExternalSecret",
    target; Bitnami, Sealed Secrets; Secrets Store CSI driver, "Sync as Kubernetes Secret".
    """
    makers = together.of("Certificate", "ExternalSecret", "SealedSecret", "SecretProviderClass")
    return {name for each in makers for name in _made_by(each) if name}


def _made_by(manifest: Manifest) -> Iterator[str | None]:
    spec = manifest.spec
    if manifest.kind == "Certificate":
        yield text(spec.get("secretName"))
    elif manifest.kind == "SecretProviderClass":
        for value in items(spec.get("secretObjects")) or []:
            yield text((mapping(value) or {}).get("secretName"))
    else:
        part = mapping(spec.get("target" if manifest.kind == "ExternalSecret" else "template"))
        metadata = mapping((part or {}).get("metadata")) or {}
        yield text((part or {}).get("name")) or text(metadata.get("name")) or manifest.name
