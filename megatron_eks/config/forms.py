"""The base of every configuration model, and the forms of texts, which stand in formats.txt."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from megatron_eks.catalog.tables import entries, sections

TABLE = sections("formats.txt")
_FORMATS = [(name, *said.split(" | ")) for name, said in entries(TABLE["formats"])]
PATTERNS = {name: pattern for name, pattern, _ in _FORMATS}
FORMATS = {pattern: remedy for _, pattern, remedy in _FORMATS}
"""What each pattern means in words; the loader prints these as the remedy."""

DnsLabel = Annotated[str, Field(pattern=PATTERNS["dns_label"])]
DnsName = Annotated[str, Field(pattern=PATTERNS["dns_name"])]
Region = Annotated[str, Field(pattern=PATTERNS["region"])]
Zone = Annotated[str, Field(pattern=PATTERNS["zone"])]
RoleArn = Annotated[str, Field(pattern=PATTERNS["role_arn"])]
PolicyArn = Annotated[str, Field(pattern=PATTERNS["policy_arn"])]
KmsKeyArn = Annotated[str, Field(pattern=PATTERNS["kms_arn"])]
VpcId = Annotated[str, Field(pattern=PATTERNS["vpc_id"])]
SubnetId = Annotated[str, Field(pattern=PATTERNS["subnet_id"])]
SecurityGroupId = Annotated[str, Field(pattern=PATTERNS["security_group_id"])]
FileSystemId = Annotated[str, Field(pattern=PATTERNS["file_system_id"])]
EksName = Annotated[str, Field(pattern=PATTERNS["eks_name"])]
HostName = Annotated[str, Field(pattern=PATTERNS["host_name"])]
MountName = Annotated[str, Field(pattern=PATTERNS["mount_name"])]
GithubRepository = Annotated[str, Field(pattern=PATTERNS["github"])]
Branch = Annotated[str, Field(pattern=PATTERNS["branch"])]
ConnectionArn = Annotated[str, Field(pattern=PATTERNS["connection_arn"])]
ProxyUrl = Annotated[str, Field(pattern=PATTERNS["proxy"])]
Registry = Annotated[str, Field(pattern=PATTERNS["registry"])]
RepositoryPrefix = Annotated[str, Field(pattern=PATTERNS["repository_prefix"], max_length=100)]
ReservationId = Annotated[str, Field(pattern=PATTERNS["reservation"])]
ReservationOrGroup = Annotated[str, Field(pattern=PATTERNS["reservation_or_group"])]
KubernetesVersion = Annotated[str, Field(pattern=PATTERNS["kubernetes"])]
RepositoryPath = Annotated[str, Field(pattern=PATTERNS["repository_path"])]
Subfolder = Annotated[str, Field(pattern=PATTERNS["subfolder"])]
AbsolutePath = Annotated[str, Field(pattern=PATTERNS["absolute_path"])]
Place = Annotated[str, Field(pattern=PATTERNS["place"])]
S3Uri = Annotated[str, Field(pattern=PATTERNS["s3_uri"])]
Program = Annotated[str, Field(pattern=PATTERNS["program"])]
RelativePath = Annotated[str, Field(pattern=PATTERNS["relative_path"])]
FileName = Annotated[str, Field(pattern=PATTERNS["file_name"])]
ModuleName = Annotated[str, Field(pattern=PATTERNS["module"])]
SecretKeyName = Annotated[str, Field(pattern=PATTERNS["entry"])]
Recipe = Annotated[str, Field(pattern=PATTERNS["recipe"])]
Email = Annotated[str, Field(pattern=PATTERNS["email"])]
WebUrl = Annotated[str, Field(pattern=PATTERNS["web_url"])]
PrivateUrl = Annotated[str, Field(pattern=PATTERNS["private_url"])]
MlflowArn = Annotated[str, Field(pattern=PATTERNS["mlflow_arn"])]
AwsSecretName = Annotated[str, Field(pattern=PATTERNS["aws_secret"])]
Text = Annotated[str, Field(min_length=1)]


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


def _without(*types: type, expected: str) -> BeforeValidator:
    """Refuse what Python takes for 1 and 0: true, false, and 1.0."""

    def refuse(value: object) -> object:
        if isinstance(value, types):
            raise PydanticCustomError("literal_error", "not allowed", {"expected": expected})
        return value

    return BeforeValidator(refuse)


SchemaVersion = Annotated[Literal[1], _without(bool, float, expected="1")]
NatGateways = Annotated[Literal[0, 1, "per_zone"], _without(bool, expected="0, 1 or 'per_zone'")]
