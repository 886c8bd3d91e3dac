"""Rules over what goes with its stack while something that stays needs it."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import Resource, TemplateSet

_KEPT = frozenset({"Retain", "RetainExceptOnCreate"})
# What holds data, and names the key that encrypts them.
_DATA = (
    *("AWS::FSx::FileSystem", "AWS::S3::Bucket", "AWS::EFS::FileSystem", "AWS::ECR::Repository"),
    *("AWS::Logs::LogGroup", "AWS::EC2::Volume", "AWS::SecretsManager::Secret"),
)


def keys(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a key that it stays as long as the data that it encrypts.

    KMS Developer Guide, "Delete a KMS key": what was encrypted with it can never be read again;
    CloudFormation, "DeletionPolicy attribute": without one a key is scheduled for deletion.
    """
    for kind in _DATA:
        for data in templates.resources(kind):
            if data.body.get("DeletionPolicy") != "Retain":
                continue
            for key in keys_of(dict(data.properties), data, templates):
                policy = key.body.get("DeletionPolicy", "Delete")
                if isinstance(policy, str) and policy not in _KEPT:
                    found = f"the key goes with its stack, and {data.id}, which it encrypts, stays"
                    remedy = "set DeletionPolicy and UpdateReplacePolicy of the key to Retain"
                    yield key.find(Code.KEY_LOST, ("DeletionPolicy",), found, remedy)


def keys_of(value: Json, user: Resource, templates: TemplateSet) -> Iterator[Resource]:
    """Return the keys at hand that a value names, at any depth."""
    target = templates.target(value, user.file) if isinstance(value, dict) else None
    if target is not None and target.type == "AWS::KMS::Key":
        yield target
    children = value if isinstance(value, list) else ()
    for each in value.values() if isinstance(value, dict) else children:
        yield from keys_of(each, user, templates)
