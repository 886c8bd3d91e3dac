"""Rules over cert-manager: its certificates, their issuers, and the webhooks that they serve."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.platform.webhooks import KINDS
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_GROUP = "cert-manager.io"
_OWN = ("Certificate", "CertificateRequest", "ClusterIssuer", "Issuer")
_GONE = ("v1alpha2", "v1alpha3", "v1beta1")
_ISSUERS = ("Issuer", "ClusterIssuer")
_WAYS = ("acme", "ca", "selfSigned", "vault", "venafi")
_NAMES = (
    *("commonName", "dnsNames", "emailAddresses", "ipAddresses", "literalSubject", "otherNames"),
    "uris",
)
_INJECTS = f"{_GROUP}/inject-ca-from"
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<unit>ns|us|µs|ms|s|m|h)")
_CLOSE = 0.8
_LEAST, _LEAST_BEFORE = 3600, 300
# cert-manager, Certificate: what it takes where none is written.
_USUAL = 90 * 24 * 3600


def go_seconds(value: Json) -> float | None:
    """Return a duration as Go reads it, such as 1h30m; None for what it does not read."""
    written = text(value)
    if written == "0":
        return 0.0
    parts = list(_PART.finditer(written or ""))
    if not written or "".join(each[0] for each in parts) != written:
        return None
    return sum(float(each["number"]) * _UNITS[each["unit"]] for each in parts)


def times(manifest: Manifest) -> Iterator[Finding]:
    """Require of a certificate times that Go reads, and that it is renewed before its end.

    cert-manager, internal/apis/certmanager/validation/certificate.go, ValidateDuration; Go,
    time.ParseDuration, has no days.
    """
    if not (manifest.group == _GROUP and manifest.kind == "Certificate"):
        return
    for key in ("duration", "renewBefore"):
        value = manifest.spec.get(key)
        said = text(value)
        if is_absent(value) or is_placeholder(said or "") or go_seconds(value) is not None:
            continue
        found = f"{shown(value)} is no duration: the API server refuses the certificate"
        remedy = "write it in hours and minutes: 2160h for 90 days"
        yield manifest.find(Code.WRONG_VALUE, ("spec", key), found, remedy)
    whole, before = (go_seconds(manifest.spec.get(key)) for key in ("duration", "renewBefore"))
    open_end = whole is None and not is_absent(manifest.spec.get("duration"))
    lasts = _USUAL if whole is None else whole
    if whole is not None and whole < _LEAST:
        found = "a certificate lasts an hour at least: the webhook of cert-manager refuses it"
        yield manifest.find(Code.WRONG_VALUE, ("spec", "duration"), found, "write 2160h")
    if before is not None and before < _LEAST_BEFORE:
        found = "less than five minutes before its end: the webhook of cert-manager refuses it"
        yield manifest.find(Code.WRONG_VALUE, ("spec", "renewBefore"), found, "write 360h")
    elif before is not None and before >= lasts and not open_end:
        found = f"renewed {shown(manifest.spec.get('renewBefore'))} before its end, and it lasts "
        found += f"{shown(manifest.spec.get('duration', '2160h'))}: the webhook of cert-manager "
        found += "refuses it"
        remedy = "write less than its duration"
        yield manifest.find(Code.WRONG_VALUE, ("spec", "renewBefore"), found, remedy)


def contents(manifest: Manifest) -> Iterator[Finding]:
    """Require of a certificate a name, and of an issuer one of the ways that cert-manager has.

    cert-manager, internal/apis/certmanager/validation: "at least one of commonName (from the
    commonName field or from a literalSubject), dnsNames, ..." and "at least one issuer must be
    configured".
    """
    if manifest.group != _GROUP or not manifest.spec:
        return
    if manifest.kind == "Certificate" and all(is_absent(manifest.spec.get(key)) for key in _NAMES):
        found = "no name that it is for: the webhook of cert-manager refuses it"
        yield manifest.find(Code.MISSING_FIELD, ("spec", "dnsNames"), found, "add dnsNames")
    if manifest.kind in _ISSUERS and not {*_WAYS} & {*manifest.spec}:
        given = next(iter(manifest.spec))
        close = get_close_matches(given, _WAYS, 1, _CLOSE)
        found = f"cert-manager knows no {given}: it issues nothing"
        remedy = f"did you mean {close[0]}?" if close else f"use one of {', '.join(_WAYS)}"
        yield manifest.find(Code.MANIFEST_VALUE, ("spec", given), found, remedy)


def versions(manifest: Manifest) -> Iterator[Finding]:
    """Refuse versions that cert-manager no longer serves.

    cert-manager, "Upgrading from v1.7 to v1.8": v1alpha2, v1alpha3 and v1beta1 are gone.
    """
    version = (text(manifest.body.get("apiVersion")) or "").rpartition("/")[2]
    if manifest.group == _GROUP and manifest.kind in _OWN and version in _GONE:
        found = f"{_GROUP}/{version} no longer serves {manifest.kind}"
        yield manifest.find(Code.API_VERSION, ("apiVersion",), found, f"use {_GROUP}/v1")


def issuers(together: ManifestSet) -> Iterator[Found]:
    """Warn of a certificate that asks an issuer of the other kind, or of nearly its name.

    cert-manager, Certificate, issuerRef: kind is Issuer unless it is written, and an Issuer serves
    its own namespace.
    """
    every = [each for each in together.of(*_ISSUERS) if each.group == _GROUP]
    for certificate in together.of("Certificate"):
        asked = mapping(certificate.spec.get("issuerRef")) or {}
        kind, name = text(asked.get("kind")) or _ISSUERS[0], text(asked.get("name"))
        other_group = text(asked.get("group")) not in (None, "", _GROUP)
        if certificate.group != _GROUP or other_group or not name or kind not in _ISSUERS:
            continue
        near = [each for each in every if is_near(certificate, each)]
        named = [each for each in near if each.name == name]
        path: Path = ("spec", "issuerRef")
        if any(each.kind == kind for each in named) or is_placeholder(name):
            continue
        names = [each.name or "" for each in near if each.kind == kind]
        close = get_close_matches(name, names, 1, _CLOSE)
        if named:
            found = f"asks {kind}/{name}, and there is {named[0].title}: no certificate is made"
            remedy = f"write kind: {named[0].kind}"
        elif close:
            found, remedy = f"no {kind} {shown(name)} among these", f"did you mean {close[0]}?"
        else:
            continue
        finding = certificate.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
        yield certificate, finding


def injected(together: ManifestSet) -> Iterator[Found]:
    """Require of a webhook the certificate that it names, for the name that it is called by.

    cert-manager, "Injecting CA data": NAMESPACE/NAME of a Certificate; Kubernetes, "Dynamic
    Admission Control", service reference: the API server calls NAME.NAMESPACE.svc, and refuses a
    certificate of another name.
    """
    for hook in together.of(*KINDS):
        notes = mapping((mapping(hook.body.get("metadata")) or {}).get("annotations")) or {}
        said = text(notes.get(_INJECTS))
        if said is None or is_placeholder(said):
            continue
        path: Path = ("metadata", "annotations", _INJECTS)
        space, _, name = said.partition("/")
        made = [each for each in together.of("Certificate") if each.group == _GROUP]
        if not space or not name or "/" in name:
            same = next((each for each in made if each.name == said), None)
            found = f"{shown(said)} is not NAMESPACE/NAME: nothing is injected, and each call fails"
            remedy = f"write {(same.namespace if same else None) or 'NAMESPACE'}/{said}"
            yield hook, hook.find(Code.WEBHOOK, path, found, remedy)
            continue
        names = [each.name or "" for each in made if each.namespace == space]
        if name in names:
            certificate = next(
                each for each in made if (each.namespace, each.name) == (space, name)
            )
            yield from _called(hook, certificate)
        elif close := get_close_matches(name, names, 1, _CLOSE):
            found = f"no Certificate {shown(name)} in namespace {shown(space)}"
            remedy = f"did you mean {space}/{close[0]}?"
            yield hook, hook.find(Code.WEBHOOK, path, found, remedy, Level.WARNING)


def _called(hook: Manifest, certificate: Manifest) -> Iterator[Found]:
    """Find a certificate without the name of a service that the webhook calls."""
    names = [text(each) for each in items(certificate.spec.get("dnsNames")) or []]
    # Kubebuilder writes SERVICE_NAME.SERVICE_NAMESPACE.svc, and its Kustomization the rest.
    if not names or any(each is None or each != each.lower() or "$" in each for each in names):
        return
    for value in items(hook.body.get("webhooks")) or []:
        client = mapping((mapping(value) or {}).get("clientConfig")) or {}
        service = mapping(client.get("service")) or {}
        name, space = text(service.get("name")), text(service.get("namespace"))
        # Kubebuilder writes "system", and its Kustomization the namespace.
        if not name or not space or space == "system" or is_placeholder(name + space):
            continue
        host = f"{name}.{space}.svc"
        if host not in names and f"*.{space}.svc" not in names:
            found = f"no {host}, by which {hook.title} calls it: x509, and each call fails"
            path: Path = ("spec", "dnsNames")
            yield certificate, certificate.find(Code.WEBHOOK, path, found, f"add {host}")
            return
