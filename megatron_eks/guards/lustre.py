"""Guards of FSx for Lustre and EFS: settings, place, links to S3, and what the charts mount."""

from collections.abc import Iterator
from itertools import combinations

from megatron_eks.catalog import pins
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.statements import listed
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import Value, written

_THROUGHPUTS = (125, 250, 500, 1000)
# FSx for Lustre User Guide, "Managing storage capacity": with EFA 38,400 GiB at 125 MB/s per TiB,
# and half of it at twice the throughput.
_EFA_GIB_TIMES_THROUGHPUT = 4_800_000
_OUTPUTS = (
    ("FSx::FileSystem", "LustreId", "Ref", ""),
    ("FSx::FileSystem", "LustreDnsName", "Fn::GetAtt", "DNSName"),
    ("FSx::FileSystem", "LustreMountName", "Fn::GetAtt", "LustreMountName"),
    ("EFS::FileSystem", "EfsId", "Ref", ""),
    ("EFS::AccessPoint", "EfsAccessPointId", "Fn::GetAtt", "AccessPointId"),
)
_DENIED = "pods that share files are denied them"
_NO_SYSTEM = "it belongs to no file system, and nothing mounts"
_EFS = (
    ("FileSystemId", (), _NO_SYSTEM),
    *((f"PosixUser {key}", (), _DENIED) for key in ("Uid", "Gid")),
    *((f"RootDirectory CreationInfo {key}", (), _DENIED) for key in ("OwnerUid", "OwnerGid")),
    ("RootDirectory CreationInfo Permissions", (), _DENIED),
    ("RootDirectory Path", (), "pods see the whole file system"),
)


def file_systems(templates: Templates) -> list[Resource]:
    """Return the file systems that are Lustre's."""
    systems = templates.of("FSx::FileSystem")
    return [e for e in systems if e["LustreConfiguration"] or e["FileSystemType"].raw == "LUSTRE"]


def uses_efa(system: Resource) -> bool:
    """Tell whether a file system talks EFA with its clients."""
    return system["LustreConfiguration"]["EfaEnabled"].raw in (True, "true")


def gpu_subnets(templates: Templates) -> list[Value]:
    """Return the subnets of node groups with GPUs."""
    groups = templates.of("EKS::Nodegroup")
    pools = [each for each in groups if each["Taints"] or "NVIDIA" in each["AmiType"].text]
    return [subnet for pool in pools for subnet in listed(pool["Subnets"])]


def zone(templates: Templates, subnet: Value) -> str:
    """Return the zone of a subnet at hand, or the subnet itself."""
    target = templates.target(subnet)
    named = target["AvailabilityZone"] if target else subnet
    return templates.text(named) or str(subnet.raw)


@template_guard
def lustre_settings(templates: Templates) -> Iterator[Finding]:
    """Refuse settings that FSx does not take together (FSx API, CreateFileSystem)."""
    code = Code.LUSTRE_SETTINGS
    for system in file_systems(templates):
        settings = "LustreConfiguration"
        kind, disks = system[settings]["DeploymentType"].text, system["StorageType"].raw
        scratch = kind.startswith("SCRATCH")
        tiering = disks == "INTELLIGENT_TIERING" and not scratch
        why, kinds = f"FSx refuses it for {kind or 'this one'}", ("PERSISTENT_2", "SCRATCH_2")
        modes = (None,) if scratch else ("AUTOMATIC", "USER_PROVISIONED")
        rates = (None,) if scratch or tiering else _THROUGHPUTS
        rows = (
            (f"{settings} DeploymentType", kinds, "a scratch file system loses data with a server"),
            ("FileSystemType", ("LUSTRE",), "LustreConfiguration is for no other"),
            ("StorageType", ("SSD", "INTELLIGENT_TIERING")[: 1 if scratch else 2], why),
            ("FileSystemTypeVersion", (pins.LUSTRE_VERSION,), "nodes of AL2023 cannot mount it"),
            (f"{settings} PerUnitStorageThroughput", rates, why),
            (f"{settings} EfaEnabled", (None, False, True)[: 2 if scratch else 3], why),
            (f"{settings} MetadataConfiguration Mode", modes, f"{why}, or EFA is not to be had"),
        )
        yield from constants([system], code, rows)
        compression = (f"{settings} DataCompressionType", ("LZ4", "NONE"), "data take more room")
        yield from constants([system], code, (compression,), Level.WARNING)
        size, rate = system["StorageCapacity"], system[settings]["PerUnitStorageThroughput"]
        efa = uses_efa(system) and rate.raw in _THROUGHPUTS
        step = _EFA_GIB_TIMES_THROUGHPUT // int(rate.number or 1) if efa else 2400
        fits = isinstance(size.raw, int) and size.raw > 0 and size.raw % step == 0
        if not (fits or tiering or system["BackupId"] or (size.raw == 1200 and not efa)):  # noqa: PLR2004 -- GiB
            found = f"StorageCapacity is {written(size.raw)}: FSx has no such size"
            sizes = f"a multiple of {step}" if efa else "1200, 2400 or a multiple of 2400"
            yield size.finding(code, found, f"set it to {sizes} GiB")


