"""Rule over Secrets by which images are pulled."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, items, mapping, text
from megatron_eks.rules.workloads import Manifest

_TYPES = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")


def types(together: ManifestSet) -> Iterator[Found]:
    """Refuse a Secret of another type among those that an image is pulled by.

    Kubernetes, "Pull an Image from a Private Registry", and pkg/credentialprovider/secrets: the
    kubelet reads a Secret of these types alone, and passes over all others without a word.
    """
    for manifest in together.objects:
        listed = [pod.spec.get("imagePullSecrets") for pod in manifest.pods]
        if manifest.kind == "ServiceAccount":
            listed.append(manifest.body.get("imagePullSecrets"))
        names = {
            name
            for each in listed
            for value in items(each) or []
            if (name := text((mapping(value) or {}).get("name"))) is not None
        }
        for name in sorted(names):
            secret = together.named(manifest, "Secret", name)
            kind = _type(secret) if secret is not None else None
            if secret is not None and kind is not None and kind not in _TYPES:
                found = f"{manifest.title} pulls its image by it, and the kubelet passes over a "
                found += f"Secret of type {kind}: the pull is refused"
                remedy = f"write type: {_TYPES[0]}, with the key .dockerconfigjson"
                yield secret, secret.find(Code.MANIFEST_VALUE, ("type",), found, remedy)


def _type(secret: Manifest) -> str | None:
    given = secret.body.get("type")
    kind = "Opaque" if given is None else text(given)
    return None if kind is None or is_placeholder(kind) else kind
