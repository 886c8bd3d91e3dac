"""The base of every configuration model, and the string formats they share."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


class Model(BaseModel):
    """Frozen, strict, and closed: an unknown key or a wrong type is refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        # Validators are built when a file needs them: most commands read one kind of job.
        defer_build=True,
        allow_inf_nan=False,
    )


DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
_DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
REGION = r"^[a-z]{2}(-[a-z]+)+-[0-9]$"
ZONE = r"^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$"
ROLE_ARN = r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$"
_POLICY_ARN = r"^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[A-Za-z0-9_+=,.@/-]+$"
KMS_ARN = r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$"
_VPC_ID = r"^vpc-([0-9a-f]{8}|[0-9a-f]{17})$"
_SUBNET_ID = r"^subnet-([0-9a-f]{8}|[0-9a-f]{17})$"
_SECURITY_GROUP_ID = r"^sg-([0-9a-f]{8}|[0-9a-f]{17})$"
_FILE_SYSTEM_ID = r"^fs-[0-9a-f]{8,17}$"
_EKS_NAME = r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$"
# RFC 1123: labels of at most 63 letters, digits and hyphens.
_HOST_NAME = (
    r"^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$"
)
_MOUNT_NAME = r"^[A-Za-z0-9_-]{1,8}$"
_GITHUB = r"^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$"
_BRANCH = r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"
_CONNECTION_ARN = (
    r"^arn:aws[a-z-]*:(codeconnections|codestar-connections):[a-z0-9-]+:[0-9]{12}:"
    r"connection/[0-9a-f-]{36}$"
)
_PROXY = r"^https?://[^\s/@]+(:[0-9]+)?/?$"
_REGISTRY = r"^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$"
REPOSITORY_PREFIX = r"^([a-z0-9]+([._/-][a-z0-9]+)*[._/-])?$"
RESERVATION = r"^cr-[0-9a-f]{8}([0-9a-f]{9})?$"
_GROUP = r"arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:[0-9]{12}:group/[A-Za-z0-9_.-]{1,128}"
RESERVATION_OR_GROUP = rf"{RESERVATION[:-1]}$|^{_GROUP}$"
KUBERNETES = r"^1\.[0-9]{2}$"
# No segment may be . or .., which would lead out of the mounted file system.
_REPOSITORY_PATH = r"^(?:/\.?[A-Za-z0-9_-][A-Za-z0-9._-]*)+$"
ABSOLUTE_PATH = r"^(/\.?[A-Za-z0-9_-][A-Za-z0-9._-]*)+$"
_SUBFOLDER = r"^/?\.?[A-Za-z0-9_-][A-Za-z0-9._-]*(/\.?[A-Za-z0-9_-][A-Za-z0-9._-]*)*$"
# Nor here, where other signs are allowed, but none that is not seen.
_PART = r"\.?[^./\s\x00-\x1f\x7f-\x9f][^/\s\x00-\x1f\x7f-\x9f]*"
_S3_URI = rf"^s3://[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9](/{_PART})*/?$"
_PLACE = rf"^([a-z0-9]+://|/)?{_PART}([ /]{_PART})*/?$"
_PROGRAM = r"^/?\.?[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?$"
# A file or folder below another one: no part of it is `..`, which would lead out.
RELATIVE_PATH = rf"^(\.|{_PART}([ /]{_PART})*)$"
_FILE_NAME = rf"^{_PART}$"
_MODULE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
_ENTRY = r"^[A-Za-z0-9._-]{1,253}$"
RECIPE = r"^[a-z][a-z0-9_]*$"
_EMAIL = r"^[^@\s]+@[^@\s]+\.[^@\s]+$"

