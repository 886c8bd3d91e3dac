"""Guards of the repositories that keep images."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.guards.cluster import json_of
from megatron_eks.guards.templates import Templates, constants, template_guard
from megatron_eks.guards.values import NO, Value

_EXPIRES, _FIXED = Code.EXPIRES, "IMMUTABLE_WITH_EXCLUSION"
_GONE = "the images of running jobs are deleted with the stack"
_MUST = (
    ("ImageTagMutability", (_FIXED, "IMMUTABLE"), "a tag moves under a job that restarts"),
    ("EmptyOnDelete", (NO, None), _GONE),
    ("EncryptionConfiguration EncryptionType", ("KMS", "KMS_DSSE"), "no key of this account"),
)
_KEPT = (("DeletionPolicy", ("Retain",), _GONE), ("UpdateReplacePolicy", ("Retain",), _GONE))


@template_guard
def repositories(templates: Templates) -> Iterator[Finding]:
    """Jobs name images that stay, as they were (ECR, "Tag mutability", "Lifecycle policies")."""
    every = templates.of("ECR::Repository")
    yield from constants(every, Code.ENCRYPTION, _MUST)
    for each in every:
        yield from each.body.must_hold(_EXPIRES, _KEPT)
        filters = each["ImageTagMutabilityExclusionFilters"]
        movable = [entry[f"{filters.name[:-1]}Value"].text for entry in filters]
        if each["ImageTagMutability"].text == _FIXED and movable != ["latest"]:
            found = f"tags {', '.join(movable) or 'none'} can be moved: a job restarts with another"
            yield filters.finding(Code.ENCRYPTION, found, "name 'latest' alone, as a WILDCARD")
        written = each["LifecyclePolicy"]["LifecyclePolicyText"]
        rules = Value(json_of(written), written.place, written.path)["rules"]
        for chosen in (rule["selection"] for rule in rules):
            patterns = {*chosen["tagPrefixList"].texts, *chosen["tagPatternList"].texts}
            states = ("untagged", "tagged")[: 1 + bool(patterns - {"*", ""})]
            yield from chosen["tagStatus"].must_be(_EXPIRES, *states, why="jobs miss their images")
