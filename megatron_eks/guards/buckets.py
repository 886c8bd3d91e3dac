"""Guards of buckets: what they hold stays, is encrypted, and is nobody else's."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.statements import Need, is_everybody, needs, statements
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import Value

_CLOSED = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
_OPEN = "one slip in a policy opens data and checkpoints to everybody"
_RULE = "BucketEncryption ServerSideEncryptionConfiguration 0 "
_ALGORITHM = "nobody says how objects are encrypted"
_OWNER = "ACLs of objects decide who reads them, beside the policies"
_SLOW = "S3 asks KMS for each object, which is slow and paid for"
_VERSIONS = "a checkpoint that is overwritten or deleted is lost"
_READ_BY_JOBS = ("data", "checkpoints")  # what `meks data push` fills, and jobs write
_CLEAN_UP = (
    ("NoncurrentVersionExpiration", "NoncurrentDays"),
    ("AbortIncompleteMultipartUpload", "DaysAfterInitiation"),
)


def data_buckets(templates: Templates) -> list[Resource]:
    """Return the buckets that are not there for the access logs of others."""
    buckets = templates.of("S3::Bucket")
    logs = [_logs_of(bucket, templates) for bucket in buckets]
    return [bucket for bucket, own in zip(buckets, logs, strict=True) if own or bucket not in logs]


def key_of(bucket: Resource) -> tuple[Value, Value]:
    """Return how a bucket encrypts, and with which key."""
    rule = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
    default = rule["ServerSideEncryptionByDefault"]
    return default["SSEAlgorithm"], default["KMSMasterKeyID"]


def _logs_of(bucket: Resource, templates: Templates) -> Resource | None:
    return templates.target(bucket["LoggingConfiguration"]["DestinationBucketName"])


def _policies(bucket: Resource, templates: Templates) -> list[Value]:
    policies = templates.of("S3::BucketPolicy")
    own = [e["PolicyDocument"] for e in policies if templates.target(e["Bucket"]) == bucket]
    return own or [bucket["BucketPolicy"]]


@template_guard
def bucket_settings(templates: Templates) -> Iterator[Finding]:
    """Close buckets to the public, encrypt them, and let their owner own what is in them.

    S3 User Guide, "Blocking public access", "Controlling ownership of objects", "Using SSE-KMS".
    """
    buckets, data = templates.of("S3::Bucket"), data_buckets(templates)
    closed = tuple((f"PublicAccessBlockConfiguration {e}", (True,), _OPEN) for e in _CLOSED)
    yield from constants(buckets, Code.OPEN_TO_ALL, closed)
    algorithm, algorithms = f"{_RULE}ServerSideEncryptionByDefault SSEAlgorithm", ("aws:kms",)
    any_of = (*algorithms, "aws:kms:dsse", "AES256")
    yield from constants(buckets, Code.ENCRYPTION, ((algorithm, any_of, _ALGORITHM),))
    owner = ("OwnershipControls Rules 0 ObjectOwnership", ("BucketOwnerEnforced",), _OWNER)
    yield from constants(buckets, Code.BUCKET_SETTINGS, (owner,), Level.WARNING)
    versions = ("VersioningConfiguration Status", ("Enabled",), _VERSIONS)
    yield from constants(data, Code.BUCKET_SETTINGS, (versions,), Level.WARNING)
    with_kms = [each for each in buckets if key_of(each)[0].raw in algorithms]
    bucket_key = (f"{_RULE}BucketKeyEnabled", (True,), _SLOW)
    yield from constants(with_kms, Code.BUCKET_SETTINGS, (bucket_key,), Level.WARNING)
    for bucket in buckets:
        kms, key = bucket in with_kms, key_of(bucket)[1]
        own = bucket in data and any(each.file == bucket.file for each in templates.of("KMS::Key"))
        if kms != bool(key.raw) or (own and not kms):
            found = "its objects are not encrypted with the key of the stack"
            remedy = "write SSEAlgorithm aws:kms, and KMSMasterKeyID: Fn::GetAtt [KEY, Arn]"
            level = Level.WARNING if own and not key.raw else Level.ERROR
            yield key.finding(Code.ENCRYPTION, found, remedy, level)


@template_guard
def data_stay(templates: Templates) -> Iterator[Finding]:
    """Let nothing expire that a restart or a running job reads; clean up the rest.

    S3 User Guide, "Expiring objects", "Restoring an archived object".
    """
    data = data_buckets(templates)
    for bucket in templates.of("S3::Bucket"):
        rules = bucket["LifecycleConfiguration"]["Rules"]
        enabled = [each for each in rules if each["Status"].raw != "Disabled"]
        for rule in enabled if bucket in data else ():
            prefix = rule["Prefix"].text
            read = prefix.split("/")[0] in _READ_BY_JOBS or not (prefix or rule["TagFilters"])
            level = Level.ERROR if read else Level.WARNING
            moves = [each["StorageClass"] for each in (*rule["Transitions"], rule["Transition"])]
            away = [each for each in moves if each.text in {"GLACIER", "DEEP_ARCHIVE"}]
            for when in (rule["ExpirationInDays"], rule["ExpirationDate"], *away):
                found = f"{when.name} {when.raw} takes away what a restart or a running job reads"
                remedy = "remove it: NoncurrentVersionExpiration deletes only what was replaced"
                if when:
                    yield when.finding(Code.EXPIRES, found, remedy, level)
        wanted = _CLEAN_UP if bucket in data else (("ExpirationInDays", ""),)
        for part, name in wanted:
            days = [rule[part][name] if name else rule[part] for rule in enabled]
            if not any(isinstance(each.raw, int) for each in days):
                found = f"no enabled rule with {part}: what nobody reads is paid for ever"
                remedy = f"add a rule with Status Enabled and {part} of 7 to 90 days"
                yield rules.finding(Code.BUCKET_SETTINGS, found, remedy, Level.WARNING)


@template_guard
def bucket_policies(templates: Templates) -> Iterator[Finding]:
    """Refuse what is not encrypted on its way, and let S3 write access logs, which it drops else.

    S3 User Guide, "Security best practices for Amazon S3", "Enabling server access logging".
    """
    code, warning = Code.BUCKET_SETTINGS, Level.WARNING
    for bucket in templates.of("S3::Bucket"):
        policies, arn = _policies(bucket, templates), f"${{{bucket.name}.Arn}}"
        tls = ("Bool", "aws:SecureTransport", "false"), ("NumericLessThan", "s3:TlsVersion", "1.*")
        for test in tls:
            on, why = (arn, f"{arn}/*"), f"data of {bucket.name} can pass openly"
            need = Need(code, why, ("s3:*",), on, "*", (test,), "Deny", warning)
            yield from needs(templates, policies, need)
        for each in (e for e in statements(*policies) if is_everybody(e["Principal"])):
            if not each["Condition"] or "'true'" in str(each["Condition"].raw):
                found = f"everybody, jobs too: {each['Effect'].text} without a condition"
                remedy = 'set Condition to Bool: {"aws:SecureTransport": "false"}, or name roles'
                denies = each["Effect"].text == "Deny"
                why = Code.POLICY if denies else Code.OPEN_TO_ALL
                yield each["Principal"].finding(why, found, remedy)
    for bucket in data_buckets(templates):
        target, named = _logs_of(bucket, templates), bucket["LoggingConfiguration"]
        if target in (None, bucket) and not named["DestinationBucketName"].text:
            found = "no other bucket for access logs: nobody can say who deleted data"
            yield named.finding(code, found, "set DestinationBucketName to Ref: BUCKET", warning)
        elif target and target.type == "AWS::S3::Bucket":
            why = "S3 delivers no access logs to a bucket whose default is a key"
            yield from key_of(target)[0].must_be(code, "AES256", None, why=why)
            tests = (
                ("StringEquals", "aws:SourceAccount", "${AWS::AccountId}"),
                ("ArnLike", "aws:SourceArn", f"${{{bucket.name}.Arn}}"),
            )
            objects, who = (f"${{{target.name}.Arn}}/*",), "logging.s3.amazonaws.com"
            need = Need(code, "access logs are lost", ("s3:PutObject",), objects, who, tests)
            yield from needs(templates, _policies(target, templates), need)
