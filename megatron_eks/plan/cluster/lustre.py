"""The FSx for Lustre file systems: size, zones, EFA and data repositories."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from megatron_eks.catalog import pins
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, warning
from megatron_eks.config.storage import DataRepository, Lustre
from megatron_eks.plan.cluster.data_access import check_bucket, overlap
from megatron_eks.plan.cluster.egress import has_no_way_out
from megatron_eks.plan.cluster.network import makes_vpc

CLAIM = "fsx-shared-pvc"


# Nitro before its fourth version cannot (FSx for Lustre User Guide, "Working with EFA-enabled file
# systems"); such nodes mount over TCP.
_OVER_TCP = ("p4d", "p4de", "g5")

# What every SCRATCH_2 file system has (FSx for Lustre User Guide, "Performance").
SCRATCH_MBPS_PER_TIB = 200
# A checkpoint write reaches about half of what the file system is sized for.
_WRITE_SHARE = 0.5

# What FSx updates in place, and what it cannot (FSx API, UpdateFileSystem; "Update requires" in the
# reference of AWS::FSx::FileSystem).
CHANGES: dict[str, dict[str, str]] = {
    "changes in place": {
        "capacity_gib": "only upwards, and not within six hours of the last change",
        "throughput_mbps_per_tib": "not with efa; files cannot be reached for minutes",
        "data_repositories": "files stay",
    },
    "needs a new, empty one": dict.fromkeys(
        ("deployment", "availability_zone", "efa", "kms_key_arn"),
        "the old one stays where storage.retain is true, and its data are yours to copy",
    ),
}

_STEP_GIB, _SMALLEST_GIB = 2400, 1200
# With EFA a step is a set of servers: 38,400 GiB at 125 MB/s per TiB, 4,800 at 1,000 (FSx for
# Lustre User Guide, "Managing storage capacity").
_EFA_STEP_TIMES_THROUGHPUT = 4_800_000
_LUSTRE: Path = ("storage", "lustre")
_MOST_REPOSITORIES = 8  # FSx API, CreateDataRepositoryAssociation
_PATH: Path = ("storage", "lustre", "data_repositories")


@dataclass(frozen=True)
class LustrePlan:
    """One FSx for Lustre file system."""

    zone: str
    suffix: str
    """Of the claim's name; empty for the first file system."""
    capacity_gib: int
    throughput_mbps_per_tib: int
    deployment: Literal["PERSISTENT_2", "SCRATCH_2"]
    version: str
    settings: Lustre
    """What FSx and the pods take as the cluster file says it."""

    @property
    def throughput_mb_s(self) -> float:
        """Throughput of the whole file system, in MB/s."""
        return self.capacity_gib / 1024 * self.throughput_mbps_per_tib

    @property
    def write_mb_s(self) -> float:
        """What checkpoints reach of it, in MB/s: about half."""
        return self.throughput_mb_s * _WRITE_SHARE

    @property
    def persistent(self) -> bool:
        """Whether it has metadata settings, a throughput to choose and a key of one's own."""
        return self.deployment == "PERSISTENT_2"

    @property
    def claim(self) -> str:
        """The claim through which pods mount it."""
        return f"{CLAIM}{self.suffix}"

    @property
    def output_suffix(self) -> str:
        """What ends the keys of its outputs."""
        return self.suffix.replace("-", "").capitalize()


def reaches_lustre_over_efa(instance_type: str) -> bool:
    """Tell whether a known type's EFA interfaces carry Lustre too."""
    family = instance_type.split(".", maxsplit=1)[0]
    return family not in _OVER_TCP and INSTANCES[instance_type].efa_interfaces > 0


def file_system_zones(config: ClusterConfig) -> tuple[str, ...]:
    """Return the zones of the file systems, the first one's first."""
    lustre = config.storage.lustre
    pools = [pool.availability_zone for pool in config.gpu_pools]
    first = lustre.availability_zone or pools[0]
    return tuple(dict.fromkeys((first, *pools))) if lustre.per_zone else (first,)


def plan_file_system(lustre: Lustre, zone: str, suffix: str) -> LustrePlan:
    """Plan the file system of a zone; the suffix ends its claim's name."""
    scratch = lustre.deployment == "scratch_2"
    return LustrePlan(
        zone=zone,
        suffix=suffix,
        capacity_gib=lustre.capacity_gib,
        throughput_mbps_per_tib=SCRATCH_MBPS_PER_TIB if scratch else lustre.throughput_mbps_per_tib,
        deployment="SCRATCH_2" if scratch else "PERSISTENT_2",
        version=pins.LUSTRE_VERSION,
        settings=lustre,
    )


