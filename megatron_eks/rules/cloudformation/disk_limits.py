"""Rule over disks: sizes and speeds that their type has, and that fit each other."""

from collections.abc import Iterator
from typing import NamedTuple

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import DATA
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, number, shown, text, truth


class _Type(NamedTuple):
    sizes: range
    """In GiB."""
    speeds: range | None
    """Iops; None where the type takes none."""
    of_a_gib: int
    """The most Iops for each GiB."""


# EBS User Guide, "General Purpose SSD volumes", "Provisioned IOPS SSD volumes" and "Throughput
# Optimized HDD and Cold HDD volumes", read 2026-11.
_TYPES = {
    "gp2": _Type(range(1, 16_385), None, 0),
    "gp3": _Type(range(1, 65_537), range(3_000, 80_001), 500),
    "io1": _Type(range(4, 16_385), range(100, 64_001), 50),
    "io2": _Type(range(4, 65_537), range(100, 256_001), 1_000),
    "sc1": _Type(range(125, 16_385), None, 0),
    "st1": _Type(range(125, 16_385), None, 0),
    "standard": _Type(range(1, 1_025), None, 0),
}
_HARD_DISKS = frozenset({"sc1", "st1"})
_ROOTS = ("/dev/xvda", "/dev/sda1")
# EC2 API, LaunchTemplateBlockDeviceMappingRequest.
_MAPPED = ("Ebs", "NoDevice", "VirtualName")
_GP3_THROUGHPUTS = range(125, 2_001)
# One MiB/s takes four Iops.
_IOPS_OF_A_MIB = 4
_GP3_IOPS = 3_000


def limits(templates: TemplateSet) -> Iterator[Finding]:
    """Require of each disk a size, Iops and throughput that its type has together.

    EBS User Guide, "Amazon EBS volume types"; EC2 API, CreateVolume: gp3 has at most 0.25 MiB/s for
    one of its Iops, which are 3000 where none are given (runs-on issue 260).
    """
    for template in templates.resources("AWS::EC2::LaunchTemplate"):
        data = mapping(template.properties.get(DATA)) or {}
        names: list[Json] = []
        for index, value in enumerate(items(data.get("BlockDeviceMappings")) or []):
            device = mapping(value) or {}
            name = text(device.get("DeviceName"))
            if name is not None and name in names:
                # aws/containers-roadmap issue 1523: "used in more than one block-device mapping".
                place = (DATA, "BlockDeviceMappings", index, "DeviceName")
                found = f"{name} is mapped already, by mapping {names.index(name)}: EC2 refuses it"
                remedy = "put both into one mapping, or name another device"
                yield template.find(Code.DISK, place, found, remedy)
            names.append(name)
            yield from _nameless(template, index, device)
            disk = mapping(device.get("Ebs"))
            path: Path = (DATA, "BlockDeviceMappings", index, "Ebs")
            if disk:
                yield from _disk(template, path, disk, "VolumeSize", templates)
                kind = text(disk.get("VolumeType"))
                if kind in _HARD_DISKS and device.get("DeviceName") in _ROOTS:
                    found = f"{kind} as a root volume: EC2 refuses the launch"
                    yield template.find(Code.DISK, (*path, "VolumeType"), found, "use gp3")
    for volume in templates.resources("AWS::EC2::Volume"):
        yield from _disk(volume, (), dict(volume.properties), "Size", templates)
        given = ("Size", "SnapshotId", "SourceVolumeId")
        if all(is_absent(volume.properties.get(key)) for key in given):
            found = "neither a size nor a snapshot: EC2 refuses the volume"
            yield volume.find(Code.DISK, ("Size",), found, "add Size, in GiB")


def _nameless(template: Resource, index: int, device: dict[str, Json]) -> Iterator[Finding]:
    """Refuse a mapping of no device, and one that maps nothing to it."""
    path: Path = (DATA, "BlockDeviceMappings", index)
    if device and is_absent(device.get("DeviceName")):
        found = "a disk without a device: EC2 refuses the launch"
        yield template.find(Code.DISK, (*path, "DeviceName"), found, "add DeviceName: /dev/xvda")
    elif device and all(is_absent(device.get(key)) for key in _MAPPED):
        found = f"nothing is mapped to {shown(device['DeviceName'])}"
        remedy = "add Ebs with VolumeSize, or remove the mapping"
        yield template.find(Code.DISK, path, found, remedy)


