"""Rules over the annotation that gives pods a role: where it stands, and what it names."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_absent, is_placeholder, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_ROLE = "eks.amazonaws.com/role-arn"
_ARN = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+")
# Those of kube2iam and others, which nothing on EKS reads; slips of a letter are found elsewhere.
_NEARLY = re.compile(r"iam\.amazonaws\.com/role|eks\.amazonaws\.com/(iam-)?role|.*/iam-role-arn")
_ACCOUNT = "ServiceAccount"


def unread(together: ManifestSet) -> Iterator[Found]:
    """Refuse a role on pods, or on what makes them, whose service account has none.

    EKS User Guide, "Assign IAM roles to Kubernetes service accounts", and
    aws/amazon-eks-pod-identity-webhook, README: only the service account's annotation is read.
    """
    for manifest in together.objects:
        for path, notes in _places(manifest):
            # Operators copy the notes of some kinds to an account: Crossplane's ControllerConfig.
            if _ROLE not in notes or manifest.kind == _ACCOUNT or not _is_known(manifest):
                continue
            annotated = [_annotated(manifest, pod, together) for pod in manifest.pods]
            level = Level.WARNING if not annotated or None in annotated else Level.ERROR
            if all(annotated) and annotated:
                level = Level.WARNING
            found = "a role that nothing reads here: these pods take their service account's"
            finding = manifest.find(
                Code.ROLE_UNREAD,
                (*path, _ROLE),
                found,
                f"annotate {_account(manifest)} with it",
                level,
            )
            yield manifest, finding


def _is_known(manifest: Manifest) -> bool:
    return bool(manifest.pods) or "." not in manifest.group or manifest.group.endswith(".k8s.io")


def _account(manifest: Manifest) -> str:
    names = {text(pod.spec.get("serviceAccountName")) or "default" for pod in manifest.pods}
    return f"ServiceAccount {', '.join(sorted(names))}" if names else "a ServiceAccount"


def _annotated(manifest: Manifest, pod: Pod, together: ManifestSet) -> bool | None:
    """Tell whether the service account of pods has a role; None if it is not at hand."""
    name = text(pod.spec.get("serviceAccountName")) or "default"
    account = together.named(manifest, _ACCOUNT, name)
    return None if account is None else _ROLE in _notes(dict(account.body))


def _places(manifest: Manifest) -> "Iterator[tuple[Path, dict[str, Json]]]":
    yield ("metadata", "annotations"), _notes(dict(manifest.body))
    for pod in manifest.pods:
        *outer, last = pod.path[1:]
        if last != "spec" or not outer:
            continue
        value: Json = dict(manifest.body)
        for key in outer:
            value = (mapping(value) or {}).get(str(key))
        yield (*outer, "metadata", "annotations"), _notes(value)


def _notes(value: Json) -> "dict[str, Json]":
    metadata = mapping((mapping(value) or {}).get("metadata")) or {}
    return mapping(metadata.get("annotations")) or {}


def accounts(manifest: Manifest) -> Iterator[Finding]:
    """Require of a service account's role the annotation's own name and the ARN of a role.

    aws/amazon-eks-pod-identity-webhook, README: another key, or a label, gives pods no role; STS
    refuses what is no role.
    """
    if manifest.kind != _ACCOUNT:
        return
    notes = _notes(dict(manifest.body))
    for key in notes:
        if key != _ROLE and _NEARLY.fullmatch(key) and _ROLE not in notes:
            found = f"{shown(key)}, which nothing reads: the pods get no role"
            path: Path = ("metadata", "annotations", key)
            yield manifest.find(Code.ROLE_UNREAD, path, found, f"write {_ROLE}")
    if _ROLE in manifest.labels and _ROLE not in notes:
        found, path = (
            "a label, which nothing reads: the pods get no role",
            ("metadata", "labels", _ROLE),
        )
        yield manifest.find(Code.ROLE_UNREAD, path, found, "write it under annotations")
    value = text(notes.get(_ROLE))
    if value and not is_placeholder(value) and not _ARN.fullmatch(value):
        found = f"{shown(value)} is no ARN of a role: the pods get no credentials"
        remedy = "write it like arn:aws:iam::111122223333:role/NAME"
        path = ("metadata", "annotations", _ROLE)
        yield manifest.find(Code.ROLE_UNREAD, path, found, remedy)
    elif _ROLE in notes and is_absent(notes.get(_ROLE)):
        path = ("metadata", "annotations", _ROLE)
        yield manifest.find(Code.ROLE_UNREAD, path, "no role", "name one, or remove it")


def trusted(together: ManifestSet) -> Iterator[Found]:
    """Refuse a service account whose role, in a template beside it, trusts other ones alone.

    EKS User Guide, "Assign IAM roles to Kubernetes service accounts": namespace and name are in the
    condition of the role's trust; STS answers AccessDenied.
    """
    # Kustomize may put it in another namespace.
    if together.of("Kustomization"):
        return
    for account in together.of(_ACCOUNT):
        arn = text(_notes(dict(account.body)).get(_ROLE)) or ""
        listed = together.subjects.get(arn.rpartition("/")[2]) if _ARN.fullmatch(arn) else None
        own = f"system:serviceaccount:{account.namespace}:{account.name}"
        known = account.namespace is not None and account.name is not None
        odd = is_placeholder(account.name or "")
        if listed is None or not known or odd or any(fnmatchcase(own, each) for each in listed):
            continue
        more = f" and {len(listed) - 1} more" if len(listed) > 1 else ""
        found = f"the role's trust admits {shown(listed[0])}{more}, and not this account: its "
        found += "pods get AccessDenied"
        remedy = f"write {own} in the condition of the trust"
        path: Path = ("metadata", "annotations", _ROLE)
        yield account, account.find(Code.ROLE_TRUST, path, found, remedy)
