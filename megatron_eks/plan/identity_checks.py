"""Whether roles, policies, keys, connections and buckets can be what their names say."""

import re
from collections.abc import Collection, Iterator
from ipaddress import AddressValueError, IPv4Address

from megatron_eks.catalog.regions import PARTITIONS
from megatron_eks.config.cluster import ClusterConfig, GithubSource
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning

_LONGEST_ROLE, _LONGEST_ROLE_PATH = 64, 512  # IAM API, Role: RoleName and Path
_SSO_PATH = "aws-reserved/sso.amazonaws.com/"

# KMS Developer Guide, "Key identifiers"; a key of several regions starts with mrk-.
_KEY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|mrk-[0-9a-f]{32}")

# S3 User Guide, "General purpose bucket naming rules".
_BUCKET_STARTS = ("xn--", "sthree-", "amzn-s3-demo-")
_BUCKET_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")

# git-check-ref-format(1), besides what the form of the key refuses.
_NO_BRANCH = re.compile(r"\.\.|//|/\.|/$|\.$|\.lock($|/)")


def check_identities(config: ClusterConfig) -> Iterator[Finding]:
    """Yield names that AWS or GitHub have nothing for."""
    for index, arn in enumerate(config.access.admin_role_arns):
        yield from _role(("access", "admin_role_arns", index), arn)
    yield from _key(config)
    yield from _boundary(config)
    if isinstance(config.images.source, GithubSource):
        accounts = {role.split(":")[4] for role in config.access.admin_role_arns}
        yield from _source(config.images.source, config.region, accounts)
    for index, repository in enumerate(config.storage.lustre.data_repositories):
        path: Path = ("storage", "lustre", "data_repositories", index, "s3_uri")
        yield from check_bucket(path, repository.s3_uri)


def check_bucket(path: Path, uri: str) -> Iterator[Finding]:
    """Yield why S3 has no bucket of this name, or none that takes requests by its name alone."""
    name = uri.removeprefix("s3://").partition("/")[0]
    problem = None
    if ".." in name:
        problem = "has two dots in a row"
    elif _is_address(name):
        problem = "has the form of an address"
    elif name.startswith(_BUCKET_STARTS[:2]):
        problem = "starts with what S3 keeps for itself"
    elif name.endswith(_BUCKET_ENDS):
        problem = "is an access point's or a directory's, not a bucket's"
    elif name.startswith(_BUCKET_STARTS):
        problem = "is one of AWS's examples"
    if problem:
        yield Finding(Code.BUCKET_NAME, path, f"{name!r} {problem}", "use the bucket's own name")


def _is_address(name: str) -> bool:
    try:
        IPv4Address(name)
    except AddressValueError:
        return False
    return True


def _role(path: Path, arn: str) -> Iterator[Finding]:
    place, _, name = arn.split(":role/", 1)[1].rpartition("/")
    found = remedy = ""
    if not name or len(name) > _LONGEST_ROLE or len(place) > _LONGEST_ROLE_PATH:
        found = f"the last part names the role with {len(name)} characters; IAM takes 1 to 64"
        remedy = "use the ARN that `aws iam get-role` prints"
    elif place.startswith("aws-service-role/"):
        found = f"{name} belongs to a service: nobody can assume it"
        remedy = "use a role that people assume"
    elif name.startswith("AWSReservedSSO_") and not place.startswith(_SSO_PATH.rstrip("/")):
        # EKS User Guide, "Create access entries": a role's path belongs to the ARN, unlike in the
        # aws-auth ConfigMap.
        found = f"{name} is a role of IAM Identity Center, whose ARN has a path"
        remedy = f"use ...:role/{_SSO_PATH}[REGION/]{name}, as `aws iam get-role` prints it"
    if found:
        yield Finding(Code.ROLE, path, found, remedy)


def _key(config: ClusterConfig) -> Iterator[Finding]:
    arn = config.storage.kms_key_arn
    if arn is None:
        return
    path: Path = ("storage", "kms_key_arn")
    yield from _partition(path, arn, config.region)
    if not _KEY_ID.fullmatch(arn.rpartition("/")[2]):
        found = f"{arn.rpartition('/')[2]!r} is no id of a key"
        remedy = "use the ARN that `aws kms describe-key` prints"
        yield Finding(Code.BAD_FORMAT, path, found, remedy)


def _boundary(config: ClusterConfig) -> Iterator[Finding]:
    """Compare accounts: a boundary is one of AWS's policies or of the account of its roles."""
    arn = config.permissions_boundary_arn
    accounts = {role.split(":")[4] for role in config.access.admin_role_arns}
    if arn is not None and arn.split(":")[4] not in {"aws", *accounts}:
        found = f"a policy of account {arn.split(':')[4]}, and the administrators are of another"
        remedy = "use a policy of the account that you deploy to"
        yield warning(Code.ANOTHER_ACCOUNT, ("permissions_boundary_arn",), found, remedy)


def _source(source: GithubSource, region: str, accounts: Collection[str]) -> Iterator[Finding]:
    path: Path = ("images", "source")
    if source.repository.endswith(".git"):
        found = f"{source.repository} is the end of an address"
        remedy = f"use {source.repository.removesuffix('.git')}"
        yield Finding(Code.IMAGE_SOURCE, (*path, "repository"), found, remedy)
    if source.branch.startswith("refs/") or _NO_BRANCH.search(source.branch):
        found = f"{source.branch!r} is no name of a branch"
        name = source.branch.removeprefix("refs/heads/")
        remedy = "use the name that `git branch` prints" if name == source.branch else f"use {name}"
        yield Finding(Code.IMAGE_SOURCE, (*path, "branch"), found, remedy)
    place = (*path, "connection_arn")
    yield from _partition(place, source.connection_arn, region)
    theirs = source.connection_arn.split(":")[3]
    account = source.connection_arn.split(":")[4]
    if account not in accounts:
        found = f"a connection of account {account}, and the administrators are of another"
        remedy = "use one of the account that you deploy to"
        yield warning(Code.ANOTHER_ACCOUNT, place, found, remedy)
    if theirs != region:
        found = f"a connection of {theirs}, and CodeBuild runs in {region}"
        remedy = f"make one in {region}"
        yield warning(Code.ANOTHER_REGION, place, found, remedy)


def _partition(path: Path, arn: str, region: str) -> Iterator[Finding]:
    partition, theirs = PARTITIONS.get(region), arn.split(":")[1]
    if partition not in {None, theirs}:
        found = f"an ARN of partition {theirs!r} names nothing in {region}"
        yield Finding(Code.PARTITION, path, found, f"use arn:{partition}:...")
