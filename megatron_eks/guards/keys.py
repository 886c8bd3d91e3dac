"""Guards of keys: who may use them, and that they stay as long as what they encrypt."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.statements import Need, needs, statements, texts
from megatron_eks.guards.templates import Templates, constants, template_guard

_KEPT = ("Retain", "RetainExceptOnCreate")
_POLICIES = ("DeletionPolicy", "UpdateReplacePolicy")
_CONTEXT = "kms:EncryptionContext:aws:logs:arn"
_LOGS = ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
_DOMAINS = ("amazonaws.com", "${AWS::URLSuffix}", "amazonaws.com.cn")
_ACCOUNT = "arn:${AWS::Partition}:iam::${AWS::AccountId}:root|${AWS::AccountId}"
_ROOT = Need(Code.KEY_POLICY, "no role can use the key", ("kms:*",), ("*",), _ACCOUNT)
_USABLE: dict[str, Json] = {
    "Enabled": True,
    "KeySpec": "SYMMETRIC_DEFAULT",
    "KeyUsage": "ENCRYPT_DECRYPT",
}
_KEY = [(name, (value, None), "nothing can be encrypted") for name, value in _USABLE.items()]
_ROTATION = (("EnableKeyRotation", (True,), "it is never rotated"),)
_EFS = (("Encrypted", (True,), "EFS refuses a KmsKeyId else"),)
_DATA = ("FSx::FileSystem", "EFS::FileSystem", "S3::Bucket")


@template_guard
def key_policies(templates: Templates) -> Iterator[Finding]:
    """Let an account manage its keys, and log groups use them (KMS, "Default key policy")."""
    keys, code = templates.of("KMS::Key"), Code.KEY_POLICY
    yield from constants(keys, Code.ENCRYPTION, _ROTATION, Level.WARNING)
    yield from constants(keys, code, _KEY)
    for key in keys:
        policy = [key["KeyPolicy"]]
        yield from needs(templates, policy, _ROOT)
        parts = [e[k] for e in statements(*policy) for k in ("Condition", "Principal")]
        said = [texts(templates, e) for p in parts for e in (p["ArnLike"][_CONTEXT], p["Service"])]
        place = re.search(r"\blogs[.:]([a-z]+-[a-z0-9-]+|\$\{AWS::Region\})[.:]", str(said))
        region = place[1] if place else "REGION"
        who = "|".join(f"logs.{region}.{domain}" for domain in _DOMAINS)
        for group in (e for e in templates.users(key) if e.type == "AWS::Logs::LogGroup"):
            arn = f"arn:${{AWS::Partition}}:logs:{region}:${{AWS::AccountId}}:log-group:"
            test = ("ArnLike", _CONTEXT, f"{arn}{templates.text(group['LogGroupName'])}")
            actions, why = tuple(f"kms:{e}" for e in _LOGS), f"log group {group.name} is not made"
            yield from needs(templates, policy, Need(code, why, actions, ("*",), who, (test,)))


@template_guard
def encrypted_with_the_key(templates: Templates) -> Iterator[Finding]:
    """Use the stack's key, where FSx has not its own: scratch (KMS, "AWS managed keys")."""
    files = {key.file for key in templates.of("KMS::Key")}
    with_key = [each for each in templates.of("EFS::FileSystem") if each["KmsKeyId"]]
    yield from constants(with_key, Code.ENCRYPTION, _EFS)
    kinds = ("FSx::FileSystem", "EFS::FileSystem", "Logs::LogGroup", "CodeBuild::Project")
    for each in templates.of(*kinds):
        key = each["EncryptionKey" if "CodeBuild" in each.type else "KmsKeyId"]
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
    data = templates.of(*_DATA)
    # `storage.retain: false` writes Delete everywhere; that of Lustre is worth a word.
    kept = {e.file for e in data if any(e.body[name].raw != "Delete" for name in _POLICIES)}
    for each in templates.resources:
        deleted, replaced = [each.body[name] for name in _POLICIES]
        matters = each in data and (each.file in kept or "FSx" in each.type)
        row = [(name, _KEPT, f"{each.name} is lost with the stack") for name in _POLICIES]
        if matters or deleted.raw != replaced.raw:
            yield from each.body.must_hold(Code.LUSTRE_RETAINED, row, Level.WARNING)
        for key in templates.of("KMS::Key") if deleted.raw in _KEPT else ():
            if each in templates.users(key):
                why = f"{each.name} stays, unreadable"
                yield from key.body[_POLICIES[0]].must_be(Code.KEY_LOST, *_KEPT, why=why)