# What each pattern means in words; the loader prints these as the remedy.
FORMATS: dict[str, str] = {
    DNS_LABEL: "use lowercase letters, digits and '-', starting with a letter (a DNS label)",
    _DNS_NAME: "use lowercase letters, digits, '-' and '.', as Kubernetes names its objects",
    REGION: "use a region name such as us-east-2",
    ZONE: (
        "use a zone's name: its region and a letter, such as us-east-2b; ids (use2-az2) are "
        "something else"
    ),
    ROLE_ARN: "use a role ARN: arn:aws:iam::ACCOUNT:role/NAME, with 12 digits of account",
    _POLICY_ARN: "use a policy ARN: arn:aws:iam::ACCOUNT:policy/NAME",
    KMS_ARN: "use a key ARN: arn:aws:kms:REGION:ACCOUNT:key/ID",
    _VPC_ID: "use the id of a VPC: vpc- and 17 hexadecimal digits",
    _SUBNET_ID: "use the id of a subnet: subnet- and 17 hexadecimal digits",
    _SECURITY_GROUP_ID: "use the id of a security group: sg- and 17 hexadecimal digits",
    _FILE_SYSTEM_ID: "use the id of a file system: fs- and 17 hexadecimal digits",
    _EKS_NAME: "use the name that `aws eks list-clusters` prints",
    _HOST_NAME: "use the DNS name that `aws fsx describe-file-systems` prints",
    _MOUNT_NAME: "use the mount name that `aws fsx describe-file-systems` prints",
    _GITHUB: "use OWNER/NAME of a repository on GitHub",
    _BRANCH: "use the name of a branch",
    _CONNECTION_ARN: (
        "use the connection's ARN: arn:aws:codeconnections:REGION:ACCOUNT:connection/ID"
    ),
    _PROXY: "use http://HOST:PORT, without user and password",
    _REGISTRY: "use a registry and path, such as ACCOUNT.dkr.ecr.REGION.amazonaws.com/mirror",
    REPOSITORY_PREFIX: "use lowercase letters and digits that end with '-', '_', '.' or '/'",
    RESERVATION: "use a capacity reservation id: cr- and 17 hexadecimal digits",
    RESERVATION_OR_GROUP: (
        "use a capacity reservation id, cr- and 17 hexadecimal digits, or the ARN of a resource "
        "group of reservations"
    ),
    KUBERNETES: 'use a quoted minor version such as "1.36"',
    ABSOLUTE_PATH: (
        "use an absolute path of letters, digits, '.', '_' and '-', without '..' and a final '/'"
    ),
    _REPOSITORY_PATH: (
        "use a directory below the root, such as /data: the root would leave room for no other"
    ),
    _SUBFOLDER: (
        "use a folder of the file system, such as /teams/nlp, without '..' and a final '/'; for "
        "its root leave the key out"
    ),
    _S3_URI: "use s3://BUCKET/PREFIX, the bucket in lowercase letters, digits, '-' and '.'",
    _PLACE: "use a name, a path or s3://BUCKET/KEY, without '.', '..' and '//' as parts of it",
    _PROGRAM: "use the name or path of one program, without arguments",
    RELATIVE_PATH: (
        "use a path below the job file's folder, such as src/train.py: no '..', and no '/' at its "
        "beginning or end"
    ),
    _FILE_NAME: "use the name of a file, without a folder",
    _MODULE: "use the dotted name of a module, as after `python -m`",
    _ENTRY: "use a key of the Secret: letters, digits, '-', '_' and '.'",
    RECIPE: "use the name of one recipe: lowercase letters, digits and '_'",
    _EMAIL: "use an address such as team@example.com",
}


def _no_switch(value: object) -> object:
    """Refuse what Python takes for 1 and 0, and who writes it for "some" and "none"."""
    if isinstance(value, bool):
        raise PydanticCustomError("literal_error", "no number", {"expected": "0, 1 or 'per_zone'"})
    return value


def _whole_one(value: object) -> object:
    """Refuse what Python takes for 1: true, and 1.0."""
    if type(value) is not int:
        raise PydanticCustomError("literal_error", "no version", {"expected": "1"})
    return value


SchemaVersion = Annotated[Literal[1], BeforeValidator(_whole_one)]
NatGateways = Annotated[Literal[0, 1, "per_zone"], BeforeValidator(_no_switch)]
DnsLabel = Annotated[str, Field(pattern=DNS_LABEL)]
DnsName = Annotated[str, Field(pattern=_DNS_NAME)]
Region = Annotated[str, Field(pattern=REGION)]
Zone = Annotated[str, Field(pattern=ZONE)]
RoleArn = Annotated[str, Field(pattern=ROLE_ARN)]
PolicyArn = Annotated[str, Field(pattern=_POLICY_ARN)]
KmsKeyArn = Annotated[str, Field(pattern=KMS_ARN)]
VpcId = Annotated[str, Field(pattern=_VPC_ID)]
SubnetId = Annotated[str, Field(pattern=_SUBNET_ID)]
SecurityGroupId = Annotated[str, Field(pattern=_SECURITY_GROUP_ID)]
FileSystemId = Annotated[str, Field(pattern=_FILE_SYSTEM_ID)]
EksName = Annotated[str, Field(pattern=_EKS_NAME)]
HostName = Annotated[str, Field(pattern=_HOST_NAME)]
MountName = Annotated[str, Field(pattern=_MOUNT_NAME)]
GithubRepository = Annotated[str, Field(pattern=_GITHUB)]
Branch = Annotated[str, Field(pattern=_BRANCH)]
ConnectionArn = Annotated[str, Field(pattern=_CONNECTION_ARN)]
ProxyUrl = Annotated[str, Field(pattern=_PROXY)]
Registry = Annotated[str, Field(pattern=_REGISTRY)]
RepositoryPrefix = Annotated[str, Field(pattern=REPOSITORY_PREFIX, max_length=100)]
ReservationId = Annotated[str, Field(pattern=RESERVATION)]
ReservationOrGroup = Annotated[str, Field(pattern=RESERVATION_OR_GROUP)]
KubernetesVersion = Annotated[str, Field(pattern=KUBERNETES)]
RepositoryPath = Annotated[str, Field(pattern=_REPOSITORY_PATH)]
Subfolder = Annotated[str, Field(pattern=_SUBFOLDER)]
AbsolutePath = Annotated[str, Field(pattern=ABSOLUTE_PATH)]
Place = Annotated[str, Field(pattern=_PLACE)]
S3Uri = Annotated[str, Field(pattern=_S3_URI)]
Program = Annotated[str, Field(pattern=_PROGRAM)]
RelativePath = Annotated[str, Field(pattern=RELATIVE_PATH)]
FileName = Annotated[str, Field(pattern=_FILE_NAME)]
ModuleName = Annotated[str, Field(pattern=_MODULE)]
SecretKeyName = Annotated[str, Field(pattern=_ENTRY)]
Recipe = Annotated[str, Field(pattern=RECIPE)]
Email = Annotated[str, Field(pattern=_EMAIL)]
Text = Annotated[str, Field(min_length=1)]
Workload = Literal["pytorchjob", "jobset"]
