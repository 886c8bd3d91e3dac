"""Rule over policies that allow to list a bucket, on its objects only."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import HOLDERS, statements, words
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, text

OF_BUCKETS = ("s3:ListBucket", "s3:GetBucketLocation")
_OBJECTS = re.compile(r"arn:[^:]*:s3:::[^/*?]+/.*")


def buckets(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of actions on buckets that a policy allows on objects alone.

    Service Authorization Reference, "Actions, resources, and condition keys for Amazon S3":
    ListBucket and GetBucketLocation are for buckets, and S3 answers AccessDenied.
    """
    for holder in templates.resources(*HOLDERS):
        # A policy of AWS, or one attached elsewhere, may allow the rest.
        attached = items(holder.properties.get("ManagedPolicyArns"))
        if attached is None or any("EKS" not in str(each) for each in attached):
            continue
        listed = _allowed(holder)
        for action in OF_BUCKETS if listed is not None else ():
            places = [path for path, body in listed or [] if action in words(body.get("Action"))]
            if places and not any(_on_a_bucket(body, action) for _, body in listed or []):
                found = f"{action} is allowed on objects alone: S3 answers AccessDenied"
                remedy = "name the bucket as well, without /*"
                yield holder.find(Code.POLICY, places[0], found, remedy, Level.WARNING)


def _allowed(holder: Resource) -> list[tuple[Path, dict[str, Json]]] | None:
    """Return what a role or policy allows, with its places; None where a part is not known."""
    documents: list[tuple[Path, Json]] = []
    if not is_absent(holder.properties.get("PolicyDocument")):
        documents.append((("PolicyDocument",), holder.properties["PolicyDocument"]))
    inline = items(holder.properties.get("Policies"))
    for index, value in enumerate(inline or []):
        document = (mapping(value) or {}).get("PolicyDocument")
        documents.append((("Policies", index, "PolicyDocument"), document))
    found: list[tuple[Path, dict[str, Json]]] = []
    for path, document in documents:
        bodies = statements(document)
        if inline is None or bodies is None:
            return None
        found += [
            ((*path, "Statement", index), body)
            for index, body in enumerate(bodies)
            if body.get("Effect") != "Deny"
        ]
    return found


def _on_a_bucket(body: dict[str, Json], action: str) -> bool:
    """Tell whether a statement allows the action on a bucket, or may do so."""
    written = body.get("Action")
    actions = [written] if isinstance(written, str) else items(written)
    exact = actions is not None and all(
        isinstance(each, str) and "*" not in each and "?" not in each for each in actions
    )
    if exact and action not in (actions or []) and is_absent(body.get("NotAction")):
        return False
    value = body.get("Resource")
    resources = items(value) if isinstance(value, list) else [value]
    return not resources or not all(_is_of_objects(each) for each in resources)


def _is_of_objects(value: Json) -> bool:
    """Tell an ARN of objects, also one that is put together from a bucket's own."""
    if isinstance(value, dict) and len(value) == 1:
        inner = value.get("Fn::Sub", value.get("Fn::Join"))
        if isinstance(inner, list) and inner:
            joined = inner[-1] if "Fn::Join" in value else None
            inner = joined[-1] if isinstance(joined, list) and joined else inner[0]
        return (text(inner) or "").endswith("/*")
    return _OBJECTS.fullmatch(text(value) or "") is not None
