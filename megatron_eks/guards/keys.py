"""Guards of keys: who may use them, and that they stay as long as what they encrypt."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.statements import Need, needs, statements
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import Value

_KEPT = ("Retain", "RetainExceptOnCreate")
_CONTEXT = "kms:EncryptionContext:aws:logs:arn"
_LOGS = ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
_ACCOUNT = "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"
_NOBODY = "no role can use the key, and KMS refuses it"
_ROOT = Need(Code.KEY_POLICY, _NOBODY, ("kms:*",), ("*",), _ACCOUNT)
_USELESS = "nothing can be encrypted with it, or read"
_KEY_OF = {
    "AWS::FSx::FileSystem": "KmsKeyId",
    "AWS::EFS::FileSystem": "KmsKeyId",
    "AWS::Logs::LogGroup": "KmsKeyId",
    "AWS::CodeBuild::Project": "EncryptionKey",
}
_DATA = ("AWS::FSx::FileSystem", "AWS::EFS::FileSystem", "AWS::S3::Bucket")


def _keys_of(resource: Resource, templates: Templates) -> list[Resource]:
    return [key for key in templates.of("KMS::Key") if resource in templates.users(key)]


@template_guard
def key_policies(templates: Templates) -> Iterator[Finding]:
    """Require keys that work, that somebody may manage, and that CloudWatch Logs may use.

    KMS Developer Guide, "Default key policy"; CloudWatch Logs User Guide, "Encrypt log data".
    """
    keys, code = templates.of("KMS::Key"), Code.KEY_POLICY
    rotation = ("EnableKeyRotation", (True,), "it is never rotated")
    yield from constants(keys, Code.ENCRYPTION, (rotation,), Level.WARNING)
    rows = (
        ("Enabled", (True, None), _USELESS),
        ("KeySpec", ("SYMMETRIC_DEFAULT", None), _USELESS),
        ("KeyUsage", ("ENCRYPT_DECRYPT", None), _USELESS),
    )
    yield from constants(keys, code, rows)
    for key in keys:
        policy = [key["KeyPolicy"]]
        yield from needs(templates, policy, _ROOT)
        groups = [e for e in templates.users(key) if e.type == "AWS::Logs::LogGroup"]
        arns = [e["Condition"]["ArnLike"][_CONTEXT] for e in statements(*policy)]
        regions = re.findall(r":logs:([a-z0-9-]+):", str([templates.text(e) for e in arns]))
        region = regions[0] if regions else "*"
        for group in groups:
            arn = f"arn:${{AWS::Partition}}:logs:{region}:${{AWS::AccountId}}:log-group:"
            test = ("ArnLike", _CONTEXT, f"{arn}{templates.text(group['LogGroupName'])}")
            actions, who = tuple(f"kms:{name}" for name in _LOGS), f"logs.{region}.*"
            need = Need(code, f"log group {group.name} is not made", actions, (), who, (test,))
            yield from needs(templates, policy, need)


@template_guard
def encrypted_with_the_key(templates: Templates) -> Iterator[Finding]:
    """Use the key of the stack, as AWS's own key cannot be shared, limited or withdrawn.

    KMS Developer Guide, "AWS managed keys". FSx encrypts scratch file systems with its own key.
    """
    files = {key.file for key in templates.of("KMS::Key")}
    for resource in (each for each in templates.resources if each.type in _KEY_OF):
        key = resource[_KEY_OF[resource.type]]
        target = templates.target(key)
        scratch = resource["LustreConfiguration"]["DeploymentType"].text.startswith("SCRATCH")
        other = target and (target.type != "AWS::KMS::Key" or key["Ref"])
        if other or (not key.raw and resource.file in files and not scratch):
            found = f"{key.name} is not the key of the stack: others encrypt {resource.name}"
            remedy = f"set {key.name} to Fn::GetAtt [KEY, Arn]"
            level = Level.ERROR if other else Level.WARNING
            yield key.finding(Code.ENCRYPTION, found, remedy, level)


@template_guard
def kept_with_its_data(templates: Templates) -> Iterator[Finding]:
    """Keep data longer than their stack, and the key without which nobody reads them.

    CloudFormation User Guide, "DeletionPolicy attribute"; KMS Developer Guide, "Delete a KMS key".
    """
    data = [each for each in templates.resources if each.type in _DATA]
    # `storage.retain: false` writes Delete everywhere; that of Lustre is worth a word.
    kept = {e.file for e in data if any(policy.raw != "Delete" for policy in _policies(e))}
    for resource in templates.resources:
        policies = _policies(resource)
        lost = [each for each in policies if each.raw not in _KEPT]
        matters = resource in data and (resource.file in kept or "FSx" in resource.type)
        for policy in lost if matters or len({str(each.raw) for each in policies}) > 1 else ():
            found = f"{policy.name} is {policy.raw or 'absent'}: {resource.name} is lost with "
            found += "the stack, or when it is replaced"
            yield policy.finding(
                Code.LUSTRE_RETAINED, found, f"set {policy.name} to Retain", Level.WARNING
            )
        for key in _keys_of(resource, templates) if policies[0].raw in _KEPT else ():
            if (policy := _policies(key)[0]).raw not in _KEPT:
                found = f"the key goes with its stack, and {resource.name} stays, unreadable"
                remedy = "set DeletionPolicy and UpdateReplacePolicy to Retain"
                yield policy.finding(Code.KEY_LOST, found, remedy)


def _policies(resource: Resource) -> tuple[Value, Value]:
    return resource.body["DeletionPolicy"], resource.body["UpdateReplacePolicy"]
