"""The base of every configuration model, and the string formats they share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


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


_DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
_REGION = r"^[a-z]{2}(-[a-z]+)+-[0-9]$"
_ZONE = r"^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$"
_ROLE_ARN = r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$"
_POLICY_ARN = r"^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[A-Za-z0-9_+=,.@/-]+$"
_KMS_ARN = r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$"
_RESERVATION = r"^cr-[0-9a-f]{8}([0-9a-f]{9})?$"
_KUBERNETES = r"^1\.[0-9]{2}$"
# No segment may be . or .., which would lead out of the mounted file system.
_ABSOLUTE_PATH = r"^(/\.?[A-Za-z0-9_-][A-Za-z0-9._-]*)+$"
_S3_URI = r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/\S*)?$"
_PROGRAM = r"^[A-Za-z0-9_./-]+$"
_RECIPE = r"^[a-z][a-z0-9_]*$"
_EMAIL = r"^[^@\s]+@[^@\s]+\.[^@\s]+$"

# What each pattern means in words; the loader prints these as the remedy.
FORMATS: dict[str, str] = {
    _DNS_LABEL: "use lowercase letters, digits and '-', starting with a letter (a DNS label)",
    _REGION: "use a region name such as us-east-2",
    _ZONE: "use a zone name such as us-east-2b",
    _ROLE_ARN: "use a role ARN: arn:aws:iam::ACCOUNT:role/NAME",
    _POLICY_ARN: "use a policy ARN: arn:aws:iam::ACCOUNT:policy/NAME",
    _KMS_ARN: "use a key ARN: arn:aws:kms:REGION:ACCOUNT:key/ID",
    _RESERVATION: "use a capacity reservation id: cr- and 17 hexadecimal digits",
    _KUBERNETES: 'use a quoted minor version such as "1.35"',
    _ABSOLUTE_PATH: (
        "use an absolute path of letters, digits, '.', '_' and '-', without '..' and a final '/'"
    ),
    _S3_URI: "use s3://BUCKET/PREFIX",
    _PROGRAM: "use the name or path of one program, without arguments",
    _RECIPE: "use the name of one recipe: lowercase letters, digits and '_'",
    _EMAIL: "use an address such as team@example.com",
}

DnsLabel = Annotated[str, Field(pattern=_DNS_LABEL)]
Region = Annotated[str, Field(pattern=_REGION)]
Zone = Annotated[str, Field(pattern=_ZONE)]
RoleArn = Annotated[str, Field(pattern=_ROLE_ARN)]
PolicyArn = Annotated[str, Field(pattern=_POLICY_ARN)]
KmsKeyArn = Annotated[str, Field(pattern=_KMS_ARN)]
ReservationId = Annotated[str, Field(pattern=_RESERVATION)]
KubernetesVersion = Annotated[str, Field(pattern=_KUBERNETES)]
AbsolutePath = Annotated[str, Field(pattern=_ABSOLUTE_PATH)]
S3Uri = Annotated[str, Field(pattern=_S3_URI)]
Program = Annotated[str, Field(pattern=_PROGRAM)]
Recipe = Annotated[str, Field(pattern=_RECIPE)]
Email = Annotated[str, Field(pattern=_EMAIL)]
Text = Annotated[str, Field(min_length=1)]
