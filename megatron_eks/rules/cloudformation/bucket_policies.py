"""Rules over bucket policies: the bucket that they are for, and who writes its access logs."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.policies import statements, words
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_absent, is_placeholder, mapping, shown, text, written

_PART = re.compile(r"\$\{(?P<name>[A-Za-z0-9]+)(\.Arn)?\}")
_LITERAL = re.compile(r"arn:[a-z-]+:s3:::(?P<name>[a-z0-9.-]+)(/|$)")
_LOGGING = "logging.s3.amazonaws.com"
_POLICY = "AWS::S3::BucketPolicy"
_IN_TRANSIT = frozenset({"aws:securetransport", "s3:tlsversion"})


def other_buckets(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a policy whose resources are of another bucket.

    S3 API, PutBucketPolicy: "Policy has invalid resource".
    """
    for policy in templates.resources(_POLICY):
        bucket = templates.target(policy.properties.get("Bucket"), policy.file)
        listed = statements(policy.properties.get("PolicyDocument")) or []
        for index, body in enumerate(listed if bucket is not None else []):
            value = body.get("Resource")
            for each in value if isinstance(value, list) else [value]:
                match = _PART.match(written(each) or "")
                target = templates.target({"Ref": match["name"]}, policy.file) if match else None
                same = target is bucket or target is None or target.type != "AWS::S3::Bucket"
                if not same and target is not None and bucket is not None:
                    found = f"of {target.id}, and the policy is that of {bucket.id}"
                    path = ("PolicyDocument", "Statement", index, "Resource")
                    yield policy.find(Code.POLICY, path, found, f"name {bucket.id}")
                    break


def half_covered(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a denial of plain HTTP that holds for a bucket or for its objects alone.

    S3 User Guide, "Security best practices", "Enforce encryption of data in transit": both the
    bucket and BUCKET/* are named; AWS Config, s3-bucket-ssl-requests-only.
    """
    for policy in templates.resources(_POLICY):
        for index, body in enumerate(statements(policy.properties.get("PolicyDocument")) or []):
            value = body.get("Resource")
            every = [written(each) for each in (value if isinstance(value, list) else [value])]
            said = [each for each in every if each]
            every_action = {each.lower() for each in words(body.get("Action"))} & {"*", "s3:*"}
            if body.get("Effect") != "Deny" or not every_action or not 0 < len(said) == len(every):
                continue
            asked = {
                key.lower()
                for each in (mapping(body.get("Condition")) or {}).values()
                for key in mapping(each) or {}
            }
            objects = [each for each in said if each.endswith("*")]
            if not said or not asked or not asked <= _IN_TRANSIT or 0 < len(objects) < len(said):
                continue
            # A name that ends with * by itself is that of the bucket and of its objects.
            if any(not each.endswith("/*") for each in objects):
                continue
            path = ("PolicyDocument", "Statement", index, "Resource")
            # Below the bucket there may be a prefix: its own ARN ends before that.
            whole = objects[0].partition("/")[0] if objects else said[0]
            found = "the bucket alone: its objects are read and written without TLS all the same"
            remedy = "add its ARN with /* behind it" if "${}" in whole else f"add {whole}/*"
            if objects:
                found = "the objects alone: the bucket is listed without TLS all the same"
                remedy = "add the bucket's own ARN" if "${}" in whole else f"add {whole}"
            yield policy.find(Code.POLICY, path, found, remedy, Level.WARNING)


def locked(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a denial of everything to everybody under no condition.

    S3 User Guide, "Troubleshoot access denied errors", "Bucket policy": no administrator and no
    stack reaches the bucket any more, and the account's root user alone may delete the policy.
    """
    for policy in templates.resources(_POLICY):
        for index, body in enumerate(statements(policy.properties.get("PolicyDocument")) or []):
            principal = body.get("Principal")
            whom = principal.get("AWS") if isinstance(principal, dict) else principal
            everybody = whom in ("*", ["*"])
            every_action = {each.lower() for each in words(body.get("Action"))} & {"*", "s3:*"}
            if (
                body.get("Effect") == "Deny"
                and everybody
                and every_action
                and body.get("Condition") in (None, {})
                and not is_absent(body.get("Resource"))
            ):
                found = "denies everything to everybody: nobody but the account's root user gets "
                found += "in again"
                remedy = 'add its Condition, such as Bool: {"aws:SecureTransport": "false"}'
                path = ("PolicyDocument", "Statement", index)
                yield policy.find(Code.POLICY, path, found, remedy)


def foreign_parts(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse actions of other services, and the ARN of another bucket.

    S3 API, PutBucketPolicy: "Policy has invalid action" and "Policy has invalid resource".
    """
    for policy in templates.resources(_POLICY):
        bucket = templates.target(policy.properties.get("Bucket"), policy.file)
        named = bucket.properties.get("BucketName") if bucket else policy.properties.get("Bucket")
        name = text(named)
        for index, body in enumerate(statements(policy.properties.get("PolicyDocument")) or []):
            place = ("PolicyDocument", "Statement", index)
            for each in words(body.get("Action")):
                if (
                    not is_placeholder(each)
                    and each != "*"
                    and each.partition(":")[0].lower() != "s3"
                ):
                    found = f"{shown(each)}: a bucket's policy takes actions of S3 alone"
                    yield policy.find(Code.POLICY, (*place, "Action"), found, "write s3:...")
            for each in words(body.get("Resource")):
                match = _LITERAL.match(each)
                if match and name and not is_placeholder(name) and match["name"] != name:
                    found = f"of bucket {match['name']}, and the policy is that of {name}"
                    remedy = f"name arn:aws:s3:::{name}"
                    yield policy.find(Code.POLICY, (*place, "Resource"), found, remedy)


def access_logs(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a bucket for access logs whose policy lets nobody write them.

    S3 User Guide, "Enabling Amazon S3 server access logging": no log ever comes, without an error.
    """
    policies = {
        templates.target(each.properties.get("Bucket"), each.file): each
        for each in templates.resources(_POLICY)
    }
    for bucket in templates.resources("AWS::S3::Bucket"):
        logging = mapping(bucket.properties.get("LoggingConfiguration")) or {}
        target = templates.target(logging.get("DestinationBucketName"), bucket.file)
        if target is None or not is_absent(target.properties.get("AccessControl")):
            continue
        policy = policies.get(target)
        if policy is None:
            # A policy whose bucket is not known, or of another stack, may be the one.
            if None not in policies:
                found = (
                    f"its logs go to {target.id}, which has no policy that lets {_LOGGING} write"
                )
                path = ("LoggingConfiguration", "DestinationBucketName")
                remedy = f"add an AWS::S3::BucketPolicy that allows s3:PutObject to {_LOGGING}"
                yield bucket.find(Code.POLICY, path, found, remedy, Level.WARNING)
            continue
        listed = statements(policy.properties.get("PolicyDocument"))
        if listed is not None and not any(
            _LOGGING in words((mapping(each.get("Principal")) or {}).get("Service"))
            for each in listed
        ):
            found = f"its logs go to {target.id}, whose policy does not let {_LOGGING} write"
            path = ("LoggingConfiguration", "DestinationBucketName")
            remedy = f"allow s3:PutObject to {_LOGGING} there"
            yield bucket.find(Code.POLICY, path, found, remedy, Level.WARNING)
