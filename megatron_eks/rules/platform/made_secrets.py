"""Rule over Secrets that an operator makes: of certificates, and of External Secrets."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.objects.made_secrets import secrets_made
from megatron_eks.rules.objects.manifest_set import (
    Found,
    ManifestSet,
    Reference,
    may_share,
    references,
)
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_CLOSE = 0.8
_OF_CERTIFICATES = frozenset({"ca.crt", "tls.crt", "tls.key"})


@dataclass(frozen=True)
class _Made:
    """A Secret that is not in the set, and what makes it."""

    maker: Manifest
    name: str
    keys: frozenset[str] | None
    """None where they cannot be known."""


def made(together: ManifestSet) -> Iterator[Found]:
    """Warn of a pod that wants nearly the Secret that an object beside it makes, or another key.

    cert-manager, Certificate, secretName: its keys are tls.crt, tls.key and ca.crt; External
    Secrets, ExternalSecret, target and data: each secretKey. The pod waits for another one.
    """
    every = [*_certificates(together), *_external(together)]
    for manifest in together.objects if every else ():
        for reference in references(manifest):
            if reference.kind != "Secret" or together.named(manifest, "Secret", reference.name):
                continue
            near = [each for each in every if may_share(manifest, each.maker)]
            same = [each for each in near if each.name == reference.name]
            if same:
                yield from _keys(manifest, reference, same)
                continue
            # Another object makes it, or a Secret at hand is nearly it, which is said already.
            beside = [each.name or "" for each in together.beside(manifest, "Secret")]
            told = get_close_matches(reference.name, beside, 1, _CLOSE)
            if told or reference.name in secrets_made(together):
                continue
            close = get_close_matches(reference.name, [each.name for each in near], 1, _CLOSE)
            if close:
                maker = next(each.maker for each in near if each.name == close[0])
                found = f"no Secret {shown(reference.name)}, and {maker.title} makes one called "
                found += close[0]
                finding = manifest.find(
                    Code.MISSING_OBJECT, reference.path, found, f"write {close[0]}", Level.WARNING
                )
                yield manifest, finding


def _keys(manifest: Manifest, reference: Reference, same: list[_Made]) -> Iterator[Found]:
    if len(same) != 1 or same[0].keys is None:
        return
    for key in reference.keys:
        if key not in same[0].keys and not is_placeholder(key):
            found = f"the Secret that {same[0].maker.title} makes has no key {shown(key)}: the pod "
            found += "does not start"
            remedy = f"there: {', '.join(sorted(same[0].keys))}"
            yield manifest, manifest.find(Code.MISSING_OBJECT, reference.path, found, remedy)


def _certificates(together: ManifestSet) -> Iterator[_Made]:
    for each in together.of("Certificate"):
        name = text(each.spec.get("secretName"))
        if each.group == "cert-manager.io" and name and not is_placeholder(name):
            more = each.spec.get("keystores"), each.spec.get("additionalOutputFormats")
            known = all(is_absent(one) for one in more)
            yield _Made(each, name, _OF_CERTIFICATES if known else None)


def _external(together: ManifestSet) -> Iterator[_Made]:
    for each in together.of("ExternalSecret"):
        target = mapping(each.spec.get("target")) or {}
        name = text(target.get("name")) or each.name
        if each.group != "external-secrets.io" or not name or is_placeholder(name):
            continue
        data = items(each.spec.get("data")) or []
        keys = [text((mapping(one) or {}).get("secretKey")) for one in data]
        merged = text(target.get("creationPolicy")) not in (None, "Owner", "Orphan")
        # A template, and whatever is taken as a whole, have keys of their own.
        open_ones = merged or any(
            not is_absent(one) for one in (target.get("template"), each.spec.get("dataFrom"))
        )
        known = bool(keys) and None not in keys and not open_ones
        yield _Made(each, name, frozenset(key for key in keys if key) if known else None)
