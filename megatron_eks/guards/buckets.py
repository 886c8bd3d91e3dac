"""Guards of what keeps data: buckets, repositories of images, and keys."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.statements import Need, needs, statements, texts
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Value, report

_OPEN = "one slip in a policy opens data and checkpoints to everybody"
_BLOCKS = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
_CLOSED = tuple((f"PublicAccessBlockConfiguration {each}", (True,), _OPEN) for each in _BLOCKS)
_RULE = "BucketEncryption ServerSideEncryptionConfiguration 0 "
_ALGORITHM = f"{_RULE}ServerSideEncryptionByDefault SSEAlgorithm"
_KMS, _S3 = ("aws:kms", "aws:kms:dsse"), "AES256"
_ENCRYPTED = ((_ALGORITHM, (*_KMS, _S3), "nothing says how"),)
_VERSIONS = (("VersioningConfiguration Status", ("Enabled",), "what is overwritten is lost"),)
_TLS = ("Bool", "aws:SecureTransport", "false"), ("NumericLessThan", "s3:TlsVersion", "1.2|1.3")
_ACCOUNT = ("StringEquals", "aws:SourceAccount", "${AWS::AccountId}")
_KEPT = ("Retain", "RetainExceptOnCreate")
_POLICIES = ("DeletionPolicy", "UpdateReplacePolicy")
_CONTEXT = "kms:EncryptionContext:aws:logs:arn"
_LOG_USE = ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
_DOMAINS = ("amazonaws.com", "${AWS::URLSuffix}", "amazonaws.com.cn")
_OWNERS = "arn:${AWS::Partition}:iam::${AWS::AccountId}:root|${AWS::AccountId}"
_ROOT = Need(Code.KEY_POLICY, "no role can use the key", ("kms:*",), ("*",), _OWNERS)
_USABLE: dict[str, Json] = {
    "Enabled": True,
    "KeySpec": "SYMMETRIC_DEFAULT",
    "KeyUsage": "ENCRYPT_DECRYPT",
}
_KEY = [(name, (value, None), "nothing can be encrypted") for name, value in _USABLE.items()]
_ROTATION = (("EnableKeyRotation", (True,), "it is never rotated"),)
_DATA = ("FSx::FileSystem", "EFS::FileSystem", "S3::Bucket", "ECR::Repository")
_FIXED, _MOVABLE = "IMMUTABLE_WITH_EXCLUSION", "ImageTagMutabilityExclusionFilter"
_IMAGES = (
    ("ImageTagMutability", (_FIXED, "IMMUTABLE"), "a tag moves under a job that restarts"),
    (f"{_MOVABLE}s 0 {_MOVABLE}Value", ("latest", None), "a job restarts with another image"),
    ("EmptyOnDelete", (NO, None), "the images of running jobs go with the stack"),
    ("EncryptionConfiguration EncryptionType", ("KMS", "KMS_DSSE"), "no key of this account"),
)
_DOCKER = (("Environment PrivilegedMode", (YES,), "Docker does not start, and no image is built"),)


def data_buckets(templates: Templates) -> list[Resource]:
    """Return the buckets that are not there for the access logs of others."""
    buckets = templates.of("S3::Bucket")
    logs = [_logs_of(bucket, templates) for bucket in buckets]
    return [bucket for bucket, own in zip(buckets, logs, strict=True) if own or bucket not in logs]


def key_of(bucket: Resource) -> Value:
    """Return the key with which a bucket encrypts."""
    return bucket.properties.at(f"{_RULE}ServerSideEncryptionByDefault KMSMasterKeyID")


def _logs_of(bucket: Resource, templates: Templates) -> Resource | None:
    return templates.target(bucket["LoggingConfiguration"]["DestinationBucketName"])


@template_guard
def settings(templates: Templates) -> Iterator[Finding]:
    """Close and encrypt what keeps data, and keep it (S3, "Blocking public access"; ECR)."""
    buckets = templates.of("S3::Bucket")
    yield from constants(buckets, Code.OPEN_TO_ALL, _CLOSED)
    yield from constants(buckets, Code.ENCRYPTION, _ENCRYPTED)
    yield from constants(data_buckets(templates), Code.BUCKET_SETTINGS, _VERSIONS, Level.WARNING)
    yield from constants(templates.of("ECR::Repository"), Code.ENCRYPTION, _IMAGES)
    yield from constants(templates.of("CodeBuild::Project"), Code.PROPERTY, _DOCKER)


@template_guard
def data_stay(templates: Templates) -> Iterator[Finding]:
    """Let nothing expire that a job reads (S3, "Expiring objects"; ECR, "Lifecycle policies")."""
    listed = [each["LifecycleConfiguration"]["Rules"] for each in data_buckets(templates)]
    for rule in (rule for rules in listed for rule in rules if rule["Status"].raw != "Disabled"):
        moves = [each["StorageClass"] for each in (*rule["Transitions"], rule["Transition"])]
        away = [each for each in moves if each.text in {"GLACIER", "DEEP_ARCHIVE"}]
        prefix = rule["Prefix"].text  # of what `meks data push` fills, or jobs write?
        read = any(prefix.startswith(e) or e.startswith(prefix) for e in ("data/", "checkpoints/"))
        for when in (rule["ExpirationInDays"], rule["ExpirationDate"], *away) if read else ():
            level = Level.WARNING if rule["TagFilters"] else Level.ERROR
            found = f"{when.name} {when.raw} takes away what a restart or a running job reads"
            remedy = "remove it: NoncurrentVersionExpiration deletes only what was replaced"
            yield from report(Code.EXPIRES, (when, when, found, remedy), level=level)
    for each in templates.of("ECR::Repository"):
        for rule in each["LifecyclePolicy"]["LifecyclePolicyText"].parsed["rules"]:
            chosen, why = rule["selection"], "jobs miss their images"
            patterns = {*chosen["tagPrefixList"].texts, *chosen["tagPatternList"].texts}
            states = ("untagged", "tagged")[: 1 + bool(patterns - {"*", ""})]
            yield from chosen["tagStatus"].must_be(Code.EXPIRES, *states, why=why)


@template_guard
def bucket_policies(templates: Templates) -> Iterator[Finding]:
    """Refuse what passes openly, and let S3 write access logs (S3, "Security best practices")."""
    code, data = Code.BUCKET_SETTINGS, data_buckets(templates)
    for bucket in templates.of("S3::Bucket"):
        beside = templates.of("S3::BucketPolicy")
        policies = [e["PolicyDocument"] for e in beside if templates.target(e["Bucket"]) == bucket]
        policies, arn = policies or [bucket["BucketPolicy"]], f"${{{bucket.name}.Arn}}"
        on, why = (arn, f"{arn}/*"), f"data of {bucket.name} can pass openly"
        wanted = [Need(code, why, ("s3:*",), on, "*", (e,), "Deny", Level.WARNING) for e in _TLS]
        for source in (e for e in data if e != bucket and _logs_of(e, templates) == bucket):
            why = "S3 delivers no access logs to a bucket whose default is a key"
            yield from bucket.properties.must_hold(code, ((_ALGORITHM, (_S3, None), why),))
            tests = (_ACCOUNT, ("ArnLike", "aws:SourceArn", f"${{{source.name}.Arn}}"))
            why, who = "access logs are lost", "logging.s3.amazonaws.com"
            wanted.append(Need(code, why, ("s3:PutObject",), on[1:], who, tests))
        for need in wanted:
            yield from needs(templates, policies, need)


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
            actions = tuple(f"kms:{each}" for each in _LOG_USE)
            why = f"log group {group.name} is not made"
            yield from needs(templates, policy, Need(code, why, actions, ("*",), who, (test,)))


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
