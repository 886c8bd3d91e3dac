"""The base of every configuration model, and the forms of texts, which stand in formats.txt."""

from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints
from pydantic_core import PydanticCustomError

from megatron_eks.catalog.tables import entries, sections

TABLE = sections("formats.txt")
_FORMATS = [(name, *said.split(" | ")) for name, said in entries(TABLE["formats"])]
PATTERNS = {name: pattern for name, pattern, _ in _FORMATS}
FORMATS = {pattern: remedy for _, pattern, remedy in _FORMATS}
"""What each pattern means in words; the loader prints these as the remedy."""


def pattern(form: str) -> StringConstraints:
    """Return what a text must match, by the name of its form, for an annotation."""
    return StringConstraints(pattern=PATTERNS[form])


DnsLabel = Annotated[str, pattern("dns_label")]
DnsName = Annotated[str, pattern("dns_name")]
Zone = Annotated[str, pattern("zone")]
RoleArn = Annotated[str, pattern("role_arn")]
ProxyUrl = Annotated[str, pattern("proxy")]
AbsolutePath = Annotated[str, pattern("absolute_path")]
Place = Annotated[str, pattern("place")]
S3Uri = Annotated[str, pattern("s3_uri")]
RelativePath = Annotated[str, pattern("relative_path")]
Text = Annotated[str, StringConstraints(min_length=1)]


class Used(NamedTuple):
    """Of a path on the shared file system (the first two) or a URI of S3: how a job uses it."""

    how: Literal["reads", "writes", "fetches", "copies"]
    what: str


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
