"""Rules over EFS: settings that it refuses together, and whether its clients reach and mount it."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.cloudformation.security_groups import ALL, GROUP, TCP, rules_of
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text

_NFS = 2049
_MODE = re.compile(r"[0-7]{3,4}")
_TARGET = "AWS::EFS::MountTarget"


def file_systems(templates: TemplateSet) -> Iterator[Finding]:
    """Require settings of a file system that EFS takes together.

    EFS API, CreateFileSystem: maxIO is for bursting and provisioned throughput alone, and the
    latter has a figure.
    """
    for system in templates.resources("AWS::EFS::FileSystem"):
        body = system.properties
        mode, figure = text(body.get("ThroughputMode")), body.get("ProvisionedThroughputInMibps")
        if mode == "elastic" and body.get("PerformanceMode") == "maxIO":
            found = "maxIO beside ThroughputMode elastic: EFS refuses the file system"
            path = ("PerformanceMode",)
            yield system.find(Code.UNKNOWN_VALUE, path, found, "write generalPurpose, or remove it")
        if mode == "provisioned" and is_absent(figure):
            found = "ThroughputMode provisioned without a figure: EFS refuses the file system"
            remedy = "add ProvisionedThroughputInMibps, or write elastic"
            yield system.find(Code.UNKNOWN_VALUE, ("ThroughputMode",), found, remedy)
        elif mode in {None, "bursting", "elastic"} and not is_absent(figure):
            known = not is_absent(body.get("ThroughputMode")) or mode is None
            if known and not isinstance(body.get("ThroughputMode"), dict):
                found = f"a figure beside ThroughputMode {mode or 'bursting'}: EFS refuses it"
                path = ("ProvisionedThroughputInMibps",)
                remedy = "write ThroughputMode: provisioned, or remove it"
                yield system.find(Code.UNKNOWN_VALUE, path, found, remedy)


def access_points(templates: TemplateSet) -> Iterator[Finding]:
    """Require of an access point a directory that EFS can find or make.

    EFS API, RootDirectory and CreationInfo; EFS User Guide, "Enforcing a root directory with an
    access point": without CreationInfo a directory that is not there is not made, and mounting
    fails.
    """
    for point in templates.resources("AWS::EFS::AccessPoint"):
        root = mapping(point.properties.get("RootDirectory")) or {}
        path = text(root.get("Path"))
        if path is not None and not path.startswith("/") and not is_placeholder(path):
            found, remedy = f"{shown(path)} does not start with /", f"write /{path}"
            yield point.find(Code.UNKNOWN_VALUE, ("RootDirectory", "Path"), found, remedy)
        elif path not in {None, "/"} and is_absent(root.get("CreationInfo")):
            found = f"{shown(path)} is not made when it is not there, and mounting fails then"
            remedy = "add CreationInfo with OwnerUid, OwnerGid and Permissions"
            where: Path = ("RootDirectory", "CreationInfo")
            yield point.find(Code.UNKNOWN_VALUE, where, found, remedy, Level.WARNING)
        made = mapping(root.get("CreationInfo")) or {}
        rights = text(made.get("Permissions"))
        if rights is not None and not _MODE.fullmatch(rights) and not is_placeholder(rights):
            found = f"{shown(rights)} is no mode: EFS refuses the access point"
            where = ("RootDirectory", "CreationInfo", "Permissions")
            yield point.find(Code.UNKNOWN_VALUE, where, found, 'write octal digits, such as "0770"')


def mount_targets(templates: TemplateSet) -> Iterator[Finding]:
    """Require one mount target a zone, with groups that admit NFS.

    EFS API, CreateMountTarget (MountTargetConflict); EFS User Guide, "Using VPC security groups":
    without TCP 2049 from the clients every mount waits until it times out.
    """
    seen: dict[tuple[Resource | None, object], Resource] = {}
    judged: set[Resource] = set()
    for target in templates.resources(_TARGET):
        system = templates.target(target.properties.get("FileSystemId"), target.file)
        subnet = templates.target(target.properties.get("SubnetId"), target.file)
        zone = text(subnet.properties.get("AvailabilityZone")) if subnet is not None else None
        place = (system, zone or subnet)
        if system is not None and subnet is not None and "Condition" not in target.body:
            if place in seen:
                found = f"a second mount target in {zone or subnet.id}, beside {seen[place].id}: "
                found += "EFS refuses it"
                remedy = "name a subnet of another zone, or remove it"
                yield target.find(Code.TWICE, ("SubnetId",), found, remedy)
            seen.setdefault(place, target)
        listed = items(target.properties.get("SecurityGroups")) or []
        groups = templates.targets(listed, target.file)
        known = [each for each in groups if each is not None and each.type == GROUP]
        if known and len(known) == len(groups) and not judged.issuperset(known):
            judged.update(known)
            yield from _nfs(known, target, templates)


def _nfs(groups: list[Resource], target: Resource, templates: TemplateSet) -> Iterator[Finding]:
    rules = [rules_of(each, "Ingress", templates) for each in groups]
    if None in rules:
        return
    admitted = (
        rule.protocol in {ALL, None}
        or (rule.protocol == TCP and (rule.first or 0) <= _NFS <= (rule.last or 2**16))
        for each in rules
        for rule in each or []
    )
    if not any(admitted):
        found = f"admits no TCP {_NFS}, and {target.id} carries it: every mount of EFS waits"
        remedy = f"open TCP {_NFS} to the nodes"
        yield groups[0].find(Code.NETWORK_PART, ("SecurityGroupIngress",), found, remedy)
