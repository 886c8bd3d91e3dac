"""Guards of FSx for Lustre and EFS: settings, place, links to S3, and the ports of both."""

from collections.abc import Iterator
from itertools import product

from megatron_eks.catalog import pins
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.statements import listed
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import Value, written

_THROUGHPUTS = (125, 250, 500, 1000)
# With EFA 38,400 GiB at 125 MB/s per TiB, and half of it at twice the throughput.
_EFA_GIB_TIMES_THROUGHPUT = 4_800_000
_DENIED = "pods that share files are denied them"
_NO_SYSTEM = (("FileSystemId", (), "it belongs to no file system, and nothing mounts"),)
_OWNED = ("CreationInfo OwnerUid", "CreationInfo OwnerGid", "CreationInfo Permissions", "Path")
_EFS = (*_NO_SYSTEM, *((f"RootDirectory {key}", (), _DENIED) for key in _OWNED))
_AT_ONCE = (("BatchImportMetaDataOnCreate", (True,), "jobs see an empty directory at first"),)
_SMALL = (("DataCompressionType", ("LZ4", "NONE"), "data take more room"),)
_PORTS, _ALL = frozenset({988, *range(1018, 1024)}), frozenset(range(65536))
_BLOCKS = (_ALL, frozenset({988}), _PORTS - {988})
_ANYBODY = "addresses"
_ADDRESSES = ("CidrIp", "CidrIpv6", "SourcePrefixListId", "DestinationPrefixListId")
_SIDES = {"Ingress": "SourceSecurityGroupId", "Egress": "DestinationSecurityGroupId"}
_LUSTRE = {"Id": "", "DnsName": "DNSName", "MountName": "LustreMountName"}
_OUTPUTS = (
    *(("FSx::FileSystem", f"Lustre{end}", attribute) for end, attribute in _LUSTRE.items()),
    ("EFS::FileSystem", "EfsId", ""),
    ("EFS::AccessPoint", "EfsAccessPointId", "AccessPointId"),
)
_Way = tuple[str, str, str]  # a group, the direction, and who is at the other end


def _systems(templates: Templates) -> list[Resource]:
    systems = templates.of("FSx::FileSystem")
    return [e for e in systems if e["LustreConfiguration"] or e["FileSystemType"].raw == "LUSTRE"]


def _uses_efa(system: Resource) -> bool:
    return system["LustreConfiguration"]["EfaEnabled"].raw in (True, "true")


@template_guard
def lustre_settings(templates: Templates) -> Iterator[Finding]:
    """Refuse settings that FSx does not take together (FSx API, CreateFileSystem)."""
    code, settings = Code.LUSTRE_SETTINGS, "LustreConfiguration"
    for system in _systems(templates):
        kind = system[settings]["DeploymentType"].text
        scratch, why = kind.startswith("SCRATCH"), f"FSx refuses it for {kind or 'this one'}"
        tiering = system["StorageType"].raw == "INTELLIGENT_TIERING" and not scratch
        kinds = ("PERSISTENT_2", "SCRATCH_2")
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
        yield from system[settings].must_hold(code, _SMALL, Level.WARNING)
        size, rate = system["StorageCapacity"], system[settings]["PerUnitStorageThroughput"]
        efa = _uses_efa(system) and rate.raw in _THROUGHPUTS
        step = _EFA_GIB_TIMES_THROUGHPUT // int(rate.number or 1) if efa else 2400
        fits = isinstance(size.raw, int) and size.raw > 0 and size.raw % step == 0
        if not (fits or tiering or system["BackupId"] or (size.raw == 1200 and not efa)):  # noqa: PLR2004 -- GiB
            found = f"StorageCapacity is {written(size.raw)}: FSx has no such size"
            yield size.finding(code, found, f"set it to a multiple of {step} GiB")


@template_guard
def beside_the_nodes(templates: Templates) -> Iterator[Finding]:
    """Put file systems into the zone of GPU nodes; EFA crosses none (FSx, "Performance")."""

    def zone(subnet: Value) -> str:
        target = templates.target(subnet)
        return templates.text(target["AvailabilityZone"] if target else subnet) or str(subnet.raw)

    every = templates.of("EKS::Nodegroup")
    pools = [each for each in every if each["Taints"] or "NVIDIA" in each["AmiType"].text]
    zones = {zone(subnet) for pool in pools for subnet in listed(pool["Subnets"])}
    for system in _systems(templates):
        subnets, level = system["SubnetIds"], Level.ERROR if _uses_efa(system) else Level.WARNING
        own = [zone(each) for each in listed(subnets)]
        found, remedy = "FSx for Lustre takes exactly one subnet", "name that of a GPU pool"
        if len(own) != 1:
            yield subnets.finding(Code.LUSTRE_SETTINGS, found, remedy)
        elif zones and own[0] not in zones:
            found = "no GPU pool is in this subnet's zone: reads and checkpoints cross zones"
            yield subnets[0].finding(Code.SUBNETS, found, remedy, level)


