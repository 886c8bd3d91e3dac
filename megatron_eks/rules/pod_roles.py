"""Rules over the roles that pods take."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.policies import granted, of_pods, words

if TYPE_CHECKING:
    from megatron_eks.config.load import Json
    from megatron_eks.rules.template_set import TemplateSet


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