@template_guard
def beside_the_nodes(templates: Templates) -> Iterator[Finding]:
    """Put a file system into one subnet, in the zone of GPU nodes that read it.

    FSx API, CreateFileSystem, SubnetIds; FSx for Lustre User Guide, "Performance": traffic between
    zones is slower and paid for, and EFA does not cross them.
    """
    zones = {zone(templates, subnet) for subnet in gpu_subnets(templates)}
    for system in file_systems(templates):
        subnets = system["SubnetIds"]
        if len(listed(subnets)) != 1:
            found = f"{len(listed(subnets))} subnets: FSx for Lustre takes exactly one"
            yield subnets.finding(Code.LUSTRE_SETTINGS, found, "name the subnet of the GPU pool")
        elif zones and zone(templates, listed(subnets)[0]) not in zones:
            found = "no GPU pool is in this subnet's zone: reads and checkpoints cross zones"
            level = Level.ERROR if uses_efa(system) else Level.WARNING
            yield subnets[0].finding(Code.SUBNETS, found, "name the subnet of a GPU pool", level)


@template_guard
def data_repositories(templates: Templates) -> Iterator[Finding]:
    """Link directories to prefixes of S3 of which none holds another, and copy what changes.

    FSx API, CreateDataRepositoryAssociation; FSx for Lustre User Guide, "Linking your file system
    to an Amazon S3 bucket".
    """
    code, links = Code.DATA_REPOSITORY, templates.of("FSx::DataRepositoryAssociation")
    yield from constants(links, code, (("FileSystemId", (), _NO_SYSTEM),))
    at_once = ("BatchImportMetaDataOnCreate", (True,), "jobs see an empty directory at first")
    yield from constants(links, code, (at_once,), Level.WARNING)
    for link in links:
        for key, start in (("FileSystemPath", "/"), ("DataRepositoryPath", "s3://")):
            path = templates.text(link[key])
            if not path.startswith(start) or path == start:
                found = f"{path!r} is not of the form {start}...: FSx refuses it"
                yield link[key].finding(code, found, f"write {start}NAME")
        ways = [link["S3"][f"Auto{way}Policy"]["Events"] for way in ("Import", "Export")]
        if not any({"NEW", "CHANGED"} <= {*each.texts} for each in ways):
            found = "neither imports nor exports what is NEW and CHANGED: both sides differ"
            remedy = "set AutoImportPolicy or AutoExportPolicy to Events: [NEW, CHANGED]"
            yield link["S3"].finding(code, found, remedy, Level.WARNING)
    for (one, other), key in (
        (pair, key)
        for pair in combinations(links, 2)
        for key in ("FileSystemPath", "DataRepositoryPath")
    ):
        first, second = (f"{templates.text(e[key]).rstrip('/')}/" for e in (one, other))
        same = one["FileSystemId"].raw == other["FileSystemId"].raw
        if same and (first.startswith(second) or second.startswith(first)):
            found = f"{key} overlaps that of {one.name}: FSx refuses one of them"
            yield other[key].finding(code, found, "give each a path of its own")


@template_guard
def outputs(templates: Templates) -> Iterator[Finding]:
    """Output what the charts mount: `meks outputs` writes it into outputs.json."""
    for kind, name, function, attribute in _OUTPUTS:
        for system in templates.of(kind):
            value = {function: [system.name, attribute] if attribute else system.name}
            given = [e["Value"].raw for key, e in templates.outputs(system.file) if name in key]
            if value not in given:
                found = f"no output {name} with its value: the charts cannot mount it"
                yield system.body["Outputs"].finding(Code.REFERENCE, found, f"add {name}: {value}")


@template_guard
def access_points(templates: Templates) -> Iterator[Finding]:
    """Write files of EFS under one user, to whom their directory belongs (EFS User Guide)."""
    points, code = templates.of("EFS::AccessPoint"), Code.NETWORK_PART
    yield from constants(points, code, _EFS)
    for point, key in ((each, key) for each in points for key in ("Uid", "Gid")):
        owner, user = point["RootDirectory"]["CreationInfo"][f"Owner{key}"], point["PosixUser"][key]
        yield from owner.must_be(code, user.raw, why=f"{user.name} differs, and {_DENIED}")