@template_guard
def links_points_and_outputs(templates: Templates) -> Iterator[Finding]:
    """Fill directories from S3, let their owner write, and output what the charts mount."""
    links, points = templates.of("FSx::DataRepositoryAssociation"), templates.of("EFS::AccessPoint")
    yield from constants(links, Code.DATA_REPOSITORY, _NO_SYSTEM)
    yield from constants(links, Code.DATA_REPOSITORY, _AT_ONCE, Level.WARNING)
    yield from constants(points, Code.NETWORK_PART, _EFS)
    for point, key in product(points, ("Uid", "Gid")):
        owner, user = point["RootDirectory"]["CreationInfo"][f"Owner{key}"], point["PosixUser"][key]
        yield from user.must_be(Code.NETWORK_PART, owner.raw or 0, why=_DENIED)
    for kind, name, attribute in _OUTPUTS:
        for system in templates.of(kind):
            value = {"Fn::GetAtt": [system.name, attribute]} if attribute else {"Ref": system.name}
            given = [e["Value"].raw for key, e in templates.outputs(system.file) if name in key]
            if value not in given:
                found = f"no output {name} with its value: the charts cannot mount it"
                yield system.body["Outputs"].finding(Code.REFERENCE, found, f"add {name}: {value}")


def _name(templates: Templates, group: Value) -> str:
    target = templates.target(group)
    return target.name if target else templates.text(group) or str(group.raw)


def _rules(templates: Templates) -> Iterator[tuple[Value, Resource, _Way, frozenset[int]]]:
    """Return the rules of all groups: what holds each, its way, and the ports that it opens."""
    for way, side in _SIDES.items():
        alone = templates.of(f"EC2::SecurityGroup{way}")
        rules = [(e.properties, e, _name(templates, e["GroupId"])) for e in alone]
        for group in templates.of("EC2::SecurityGroup"):
            rules += [(each, group, group.name) for each in group[f"SecurityGroup{way}"]]
        for body, resource, name in rules:
            by_address = any(body[key] for key in _ADDRESSES)
            peer = _ANYBODY if by_address else _name(templates, body[side])
            tcp = str(body["IpProtocol"].raw) in {"tcp", "6"}
            first, last = body["FromPort"].number, body["ToPort"].number
            ports = _ALL if str(body["IpProtocol"].raw) == "-1" else frozenset()
            if tcp and first is not None and last is not None:
                ports = _ALL.intersection(range(max(int(first), 0), min(int(last), 65535) + 1))
            yield body, resource, (name, way, peer), ports


@template_guard
def lustre_ports(templates: Templates) -> Iterator[Finding]:
    """Open Lustre's ports both ways, for EFA all, before FSx tries them (FSx, "Access control")."""
    code, rules = Code.LUSTRE_PORTS, list(_rules(templates))
    groups = {each.name: each for each in templates.of("EC2::SecurityGroup")}
    carried = _carried(templates)
    for system in _systems(templates):
        own, efa, waits = system["SecurityGroupIds"], _uses_efa(system), system.body["DependsOn"]
        servers = {_name(templates, each) for each in listed(own)}
        near = [each for each in rules if servers & {*each[2]}]
        nodes = {e for rule in near for e in rule[2]} - {*servers, *_SIDES, _ANYBODY, "None"}
        if not servers or servers & carried - nodes or (carried and not carried & nodes):
            found = "no security group that is open to the nodes' group: mounts hang"
            remedy = "name the file servers' group, and open TCP 988 and 1018-1023 to the nodes'"
            yield own.finding(code, found, remedy)
        if not servers <= groups.keys():
            continue  # another group that is not at hand may complete this one
        what, wanted = ("all traffic (EFA)", _ALL) if efa else ("TCP 988 and 1018-1023", _PORTS)
        lacking = set()
        ways = [*product(servers, _SIDES, {*servers, *nodes})]
        ways += product(nodes, ("Ingress",), servers)
        # A group without a rule of its own lets everything out.
        shut = [e for e in nodes if e in groups and groups[e]["SecurityGroupEgress"]]
        for way in (*ways, *product(shut, ("Egress",), servers)):
            either = (way, (*way[:2], "" if efa else _ANYBODY))
            opened = [each[3] for each in rules if each[2] in either]
            lacking |= set() if wanted <= frozenset().union(*opened) else {way}
        for body, resource, way, ports in near:
            if ports not in _BLOCKS:
                level = Level.ERROR if way in lacking else Level.WARNING
                found = f"it opens {body['IpProtocol'].raw} {body['FromPort'].raw} to "
                found += f"{body['ToPort'].raw}, not {what}: mounts hang, or Lustre needs less"
                yield body.finding(code, found, f"open {what}, and no more", level)
            if resource.name not in {*groups, *waits.texts} and resource.file == system.file:
                found = f"it does not wait for {resource.name}: FSx finds its ports closed, fails"
                yield waits.finding(code, found, f"add {resource.name} to DependsOn")
        lacking -= {each[2] for each in near if each[3] not in _BLOCKS}
        for group, side, peer in sorted(lacking):
            found = f"{group} lacks {side.lower()} of {what} for {peer}: mounts hang"
            place = groups[group][f"SecurityGroup{side}"] if group in groups else own
            yield place.finding(code, found, f"add it to SecurityGroup{side} of {group}")


def _carried(templates: Templates) -> set[str]:
    """Return the groups that nodes carry."""
    data = [each["LaunchTemplateData"] for each in templates.of("EC2::LaunchTemplate")]
    lists = [each["Groups"] for every in data for each in every["NetworkInterfaces"]]
    lists += [each["SecurityGroupIds"] for each in data]
    return {_name(templates, each) for every in lists for each in listed(every)}
