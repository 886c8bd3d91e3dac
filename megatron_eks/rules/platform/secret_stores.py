"""Rules over External Secrets: the store in which a secret is looked for, and what is read."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.regions import PARTITIONS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.certificates import go_seconds
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_GROUP = "external-secrets.io"
_STORES = ("SecretStore", "ClusterSecretStore")
# What is read from a store; other kinds of the group still have this version.
_READ = ("ClusterExternalSecret", "ClusterSecretStore", "ExternalSecret", "SecretStore")
_GONE = "external-secrets.io/v1alpha1"
_SERVICES = ("ParameterStore", "SecretsManager")
_CLOSE = 0.8


def stores(together: ManifestSet) -> Iterator[Found]:
    """Warn of a secret that looks for its store among those of the other kind, or by another name.

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
            names = [
                each.name or "" for each in near if each.kind == kind and is_near(secret, each)
            ]
            close = get_close_matches(name or "", names, 1, _CLOSE)
            lone = names if len(names) == 1 and _alone(names[0], together) else []
            if not named and (close or lone) and name and not is_placeholder(name):
                found = f"no {kind} {shown(name)} among these: no secret is made"
                remedy = f"did you mean {(close or lone)[0]}?"
                finding = secret.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
                yield secret, finding
            if named and kind in _STORES and all(each.kind != kind for each in named):
                found = f"looks for {kind}/{name}, and there is {named[0].title}"
                remedy = f"write kind: {named[0].kind}"
                finding = secret.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
                yield secret, finding


def _alone(name: str, together: ManifestSet) -> bool:
    """Tell whether no secret names a store."""
    return not any(
        (mapping(each.spec.get("secretStoreRef")) or {}).get("name") == name
        for each in together.of("ExternalSecret", "PushSecret", "ClusterExternalSecret")
    )


def fields(manifest: Manifest) -> Iterator[Finding]:
    """Require of External Secrets' objects what its API and its webhook take.

    External Secrets, API reference, AWSProvider and ExternalSecretSpec, and
    apis/externalsecrets/v1/externalsecret_validator.go: "either data or dataFrom should be
    specified"; Go, time.ParseDuration, has no days.
    """
    if manifest.group != _GROUP or manifest.kind not in _READ:
        return
    if manifest.body.get("apiVersion") == _GONE:
        found = f"{_GONE} no longer serves {manifest.kind}"
        yield manifest.find(
            Code.API_VERSION, ("apiVersion",), found, f"use {_GROUP}/v1", Level.WARNING
        )
    aws = mapping((mapping(manifest.spec.get("provider")) or {}).get("aws")) or {}
    service = text(aws.get("service"))
    if service is not None and service not in _SERVICES and not is_placeholder(service):
        found = f"{shown(service)} is not one of them: the API server refuses the store"
        path: Path = ("spec", "provider", "aws", "service")
        close = get_close_matches(service, _SERVICES, 1, _CLOSE)
        remedy = f"write {close[0] if close else ' or '.join(_SERVICES)}"
        yield manifest.find(Code.MANIFEST_VALUE, path, found, remedy)
    region = text(aws.get("region")) or ""
    nearly = get_close_matches(region, PARTITIONS, 1, _CLOSE)
    if region not in PARTITIONS and nearly and not is_placeholder(region):
        found = f"no region {shown(region)}: no secret is read"
        path = ("spec", "provider", "aws", "region")
        remedy = f"did you mean {nearly[0]}?"
        yield manifest.find(Code.MANIFEST_VALUE, path, found, remedy, Level.WARNING)
    every = manifest.spec.get("refreshInterval")
    if manifest.kind == "ExternalSecret" and not is_placeholder(str(every)):
        if not is_absent(every) and go_seconds(every) is None:
            found = f"{shown(every)} is no duration: the API server refuses the secret"
            remedy = "write it in hours and minutes, such as 24h"
            yield manifest.find(Code.MANIFEST_VALUE, ("spec", "refreshInterval"), found, remedy)
        if manifest.spec and all(is_absent(manifest.spec.get(key)) for key in ("data", "dataFrom")):
            found = "neither data nor dataFrom: External Secrets refuses it"
            yield manifest.find(Code.MISSING_FIELD, ("spec", "data"), found, "add data")


def accounts(together: ManifestSet) -> Iterator[Found]:
    """Warn of a store that signs in by a service account which only nearly is there.

    External Secrets, AWS, "EKS Service Account credentials": a SecretStore takes one of its own
    namespace.
    """
    for store in together.of(*_STORES):
        aws = mapping((mapping(store.spec.get("provider")) or {}).get("aws")) or {}
        token = mapping((mapping(aws.get("auth")) or {}).get("jwt")) or {}
        asked = mapping(token.get("serviceAccountRef")) or {}
        name = text(asked.get("name"))
        space = text(asked.get("namespace")) or store.namespace
        if store.group != _GROUP or not name or is_placeholder(name):
            continue
        names = [
            each.name or ""
            for each in together.of("ServiceAccount")
            if each.namespace == space and is_near(store, each)
        ]
        close = get_close_matches(name, names, 1, _CLOSE)
        if close and name not in names:
            found = f"no ServiceAccount {shown(name)} among these: the store signs in as nobody"
            path: Path = ("spec", "provider", "aws", "auth", "jwt", "serviceAccountRef", "name")
            remedy = f"did you mean {close[0]}?"
            yield store, store.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
