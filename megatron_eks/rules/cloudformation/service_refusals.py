"""Rules over what IAM, KMS, ECR, EC2 and FSx refuse of their own resources."""

import json
import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.lifetimes import keys_of
from megatron_eks.rules.policies import statements
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_given,
    is_placeholder,
    items,
    mapping,
    shown,
    text,
    truth,
    written,
)

_EXCLUDING = ("IMMUTABLE_WITH_EXCLUSION", "MUTABLE_WITH_EXCLUSION")
_ALIAS = re.compile(r"alias/[A-Za-z0-9/_-]+")
_OF_AWS = re.compile(r"(?:^|:)alias/aws/(?P<service>[a-z0-9]+)$")
_KEY_NAMES = ("KmsKeyId", "KMSMasterKeyID", "KmsKey")
_MANAGED = (
    *(("AWS::FSx::", "fsx"), ("AWS::EFS::", "elasticfilesystem"), ("AWS::S3::Bucket", "s3")),
    *(("AWS::EC2::LaunchTemplate", "ebs"), ("AWS::EC2::Volume", "ebs")),
    ("AWS::ECR::Repository", "ecr"),
)
_PART = re.compile(r"\$\{[^}]*\}")
_INNER = re.compile(r"\$\{(?P<name>[A-Za-z0-9]+)\.Arn\}")
_S3 = "s3"
_WATCHED = {
    "AWS::EC2::VPC": "VPC",
    "AWS::EC2::Subnet": "Subnet",
    "AWS::EC2::NetworkInterface": "NetworkInterface",
    "AWS::EC2::TransitGateway": "TransitGateway",
}
_ENCRYPTED = (
    *("AWS::S3::Bucket", "AWS::FSx::", "AWS::EFS::", "AWS::ECR::Repository", "AWS::EKS::Cluster"),
    *("AWS::Logs::LogGroup", "AWS::EC2::LaunchTemplate", "AWS::EC2::Volume"),
)


