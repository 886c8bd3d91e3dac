"""The S3 prefixes that the file systems show as directories."""

from collections.abc import Iterator, Sequence

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.config.storage import DataRepository, Lustre
from megatron_eks.plan.cluster.data_access import check_bucket

_MOST_REPOSITORIES = 8  # FSx API, CreateDataRepositoryAssociation
_PATH: Path = ("storage", "lustre", "data_repositories")


def check_repositories(lustre: Lustre) -> Iterator[Finding]:
    """Yield repositories that FSx does not take, or that write over each other."""
    repositories, path = lustre.data_repositories, _PATH
    if repositories and lustre.existing is not None:
        found = "the file system exists, and so do its data repositories"
        yield Finding(Code.LUSTRE_EXISTING, path, found, "leave them out")
    if len(repositories) > _MOST_REPOSITORIES:
        found = f"{len(repositories)} data repositories"
        yield Finding(Code.LUSTRE_REPOSITORY, path, found, "use at most 8 for a file system")
    for index, repository in enumerate(repositories):
        yield from check_bucket((*path, index, "s3_uri"), repository.s3_uri)
        yield from _overlapping(repositories, index)
        if "*" in repository.s3_uri:
            # FSx API, CreateDataRepositoryAssociation.DataRepositoryPath: s3://BUCKET/PREFIX/.
            found = f"{repository.s3_uri} is a pattern, and FSx shows a whole prefix"
            place, remedy = (*path, index, "s3_uri"), "name the prefix alone"
            yield Finding(Code.LUSTRE_REPOSITORY, place, found, remedy)
        if f"{repository.path}/".startswith(f"{lustre.mount_path}/"):
            found = f"jobs would see it at {lustre.mount_path}{repository.path}"
            below = repository.path.removeprefix(lustre.mount_path) or "/data, for example"
            remedy = f"leave out the mount: {below}"
            yield warning(Code.LUSTRE_REPOSITORY, (*path, index, "path"), found, remedy)
        if repository.export_changes and lustre.per_zone:
            found = "several file systems would write to the same prefix"
            place = (*path, index, "export_changes")
            remedy = "set it to false, or per_zone to false"
            yield Finding(Code.LUSTRE_PER_ZONE, place, found, remedy)


def _overlapping(repositories: Sequence[DataRepository], index: int) -> Iterator[Finding]:
    """Yield what a data repository shares with one above it."""
    repository, path = repositories[index], _PATH
    for other in repositories[:index]:
        if _overlap(repository.path, other.path):
            found = f"{repository.path} and {other.path} overlap"
            remedy = "use directories of which none holds another"
            yield Finding(Code.LUSTRE_REPOSITORY, (*path, index, "path"), found, remedy)
        place = (*path, index, "s3_uri")
        if repository.s3_uri.rstrip("/") == other.s3_uri.rstrip("/"):
            found = f"{repository.s3_uri} is shown as {other.path} already"
            yield Finding(Code.LUSTRE_REPOSITORY, place, found, "show each prefix once")
        elif _overlap(repository.s3_uri, other.s3_uri):
            # FSx for Lustre User Guide, "Linking your file system to an Amazon S3 bucket":
            # not even where both are only read.
            found = f"{repository.s3_uri} and {other.s3_uri} overlap"
            remedy = "use prefixes of which none holds another"
            yield Finding(Code.LUSTRE_REPOSITORY, place, found, remedy)


def _overlap(one: str, other: str) -> bool:
    one, other = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return one.startswith(other) or other.startswith(one)
