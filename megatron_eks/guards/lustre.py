"""Guards of FSx for Lustre: settings, links to S3, zone and ports."""

from collections.abc import Iterator
from itertools import product

from megatron_eks.catalog import pins
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.network import ALL_TRAFFIC, ANYBODY, SIDES, name_of, rules
from megatron_eks.guards.statements import listed
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import Value, written

_THROUGHPUTS = (125, 250, 500, 1000)
# With EFA 38,400 GiB at 125 MB/s per TiB, and half of it at twice the throughput.
_EFA_GIB_TIMES_THROUGHPUT = 4_800_000
_NO_SYSTEM = (("FileSystemId", (), "it belongs to no file system, and nothing mounts"),)
_AT_ONCE = (("BatchImportMetaDataOnCreate", (True,), "jobs see an empty directory at first"),)
_SMALL = (("DataCompressionType", ("LZ4", "NONE"), "data take more room"),)
_PORTS = frozenset({988, *range(1018, 1024)})
_BLOCKS = (ALL_TRAFFIC, frozenset({988}), _PORTS - {988})


def _systems(templates: Templates) -> list[Resource]:
    systems = templates.of("FSx::FileSystem")
    return [e for e in systems if e["LustreConfiguration"] or e["FileSystemType"].raw == "LUSTRE"]


def _uses_efa(system: Resource) -> bool:
    return system["LustreConfiguration"]["EfaEnabled"].raw in (True, "true")


@template_guard
def lustre_settings(templates: Templates) -> Iterator[Finding]:
    """Refuse settings that FSx does not take together (FSx API, CreateFileSystem)."""
    code, settings = Code.LUSTRE_SETTINGS, "LustreConfiguration"
    links = templates.of("FSx::DataRepositoryAssociation")
    yield from constants(links, Code.DATA_REPOSITORY, _NO_SYSTEM)
    yield from constants(links, Code.DATA_REPOSITORY, _AT_ONCE, Level.WARNING)
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
        if zones and (len(own) != 1 or own[0] not in zones):
            found = "not one subnet in a zone of GPU pools: reads and checkpoints cross zones"
            yield subnets.finding(Code.SUBNETS, found, "name that of a GPU pool", level)


@template_guard
def lustre_ports(templates: Templates) -> Iterator[Finding]:
    """Open Lustre's ports both ways, for EFA all, before FSx tries them (FSx, "Access control")."""
    code, every = Code.LUSTRE_PORTS, list(rules(templates))
    groups = {each.name: each for each in templates.of("EC2::SecurityGroup")}
    carried = _carried(templates)
    for system in _systems(templates):
        own, efa, waits = system["SecurityGroupIds"], _uses_efa(system), system.body["DependsOn"]
        servers = {name_of(templates, each) for each in listed(own)}
        near = [each for each in every if servers & {*each.way}]
        nodes = {e for rule in near for e in rule.way} - {*servers, *SIDES, ANYBODY, "None"}
        if not servers or servers & carried - nodes or (carried and not carried & nodes):
            found = "no security group that is open to the nodes' group: mounts hang"
            remedy = "name the file servers' group, and open TCP 988 and 1018-1023 to the nodes'"
            yield own.finding(code, found, remedy)
        if not servers <= groups.keys():
            continue  # another group that is not at hand may complete this one
        what, wanted = ("all traffic", ALL_TRAFFIC) if efa else ("TCP 988 and 1018-1023", _PORTS)
        lacking = set()
        ways = [*product(servers, SIDES, {*servers, *nodes})]
        ways += product(nodes, ("Ingress",), servers)
        # A group without a rule of its own lets everything out.
        shut = [e for e in nodes if e in groups and groups[e]["SecurityGroupEgress"]]
        for way in (*ways, *product(shut, ("Egress",), servers)):
            either = (way, (*way[:2], "" if efa else ANYBODY))
            opened = [each.ports for each in every if each.way in either]
            lacking |= set() if wanted <= frozenset().union(*opened) else {way}
        for rule in near:
            body, name = rule.body, rule.resource.name
            if rule.ports not in _BLOCKS:
                level = Level.ERROR if rule.way in lacking else Level.WARNING
                found = f"it opens {body['IpProtocol'].raw} {body['FromPort'].raw} to "
                found += f"{body['ToPort'].raw}, not {what}: mounts hang, or Lustre needs less"
                yield body.finding(code, found, f"open {what}, and no more", level)
            if name not in {*groups, *waits.texts} and rule.resource.file == system.file:
                found = f"it does not wait for {name}: FSx finds its ports closed, and fails"
                yield waits.finding(code, found, f"add {name} to DependsOn")
        lacking -= {each.way for each in near if each.ports not in _BLOCKS}
        for group, side, peer in sorted(lacking):
            found = f"{group} lacks {side.lower()} of {what} for {peer}: mounts hang"
            place = groups[group][f"SecurityGroup{side}"] if group in groups else own
            yield place.finding(code, found, f"add it to SecurityGroup{side} of {group}")


def _carried(templates: Templates) -> set[str]:
    """Return the groups that nodes carry."""
    data = [each["LaunchTemplateData"] for each in templates.of("EC2::LaunchTemplate")]
    lists = [each["Groups"] for every in data for each in every["NetworkInterfaces"]]
    lists += [each["SecurityGroupIds"] for each in data]
    return {name_of(templates, each) for every in lists for each in listed(every)}