def _disk(
    resource: Resource, path: Path, disk: dict[str, Json], key: str, templates: TemplateSet
) -> Iterator[Finding]:
    kind = text(templates.default(disk.get("VolumeType"), resource.file))
    limit = _TYPES.get(kind or "")
    if kind is not None and limit is None:
        yield resource.find(
            *(Code.DISK, (*path, "VolumeType")),
            *(f"{shown(kind)} is unknown to EBS", f"use one of {', '.join(sorted(_TYPES))}"),
        )
    encrypted = disk.get("Encrypted")
    plain = is_absent(encrypted) or truth(encrypted) is False
    if not is_absent(disk.get("KmsKeyId")) and plain and is_absent(disk.get("SnapshotId")):
        found = "KmsKeyId without Encrypted: true: EC2 refuses the disk"
        yield resource.find(Code.DISK, (*path, "Encrypted"), found, "set Encrypted to true")
    if limit is not None and kind is not None:
        sizes = [
            number(templates.default(disk.get(name), resource.file))
            for name in (key, "Iops", "Throughput")
        ]
        yield from _numbers(resource, (*path, key), disk, (kind, limit), sizes)


def _numbers(
    resource: Resource,
    place: Path,
    disk: dict[str, Json],
    kind_and_limit: tuple[str, _Type],
    numbers: list[int | None],
) -> Iterator[Finding]:
    (kind, limit), (size, iops, throughput) = kind_and_limit, numbers
    path, key = place[:-1], place[-1]
    if size is not None and size not in limit.sizes:
        found = f"{size} GiB, and {kind} has {limit.sizes[0]} to {limit.sizes[-1]}"
        yield resource.find(Code.DISK, (*path, key), found, "take a size in these limits")
    if limit.speeds is None and not is_absent(disk.get("Iops")):
        found = f"Iops of {kind}, which has none to choose: EC2 refuses the disk"
        yield resource.find(Code.DISK, (*path, "Iops"), found, "use gp3, or remove it")
    elif limit.speeds is not None and iops is not None and iops not in limit.speeds:
        found = f"{iops} Iops, and {kind} has {limit.speeds[0]} to {limit.speeds[-1]}"
        yield resource.find(Code.DISK, (*path, "Iops"), found, "take a number in these limits")
    elif iops is not None and size and iops > max(size * limit.of_a_gib, _least(kind)):
        found = f"{iops} Iops on {size} GiB, and {kind} has {limit.of_a_gib} for each GiB"
        remedy = f"use {size * limit.of_a_gib} Iops or less, or {-(-iops // limit.of_a_gib)} GiB"
        yield resource.find(Code.DISK, (*path, "Iops"), found, remedy)
    if kind == "gp3" and throughput is not None:
        silent = is_absent(disk.get("Iops"))
        yield from _throughput(resource, path, throughput, _GP3_IOPS if silent else iops)


def _least(kind: str) -> int:
    """Return the Iops that a disk of any size may have."""
    return _GP3_IOPS if kind == "gp3" else 0


def _throughput(
    resource: Resource, path: Path, throughput: int, iops: int | None
) -> Iterator[Finding]:
    place = (*path, "Throughput")
    needed = throughput * _IOPS_OF_A_MIB
    if throughput not in _GP3_THROUGHPUTS:
        found = f"{throughput} MiB/s, and gp3 has {_GP3_THROUGHPUTS[0]} to {_GP3_THROUGHPUTS[-1]}"
        yield resource.find(Code.DISK, place, found, "take a number in these limits")
    elif iops is not None and needed > iops:
        found = f"{throughput} MiB/s with {iops} Iops, and gp3 has 0.25 MiB/s for each: EC2 refuses"
        found += " the launch"
        remedy = f"write Iops: {needed}, or Throughput: {iops // _IOPS_OF_A_MIB}"
        yield resource.find(Code.DISK, place, found, remedy)
