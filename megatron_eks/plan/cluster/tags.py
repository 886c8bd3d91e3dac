"""What AWS and this project refuse of tags."""

import re
from collections.abc import Iterator

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding

# Every service takes these, letters and digits of all scripts among them: \p{L} and \p{N} in IAM's
# and FSx's API references; some take more (AWS General Reference, "Tagging AWS resources").
_TAG_TEXT = re.compile(r"[\w.:/=+@-]([\w .:/=+@-]*[\w.:/=+@-])?")
_TAG_KEY_LENGTH, _TAG_VALUE_LENGTH = 128, 256
# A resource takes 50; names and Kubernetes' roles of subnets need some.
_MOST_TAGS = 40


def check_tags(config: ClusterConfig) -> Iterator[Finding]:
    """Yield tags that cannot be made."""
    if len(config.tags) > _MOST_TAGS:
        found, remedy = f"{len(config.tags)} tags", f"use at most {_MOST_TAGS}; AWS takes 50"
        yield Finding(Code.TAG, ("tags",), found, remedy)
    lower = [key.lower() for key in config.tags]
    for index, key in enumerate(config.tags):
        if lower[index] in lower[:index]:
            found = f"{key!r} differs from another key in capitals only, which IAM does not take"
            yield Finding(Code.TAG, ("tags", key), found, "use one of them")
    for key, value in config.tags.items():
        if problem := _tag(key, value):
            yield Finding(Code.TAG, ("tags", key), *problem)


def _tag(key: str, value: str) -> tuple[str, str] | None:
    """Say what AWS does not take of a tag, and what to do."""
    if key.lower().startswith("aws:"):
        return "tags that start with 'aws:' belong to AWS", "use another key"
    if key.lower() == "name" or key.startswith("kubernetes.io/"):
        return f"{key!r} is set by this project on each resource", "use another key"
    if not key or not value:
        # CloudFormation's schemas of AWS::ECR::Repository, AWS::EKS::Addon and others: at least
        # one character, unlike the services themselves.
        missing = "value" if key else "key"
        return f"a tag without a {missing}", f"give it a {missing}, or remove it"
    if not _TAG_TEXT.fullmatch(key) or not _TAG_TEXT.fullmatch(value):
        remedy = "use letters, digits, spaces and _ . : / = + - @"
        return "a key or value with signs that AWS does not take", remedy
    if len(key) > _TAG_KEY_LENGTH or len(value) > _TAG_VALUE_LENGTH:
        found = f"a key of {len(key)} and a value of {len(value)} characters"
        return found, "use at most 128 for the key and 256 for the value"
    return None