def repositories(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse resources in the policy of a repository, which is for that repository alone.

    ECR User Guide, "Private repository policies"; aws-cdk-lib, aws-ecr: "ECR resource policy does
    not allow resource statements".
    """
    for repository in templates.resources("AWS::ECR::Repository"):
        document = repository.properties.get("RepositoryPolicyText")
        for index, body in enumerate(statements(document) or []):
            if not is_absent(body.get("Resource")):
                path: Path = ("RepositoryPolicyText", "Statement", index, "Resource")
                found = "a repository's policy with Resource: ECR refuses it"
                yield repository.find(Code.POLICY, path, found, "remove Resource")


def attached(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse an inline policy that belongs to nobody.

    CloudFormation User Guide, AWS::IAM::Policy: at least one of Groups, Roles and Users.
    """
    for policy in templates.resources("AWS::IAM::Policy"):
        names = templates.names(policy.file)
        given = [items(policy.properties.get(key)) for key in ("Groups", "Roles", "Users")]
        if given == [[], [], []] and names is not None and names.whole:
            found = "no role, user or group: IAM refuses the policy"
            yield policy.find(Code.POLICY, ("Roles",), found, "add Roles, with the role's name")


def keys(templates: TemplateSet) -> Iterator[Finding]:
    """Require names of keys that KMS takes, and encryption by a key where one is named.

    KMS API, CreateAlias; ECR API, EncryptionConfiguration; aws/aws-cdk, pull request 35246: ECR's
    own words on exclusion filters ("can't be null when imageTagMutability is set as ...").
    """
    for alias in templates.resources("AWS::KMS::Alias"):
        name = written(alias.properties.get("AliasName"))
        plain = _PART.sub("x", name or "alias/x")
        if name is not None and not is_placeholder(plain) and not name.startswith("$"):
            own = plain.startswith("alias/aws/")
            if own or not _ALIAS.fullmatch(plain):
                found = f"{shown(name)}: KMS refuses it"
                found += ", for alias/aws/ is AWS's own" if own else ""
                remedy = "write alias/ and letters, digits, /, _ and -"
                yield alias.find(Code.RESOURCE_NAME, ("AliasName",), found, remedy)
    for repository in templates.resources("AWS::ECR::Repository"):
        config = mapping(repository.properties.get("EncryptionConfiguration")) or {}
        kind = config.get("EncryptionType")
        if is_given(config.get("KmsKey")) and (is_absent(kind) or kind == "AES256"):
            found = "a key beside AES256: ECR refuses the repository"
            path = ("EncryptionConfiguration", "EncryptionType")
            yield repository.find(Code.ENCRYPTION, path, found, "write KMS")
        tags = repository.properties.get("ImageTagMutability")
        filters = items(repository.properties.get("ImageTagMutabilityExclusionFilters"))
        whole = "MUTABLE" if is_absent(tags) else text(tags)
        if filters and whole in {"MUTABLE", "IMMUTABLE"}:
            found = f"exclusion filters beside {whole}: ECR refuses the repository"
            remedy = f"write {whole}_WITH_EXCLUSION, or remove the filters"
            yield repository.find(Code.RESOURCE_NAME, ("ImageTagMutability",), found, remedy)
        elif filters == [] and whole in _EXCLUDING:
            found = f"{whole} without exclusion filters: ECR refuses the repository"
            remedy, place = "list the tags it is about", ("ImageTagMutabilityExclusionFilters",)
            yield repository.find(Code.RESOURCE_NAME, place, found, remedy)


def usable_keys(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a key that encrypts data that it is one for that, and switched on.

    KMS Developer Guide, "AWS services that use KMS keys": services take symmetric keys alone.
    """
    judged: set[str] = set()
    for resource in templates.everything():
        used = resource.type.startswith(_ENCRYPTED)
        for key in keys_of(dict(resource.properties), resource, templates) if used else ():
            if key.id in judged:
                continue
            spec, usage = key.properties.get("KeySpec"), key.properties.get("KeyUsage")
            plain = is_absent(spec) or spec == "SYMMETRIC_DEFAULT" or not isinstance(spec, str)
            off = truth(key.properties.get("Enabled")) is False
            if off or not plain or usage in {"SIGN_VERIFY", "GENERATE_VERIFY_MAC"}:
                judged.add(key.id)
                what = "switched off" if off else f"a key of {spec or usage}"
                found = f"{what}, and {resource.id} is encrypted with it: KMS refuses"
                path = ("Enabled",) if off else ("KeySpec",)
                remedy = "set it to true" if off else "leave out KeySpec and KeyUsage"
                yield key.find(Code.ENCRYPTION, path, found, remedy)


def managed_keys(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse the key that AWS manages for one service where another one encrypts.

    KMS Developer Guide, "AWS managed keys": its policy lets that service alone use it, and nobody
    can change the policy.
    """
    for resource in templates.everything():
        own = next((name for kind, name in _MANAGED if resource.type.startswith(kind)), None)
        for path, name in _named_keys(dict(resource.properties), ()) if own else ():
            if name != own:
                found = f"alias/aws/{name} is for {name} alone, and this is encrypted by {own}"
                remedy = f"write alias/aws/{own}, or a key of your own"
                yield resource.find(Code.ENCRYPTION, path, found, remedy)


def _named_keys(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    """Return the services whose managed keys are named, with the place."""
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        match = _OF_AWS.search(written(each) or "") if key in _KEY_NAMES else None
        if match:
            yield (*path, key), match["service"]
        yield from _named_keys(each, (*path, key))


def flow_logs(templates: TemplateSet) -> Iterator[Finding]:
    """Require of flow logs what their destination takes.

    EC2 API, CreateFlowLogs: CloudWatch Logs needs a role and a group, S3 a destination and no role.
    """
    for log in templates.resources("AWS::EC2::FlowLog"):
        body, kind = log.properties, log.properties.get("LogDestinationType")
        role, group = body.get("DeliverLogsPermissionArn"), body.get("LogGroupName")
        away = is_absent(body.get("LogDestination"))
        watched = templates.target(body.get("ResourceId"), log.file)
        named = text(body.get("ResourceType"))
        own = _WATCHED.get(watched.type) if watched is not None else None
        if own is not None and named is not None and named != own and named in _WATCHED.values():
            found = f"{named}, and {watched.id if watched else ''} is a {own}: EC2 refuses it"
            yield log.find(Code.NETWORK_PART, ("ResourceType",), found, f"write {own}")
        if kind == _S3 and (is_given(role) or is_given(group)):
            found = "a role or a log group beside a bucket: EC2 refuses the flow log"
            remedy = "remove it, or write cloud-watch-logs"
            yield log.find(Code.NETWORK_PART, ("LogDestinationType",), found, remedy)
        elif kind == _S3 and away:
            found = "no bucket: EC2 refuses the flow log"
            yield log.find(Code.NETWORK_PART, ("LogDestination",), found, "add its ARN")
        elif (is_absent(kind) or kind == "cloud-watch-logs") and not _is_fragment(log, templates):
            missing = ["LogGroupName"] if is_absent(group) and away else []
            missing += ["DeliverLogsPermissionArn"] if is_absent(role) else []
            if missing:
                found = f"CloudWatch Logs without {' and '.join(missing)}: EC2 refuses the flow log"
                yield log.find(Code.NETWORK_PART, (missing[0],), found, f"add {missing[0]}")


def _is_fragment(resource: Resource, templates: TemplateSet) -> bool:
    names = templates.names(resource.file)
    return names is None or not names.whole


def paths(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse paths in S3 that are patterns, or that are made of an ARN.

    FSx API, CreateDataRepositoryAssociation.DataRepositoryPath: s3://BUCKET/PREFIX/.
    """
    for link in templates.resources("AWS::FSx::DataRepositoryAssociation"):
        said = written(link.properties.get("DataRepositoryPath")) or ""
        wrong = "a pattern" if "*" in said else "an ARN in it" if ".Arn}" in said else ""
        if said.startswith("s3://") and wrong:
            found = (
                f"{shown(said)} has {wrong}: FSx refuses it"
                if "ARN" in wrong
                else (f"{shown(said)} is {wrong}: FSx refuses it")
            )
            path, remedy = ("DataRepositoryPath",), "write s3://BUCKET/PREFIX/"
            yield link.find(Code.DATA_REPOSITORY, path, found, remedy)


def arns(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse an ARN that is put into another one, where a name belongs.

    CloudFormation User Guide, "Return values" of each type: Arn begins with arn: itself, so the
    text is the ARN of nothing. API Gateway's own have the ARN of what it calls in their path
    (API Gateway, PutIntegration, uri).
    """
    for resource in templates.everything():
        for path, said in _texts(dict(resource.properties), ()):
            match = _INNER.search(said)
            if not said.startswith("arn:") or match is None or ":apigateway:" in said:
                continue
            target = templates.target({"Ref": match["name"]}, resource.file)
            if target is not None and target.type.startswith("AWS::"):
                found = f"{shown(said)} has an ARN in an ARN: it is that of nothing"
                remedy = f"begin with {match[0]}, or write ${{{match['name']}}} if that is the name"
                yield resource.find(Code.ARN, path, found, remedy)


def _texts(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    """Return every text below a value, also those that a function puts together."""
    said = written(value) if isinstance(value, dict) and len(value) == 1 else text(value)
    if said is not None:
        yield path, said
        return
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        if not isinstance(each, str) or "arn:" in each or "${" in each:
            yield from _texts(each, (*path, key))


def trust_of_profiles(templates: TemplateSet) -> Iterator[Finding]:
    """Require of the role in an instance profile that EC2 may take it.

    IAM User Guide, "Use an IAM role to grant permissions to applications running on EC2 instances":
    the instance has no credentials otherwise, and a node does not join.
    """
    for profile in templates.resources("AWS::IAM::InstanceProfile"):
        listed = items(profile.properties.get("Roles")) or []
        if len(listed) > 1:
            found = f"{len(listed)} roles, and an instance profile has one: IAM refuses it"
            yield profile.find(Code.NODE_ROLE, ("Roles",), found, "name one role")
        for value in listed:
            role = templates.target(value, profile.file)
            document = json.dumps((role.properties if role else {}).get("AssumeRolePolicyDocument"))
            known = role is not None and '"Service"' in document and "Ref" not in document
            if role is not None and known and '"ec2.' not in document and "${" not in document:
                found = f"{profile.id} gives it to instances, and it does not trust EC2"
                path = ("AssumeRolePolicyDocument",)
                yield role.find(Code.ROLE_TRUST, path, found, "trust ec2.amazonaws.com")
