"""Rules over buckets that other buckets send logs to, and over who owns what is in them."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, text, truth

_BUCKET = "AWS::S3::Bucket"
_OWNER_ALONE = "BucketOwnerEnforced"
# What gives rights to others than the owner, which ownership by the bucket's owner rules out; what
# is public is a finding of its own.
_OF_OTHERS = frozenset({"AuthenticatedRead", "AwsExecRead", "LogDeliveryWrite"})


def logs(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a bucket for access logs settings under which S3 can write them.

    S3 User Guide, "Enabling Amazon S3 server access logging": with SSE-KMS as its default, a
    default retention of Object Lock or Requester Pays no log comes, without an error.
    """
    judged: set[Resource] = set()
    for bucket in templates.resources(_BUCKET):
        value = bucket.properties.get("LoggingConfiguration")
        logging = mapping(value) or {}
        named = logging.get("DestinationBucketName")
        own = is_absent(named) and not is_absent(value) and mapping(value) is not None
        target = bucket if own else templates.target(named, bucket.file)
        if target is bucket:
            found = "its access logs go into itself, and each log is logged again"
            path = ("LoggingConfiguration", "DestinationBucketName")
            remedy = "name another bucket"
            yield bucket.find(Code.BUCKET_SETTINGS, path, found, remedy, Level.WARNING)
        if target is not None and target.type == _BUCKET and target not in judged:
            judged.add(target)
            yield from _target(target, bucket)


def _target(target: Resource, bucket: Resource) -> Iterator[Finding]:
    encryption = mapping(target.properties.get("BucketEncryption")) or {}
    for index, value in enumerate(items(encryption.get("ServerSideEncryptionConfiguration")) or []):
        default = mapping((mapping(value) or {}).get("ServerSideEncryptionByDefault")) or {}
        algorithm = text(default.get("SSEAlgorithm")) or ""
        if algorithm.startswith("aws:kms"):
            found = f"{algorithm}, and {bucket.id} sends its access logs here: S3 delivers none"
            path: Path = ("BucketEncryption", "ServerSideEncryptionConfiguration", index)
            remedy = "write SSEAlgorithm: AES256, without a key"
            yield target.find(Code.BUCKET_SETTINGS, path, found, remedy)
    lock = mapping(target.properties.get("ObjectLockConfiguration")) or {}
    rule = mapping(lock.get("Rule")) or {}
    if not is_absent(rule.get("DefaultRetention")):
        found = f"a default retention, and {bucket.id} sends its access logs here: S3 delivers none"
        path = ("ObjectLockConfiguration", "Rule")
        yield target.find(Code.BUCKET_SETTINGS, path, found, "remove DefaultRetention here")


def ownership(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse rights by ACL in a bucket whose owner owns everything, which is S3's default.

    S3 User Guide, "Controlling ownership of objects and disabling ACLs": since April 2023 a bucket
    has BucketOwnerEnforced where nothing is said (InvalidBucketAclWithObjectOwnership); S3 API,
    PutObjectLockConfiguration, on versions.
    """
    for bucket in templates.resources(_BUCKET):
        acl = text(bucket.properties.get("AccessControl"))
        controls = bucket.properties.get("OwnershipControls")
        owners = [
            text((mapping(each) or {}).get("ObjectOwnership"))
            for each in items((mapping(controls) or {}).get("Rules")) or []
        ]
        enforced = is_absent(controls) or _OWNER_ALONE in owners
        if acl in _OF_OTHERS and enforced:
            found = f"{acl}, and the bucket takes no ACLs: S3 refuses it"
            remedy = "remove it, and grant the same in an AWS::S3::BucketPolicy"
            if acl == "LogDeliveryWrite":
                remedy = (
                    "remove it, and let logging.s3.amazonaws.com s3:PutObject in a bucket policy"
                )
            yield bucket.find(Code.BUCKET_SETTINGS, ("AccessControl",), found, remedy)
        lock = bucket.properties.get("ObjectLockConfiguration")
        if truth(bucket.properties.get("ObjectLockEnabled")) is False and not is_absent(lock):
            found = "ObjectLockConfiguration without ObjectLockEnabled: S3 refuses it"
            path = ("ObjectLockEnabled",)
            yield bucket.find(Code.BUCKET_SETTINGS, path, found, "set it to true")
        versions = mapping(bucket.properties.get("VersioningConfiguration")) or {}
        locked = truth(bucket.properties.get("ObjectLockEnabled")) is True
        if versions.get("Status") == "Suspended" and locked:
            found = "no versions beside Object Lock: S3 refuses it"
            path = ("VersioningConfiguration",)
            yield bucket.find(Code.BUCKET_SETTINGS, path, found, "set Status to Enabled")
