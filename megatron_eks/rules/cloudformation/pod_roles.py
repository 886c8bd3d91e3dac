"""Rules over the roles that pods take."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.policies import granted, of_pods, words
from megatron_eks.rules.values import is_placeholder, shown, text

if TYPE_CHECKING:
    from megatron_eks.config.load import Json
    from megatron_eks.rules.template_set import TemplateSet

_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAMES = (
    ("Namespace", re.compile(_LABEL), 63),
    ("ServiceAccount", re.compile(rf"{_LABEL}(\.{_LABEL})*"), 253),
)


def every_bucket(templates: "TemplateSet") -> Iterator[Finding]:
    """Refuse that pods may do anything with any bucket of the account, or with all of it.

    IAM User Guide, "Apply least-privilege permissions": whoever can start a pod can do it too.
    """
    for holder in sorted(of_pods(templates), key=lambda each: (each.file, each.id)):
        for path, statement in granted(holder):
            target = _unlimited(statement)
            if target:
                found = f"pods may do anything with {target}"
                remedy = "name the actions they need, and bucket and prefix of each"
                yield holder.find(Code.POD_ROLE, path, found, remedy)


def _unlimited(statement: "dict[str, Json]") -> str | None:
    """Say what a statement gives away, if that is every bucket or the account."""
    actions = {word.lower() for word in words(statement.get("Action"))}
    if "*" not in words(statement.get("Resource")):
        return None
    if "*" in actions:
        return "the whole account"
    return "every bucket of the account" if "s3:*" in actions else None


def service_accounts(templates: "TemplateSet") -> Iterator[Finding]:
    """Require names of service accounts and namespaces that Kubernetes can have.

    Kubernetes, "Object Names and IDs": DNS subdomain and label names; EKS API,
    CreatePodIdentityAssociation, takes any text, and no pod ever matches it.
    """
    for identity in templates.resources("AWS::EKS::PodIdentityAssociation"):
        for key, form, longest in _NAMES:
            name = text(identity.properties.get(key))
            if name is None or is_placeholder(name):
                continue
            if not form.fullmatch(name) or len(name) > longest:
                found = f"Kubernetes can have no {shown(name)}, so no pod gets the role"
                remedy = "use small letters, digits and hyphens"
                yield identity.find(Code.POD_ROLE, (key,), found, remedy)
