"""Rules over the roles that pods take."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from megatron_eks.config.errors import Code, Finding
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import items, mapping

if TYPE_CHECKING:
    from megatron_eks.config.load import Json

_PODS = "pods.eks.amazonaws.com"
_EVERY_ACTION = frozenset({"*", "s3:*"})


def every_bucket(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse that pods may do anything with any bucket of the account.

    IAM User Guide, "Apply least-privilege permissions": whoever can start a pod can do it too.
    """
    for role in templates.resources("AWS::IAM::Role"):
        if not _taken_by_pods(role):
            continue
        for index, policy in enumerate(items(role.properties.get("Policies")) or ()):
            document = (mapping(policy) or {}).get("PolicyDocument")
            for place, statement in enumerate(_statements(document)):
                if statement.get("Effect") == "Allow" and _unlimited(statement):
                    path = ("Policies", index, "PolicyDocument", "Statement", place)
                    found = "pods may do anything with every bucket of the account"
                    remedy = "name the actions they need, and bucket and prefix of each"
                    yield role.find(Code.POD_ROLE, path, found, remedy)


def _taken_by_pods(role: Resource) -> bool:
    trust = _statements(role.properties.get("AssumeRolePolicyDocument"))
    principals = [mapping(statement.get("Principal")) or {} for statement in trust]
    return any(_PODS in _words(principal.get("Service")) for principal in principals)


def _unlimited(statement: "dict[str, Json]") -> bool:
    actions = {word.lower() for word in _words(statement.get("Action"))}
    everything = "*" in _words(statement.get("Resource"))
    return everything and bool(actions & _EVERY_ACTION) and not mapping(statement.get("Condition"))


def _statements(document: "Json") -> "list[dict[str, Json]]":
    """Return the statements of a policy; a single one need not be in a list."""
    value = (mapping(document) or {}).get("Statement")
    every = [value] if isinstance(value, dict) else items(value) or []
    return [statement for statement in every if isinstance(statement, dict)]


def _words(value: "Json") -> list[str]:
    """Return the texts of one text or a list of them."""
    every = [value] if isinstance(value, str) else items(value) or []
    return [word for word in every if isinstance(word, str)]