def check_lustre(config: ClusterConfig) -> Findings:
    """Yield everything wrong with the file systems."""
    lustre = config.storage.lustre
    if lustre.existing is None:
        yield from _capacity(lustre)
    yield from _deployment(lustre)
    yield from _zones(config)
    if lustre.efa:
        if has_no_way_out(config) and config.existing_cluster is None:
            found = "nodes cannot load the client's set-up (docs.aws.amazon.com): they use TCP"
            remedy = "set network.proxy, use a NAT gateway, or set efa: false"
            yield warning(Code.LUSTRE_EFA, (*_LUSTRE, "efa"), found, remedy)
        for index, pool in enumerate(config.gpu_pools):
            if pool.instance_type in INSTANCES and not reaches_lustre_over_efa(pool.instance_type):
                found = f"{pool.instance_type} reaches Lustre over TCP: its EFA is paid unused"
                remedy = "set storage.lustre.efa: false, or use p5 and later"
                yield warning(Code.LUSTRE_EFA, ("gpu_pools", index, "instance_type"), found, remedy)
    yield from check_repositories(lustre)
    if lustre.existing is not None:
        suffix = "amazonaws.com.cn" if config.region.startswith("cn-") else "amazonaws.com"
        wanted = f"{lustre.existing.id}.fsx.{config.region}.{suffix}"
        name = lustre.existing.dns_name
        if name.endswith((".amazonaws.com", ".amazonaws.com.cn")) and name != wanted:
            found = f"{name} is not where {lustre.existing.id} is reached in {config.region}"
            place = (*_LUSTRE, "existing", "dns_name")
            yield Finding(Code.LUSTRE_EXISTING, place, found, f"use {wanted}")
        if makes_vpc(config):
            found = "the file system's VPC exists, and nodes get a new one, without a way to it"
            remedy = "set network.vpc_id and private_subnets, or peer them with TCP 988, 1018-1023"
            yield warning(Code.LUSTRE_EXISTING, (*_LUSTRE, "existing"), found, remedy)


def _capacity(lustre: Lustre) -> Findings:
    size, path = lustre.capacity_gib, (*_LUSTRE, "capacity_gib")
    if size == (near := size_for(lustre, size)):
        return
    if lustre.efa:
        found = f"with EFA at {lustre.throughput_mbps_per_tib} MB/s a TiB none has {size} GiB"
        remedy = f"use {near} or another multiple of {_step(lustre, size)}"
        yield Finding(Code.LUSTRE_EFA, path, found, remedy)
    else:
        remedy = f"use {near}; FSx has 1200, 2400 and multiples of 2400"
        yield Finding(Code.LUSTRE_CAPACITY, path, f"{size} GiB is no size of a file system", remedy)


def _step(lustre: Lustre, gib: int) -> int:
    if lustre.efa:
        return _EFA_STEP_TIMES_THROUGHPUT // lustre.throughput_mbps_per_tib
    return _SMALLEST_GIB if gib <= _SMALLEST_GIB else _STEP_GIB


def size_for(lustre: Lustre, gib: int) -> int:
    """Return the smallest size of a file system that holds so much."""
    step = _step(lustre, gib)
    return -(-gib // step) * step


def _deployment(lustre: Lustre) -> Findings:
    if lustre.deployment != "scratch_2":
        return
    path = (*_LUSTRE, "deployment")
    if lustre.efa:
        remedy = "use persistent_2, or set efa: false"
        yield Finding(Code.LUSTRE_EFA, path, "scratch_2 has no EFA", remedy)
    found = f"one copy, no backup, AWS's own key, and always {SCRATCH_MBPS_PER_TIB} MB/s per TiB"
    yield warning(Code.LUSTRE_SCRATCH, path, found, "use persistent_2, or keep a copy in S3")


def _zones(config: ClusterConfig) -> Findings:
    lustre = config.storage.lustre
    zones = file_system_zones(config)
    if lustre.per_zone and lustre.existing is not None:
        found, remedy = "one file system exists, in one zone", "leave it out"
        yield Finding(Code.LUSTRE_EXISTING, (*_LUSTRE, "per_zone"), found, remedy)
    if lustre.per_zone and lustre.availability_zone is not None:
        found, remedy = "each pool's zone has one", "remove it, or set per_zone: false"
        yield Finding(Code.LUSTRE_PER_ZONE, (*_LUSTRE, "availability_zone"), found, remedy)
    pools = {pool.availability_zone for pool in config.gpu_pools}
    zone = lustre.availability_zone
    if zone in zones and zone in config.availability_zones and pools and zone not in pools:
        found = f"no pool is in {zone}; traffic between zones is slow and billed"
        remedy = f"remove it, or write {config.gpu_pools[0].availability_zone}, where a pool is"
        yield warning(Code.POOLS_ACROSS_ZONES, (*_LUSTRE, "availability_zone"), found, remedy)
        return
    for index, pool in enumerate(config.gpu_pools):
        # Where the file system's own zone is wrong, that is the finding.
        if pool.availability_zone not in zones and zones[0] in config.availability_zones:
            found = f"the file system is in {zones[0]}; traffic between zones is slow and billed"
            remedy = f"use {zones[0]}, where the file system is, or storage.lustre.per_zone: true"
            place = ("gpu_pools", index, "availability_zone")
            yield warning(Code.POOLS_ACROSS_ZONES, place, found, remedy)


def check_repositories(lustre: Lustre) -> Findings:
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
            yield Finding(Code.LUSTRE_PER_ZONE, place, found, "set one of both to false")


def _overlapping(repositories: Sequence[DataRepository], index: int) -> Findings:
    repository, path = repositories[index], _PATH
    for other in repositories[:index]:
        if overlap(repository.path, other.path):
            found = f"{repository.path} and {other.path} overlap"
            remedy = "use directories of which none holds another"
            yield Finding(Code.LUSTRE_REPOSITORY, (*path, index, "path"), found, remedy)
        place = (*path, index, "s3_uri")
        if repository.s3_uri.rstrip("/") == other.s3_uri.rstrip("/"):
            found = f"{repository.s3_uri} is shown as {other.path} already"
            yield Finding(Code.LUSTRE_REPOSITORY, place, found, "show each prefix once")
        elif overlap(repository.s3_uri, other.s3_uri):
            # FSx for Lustre User Guide, "Linking your file system to an Amazon S3 bucket":
            # not even where both are only read.
            found = f"{repository.s3_uri} and {other.s3_uri} overlap"
            remedy = "use prefixes apart from each other"
            yield Finding(Code.LUSTRE_REPOSITORY, place, found, remedy)
