"""Guards of keys: who may use them, and that they stay as long as what they encrypt."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.statements import Need, needs, statements, texts
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import Value

_KEPT = ("Retain", "RetainExceptOnCreate")
_CONTEXT = "kms:EncryptionContext:aws:logs:arn"
_LOGS = ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
_DOMAINS = ("amazonaws.com", "${AWS::URLSuffix}", "amazonaws.com.cn")
_ACCOUNT = "arn:${AWS::Partition}:iam::${AWS::AccountId}:root|${AWS::AccountId}"
_NOBODY = "no role can use the key, and KMS refuses it"
_ROOT = Need(Code.KEY_POLICY, _NOBODY, ("kms:*",), ("*",), _ACCOUNT)
_USELESS = "nothing can be encrypted with it, or read"
_KEY = (
    ("Enabled", (True, None), _USELESS),
    ("KeySpec", ("SYMMETRIC_DEFAULT", None), _USELESS),
    ("KeyUsage", ("ENCRYPT_DECRYPT", None), _USELESS),
)
_ROTATION = (("EnableKeyRotation", (True,), "it is never rotated"),)
_EFS = (("Encrypted", (True,), "EFS refuses a KmsKeyId else"),)
_KEY_OF = {
    "AWS::FSx::FileSystem": "KmsKeyId",
    "AWS::EFS::FileSystem": "KmsKeyId",
    "AWS::Logs::LogGroup": "KmsKeyId",
    "AWS::CodeBuild::Project": "EncryptionKey",
}
_DATA = ("AWS::FSx::FileSystem", "AWS::EFS::FileSystem", "AWS::S3::Bucket")


@template_guard
def key_policies(templates: Templates) -> Iterator[Finding]:
    """Let an account manage its keys, and log groups use them (KMS, "Default key policy")."""
    keys, code = templates.of("KMS::Key"), Code.KEY_POLICY
    yield from constants(keys, Code.ENCRYPTION, _ROTATION, Level.WARNING)
    yield from constants(keys, code, _KEY)
    for key in keys:
        policy = [key["KeyPolicy"]]
        yield from needs(templates, policy, _ROOT)
        said = [texts(templates, e["Condition"]["ArnLike"][_CONTEXT]) for e in statements(*policy)]
        said += [texts(templates, e["Principal"]["Service"]) for e in statements(*policy)]
        place = re.search(r"\blogs[.:]([a-z]+-[a-z0-9-]+|\$\{AWS::Region\})[.:]", str(said))
        region = place[1] if place else "REGION"
        who = "|".join(f"logs.{region}.{domain}" for domain in _DOMAINS)
        for group in (e for e in templates.users(key) if e.type == "AWS::Logs::LogGroup"):
            arn = f"arn:${{AWS::Partition}}:logs:{region}:${{AWS::AccountId}}:log-group:"
            test = ("ArnLike", _CONTEXT, f"{arn}{templates.text(group['LogGroupName'])}")
            actions, why = tuple(f"kms:{e}" for e in _LOGS), f"log group {group.name} is not made"
            need = Need(code, why, actions, ("*",), who, (test,))
            yield from needs(templates, policy, need)


@template_guard
def encrypted_with_the_key(templates: Templates) -> Iterator[Finding]:
    """Use the stack's key, where FSx has not its own: scratch (KMS, "AWS managed keys")."""
    files = {key.file for key in templates.of("KMS::Key")}
    with_key = [each for each in templates.of("EFS::FileSystem") if each["KmsKeyId"]]
    yield from constants(with_key, Code.ENCRYPTION, _EFS)
    for each in (each for each in templates.resources if each.type in _KEY_OF):
        key = each[_KEY_OF[each.type]]
        target = templates.target(key)
        scratch = each["LustreConfiguration"]["DeploymentType"].text.startswith("SCRATCH")
        other = target and (target.type != "AWS::KMS::Key" or key["Ref"])
        if other or (not key.raw and each.file in files and not scratch):
            found = f"{key.name} is not the key of the stack: others encrypt {each.name}"
            level = Level.ERROR if other else Level.WARNING
            remedy = f"set {key.name} to Fn::GetAtt [KEY, Arn]"
            yield key.finding(Code.ENCRYPTION, found, remedy, level)


@template_guard
def kept_with_its_data(templates: Templates) -> Iterator[Finding]:
    """Keep data, and the key without which nobody reads them (CloudFormation, DeletionPolicy)."""
    data = [each for each in templates.resources if each.type in _DATA]
    # `storage.retain: false` writes Delete everywhere; that of Lustre is worth a word.
    kept = {e.file for e in data if any(policy.raw != "Delete" for policy in _policies(e))}
    for each in templates.resources:
        deleted, replaced = policies = _policies(each)
        matters = each in data and (each.file in kept or "FSx" in each.type)
        for policy in policies if matters or deleted.raw != replaced.raw else ():
            if policy.raw not in _KEPT:
                found = f"{policy.name} is {policy.raw or 'absent'}: {each.name} is lost with "
                found, remedy = (
                    f"{found}the stack, or when replaced",
                    f"set {policy.name} to Retain",
                )
                yield policy.finding(Code.LUSTRE_RETAINED, found, remedy, Level.WARNING)
        for key in templates.of("KMS::Key") if deleted.raw in _KEPT else ():
            policy = _policies(key)[0]
            if each in templates.users(key) and policy.raw not in _KEPT:
                found = f"the key goes with its stack, and {each.name} stays, unreadable"
                remedy = "set DeletionPolicy and UpdateReplacePolicy to Retain"
                yield policy.finding(Code.KEY_LOST, found, remedy)


def _policies(resource: Resource) -> tuple[Value, Value]:
    return resource.body["DeletionPolicy"], resource.body["UpdateReplacePolicy"]
