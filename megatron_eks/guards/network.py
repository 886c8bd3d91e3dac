"""Guards of the network: the way out of subnets, endpoints, and rules of security groups."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network

from megatron_eks.guards.codes import Rule
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Found, Value, report

_PART, HTTPS = Rule.NETWORK_PART, 443
SIDES = {"Ingress": "SourceSecurityGroupId", "Egress": "DestinationSecurityGroupId"}
_ADDRESSES = ("CidrIp", "CidrIpv6", "SourcePrefixListId", "DestinationPrefixListId")
NODES = re.compile(r".*NodeSecurityGroup([0-9A-F]{8})?")
"""Logical ids of the nodes' group: in a stack of somebody else the CDK adds path and hash."""
ANYBODY, ALL_TRAFFIC = "addresses", frozenset(range(-1, 65536))  # -1: protocols without ports
_PUBLIC, _PRIVATE = "kubernetes.io/role/elb", "kubernetes.io/role/internal-elb"
_VPC = (
    ("EnableDnsHostnames", (YES,), "nodes do not register, and no private name is resolved"),
    ("EnableDnsSupport", (YES, None), "nodes resolve no name at all"),
)
_SUBNET = (("MapPublicIpOnLaunch", (NO, None), "the internet reaches nodes in it"),)
_ENDPOINT = (
    ("SubnetIds", (), "it has no address, so nobody reaches it"),
    ("PrivateDnsEnabled", (YES,), "no name leads to it: nodes wait for the public address"),
)
_ITSELF = "rule for all traffic within the group: EFA traffic is dropped, and NCCL hangs"
_ADDRESSES_OF_NODES = 64  # a node and its pods take dozens
# What nodes call before they are ready (EKS, "Deploy private clusters").
_WITHOUT_NAT = {"ec2", "ecr.api", "ecr.dkr", "eks-auth"}


@dataclass(frozen=True)
class SecurityGroupRule:
    """A rule of a security group, in the group or beside it."""

    body: Value
    resource: Resource
    way: tuple[str, str, str]
    """The group, the side (Ingress or Egress), and the group at the other end, or ANYBODY."""
    ports: frozenset[int]


def rules(templates: Templates) -> Iterator[SecurityGroupRule]:
    """Return the rules of all security groups."""
    for side, peer in SIDES.items():
        alone = templates.of(f"EC2::SecurityGroup{side}")
        found = [(e.properties, e, name_of(templates, e["GroupId"])) for e in alone]
        for group in templates.of("EC2::SecurityGroup"):
            found += [(each, group, group.name) for each in group[f"SecurityGroup{side}"]]
        for body, resource, name in found:
            by_address = any(body[key] for key in _ADDRESSES)
            far = ANYBODY if by_address else name_of(templates, body[peer])
            first, last = body["FromPort"].quantity, body["ToPort"].quantity
            ports = ALL_TRAFFIC if str(body["IpProtocol"].raw) == "-1" else frozenset[int]()
            if body["IpProtocol"].raw in ("tcp", "6", 6) and first is not None and last is not None:
                ports = frozenset(range(max(int(first), 0), min(int(last), 65535) + 1))
            yield SecurityGroupRule(body, resource, (name, side, far), ports)


def name_of(templates: Templates, group: Value) -> str:
    """Return the logical id of a security group, or what is written instead."""
    target = templates.target(group)
    return target.name if target else templates.text(group) or str(group.raw)


@template_guard
def way_out(templates: Templates) -> Found:
    """Nodes have no public address: they get out by NAT (EKS, "VPC and subnet considerations")."""
    nat, private = templates.of("EC2::NatGateway"), _private(templates)
    yield from constants(templates.of("EC2::VPC"), _PART, *_VPC)
    yield from constants(templates.of("EC2::Subnet"), Rule.PUBLIC_ADDRESS, *_SUBNET)
    zones = [templates.text(each["AvailabilityZone"]) for each in private]
    for subnet in private:
        zone, block = subnet["AvailabilityZone"], range_of(subnet["CidrBlock"])
        twice, found = zones.count(templates.text(zone)) > 1, "another private subnet is there too"
        row = (twice, zone, found, "name a zone of its own")
        yield from report(Rule.SUBNETS, *row, warns=True)
        small = block and block.num_addresses < _ADDRESSES_OF_NODES
        found = f"{subnet['CidrBlock'].text} has no addresses for nodes and their pods"
        remedy = "write a wider range, /24 or so"
        yield from report(Rule.SUBNETS, small, subnet["CidrBlock"], found, remedy, warns=True)
    for gateway in (each["SubnetId"] for each in nat):
        table = _table(templates, at)[1] if (at := templates.target(gateway)) else None
        lost = table and "GatewayId" not in _ways_out(templates, table)
        found = "a private subnet: the gateway itself has no route to the internet"
        yield from report(_PART, lost, gateway, found, "name a public subnet")
    for subnet in templates.of("EC2::Subnet"):
        place, table = _table(templates, subnet)
        ways, public = _ways_out(templates, table), _PUBLIC in _roles(subnet)
        alone = subnet in private and not ways - {"GatewayId"} and (ways or nat)
        closed = public and "GatewayId" not in ways
        for way in [*["NAT"] * bool(alone), *["internet"] * closed] if table or not place else ():
            found = f"{subnet.name} has no route to the {way} gateway: nothing in it gets out"
            remedy = f"name a route table whose route to 0.0.0.0/0 is the {way} gateway"
            yield (place or subnet.properties).finding(_PART, found, remedy)


@template_guard
def way_to_services(templates: Templates) -> Found:
    """S3 has its own gateway; without NAT, the rest has endpoints (VPC, "Gateway endpoints")."""
    tables = [e for each in _private(templates) if (e := _table(templates, each)[1])]
    out = templates.of("EC2::NatGateway") or any(_ways_out(templates, each) for each in tables)
    known = sorted(templates.of("EC2::VPCEndpoint"), key=lambda each: bool(each["RouteTableIds"]))
    there = {_service(templates, each): each["RouteTableIds"] for each in known}
    for name in sorted(_WITHOUT_NAT - there.keys()) if tables and not out else ():
        found = f"no NAT gateway, and no endpoint for {name}: nodes or pods cannot reach it"
        remedy = f"add an interface endpoint for com.amazonaws.REGION.{name}, or a NAT gateway"
        yield tables[0].properties.finding(_PART, found, remedy)
    loss = "image layers and checkpoints are billed as NAT traffic" if out else "no image is pulled"
    for table in tables:
        if "s3" not in there or table not in templates.targets(there["s3"]):
            place = there.get("s3", table.properties)
            found = f"no gateway endpoint of S3 in {table.name}: {loss}"
            remedy = f"add {table.name} to the RouteTableIds of a gateway endpoint for S3"
            yield place.finding(Rule.ENDPOINT_UNUSED, found, remedy, warns=out)


@template_guard
def endpoints(templates: Templates) -> Found:
    """Nodes find an endpoint by name and reach it by HTTPS (PrivateLink, "Interface endpoints")."""
    code, inward = Rule.ENDPOINT_UNUSED, [e for e in rules(templates) if e.way[1] == "Ingress"]
    for cidr in (rule.body[key] for rule in inward for key in _ADDRESSES[:2]):
        row = (is_wide(cidr), cidr, f"{cidr.text} lets the whole internet in", "name who needs it")
        yield from report(Rule.OPEN_TO_ALL, *row)
    near = [range_of(each["CidrBlock"]) for each in _private(templates)]
    regions = [
        templates.text(e["ServiceName"]).split(".")[2:3] for e in templates.of("EC2::VPCEndpoint")
    ]
    usual = max(regions, key=regions.count, default=[])
    for each, region in zip(templates.of("EC2::VPCEndpoint"), regions, strict=True):
        found = "a service of another region than the other endpoints': AWS refuses it"
        row = (region != usual, each["ServiceName"], found, f"name that of {''.join(usual)}")
        yield from report(code, *row)
        if _service(templates, each) == "s3" and each["VpcEndpointType"].text != "Interface":
            continue
        yield from constants([each], code, *_ENDPOINT)
        known = templates.targets(each["SecurityGroupIds"])
        own = [e for e in inward if e.way[0] in {group.name for group in known}]
        admitted = [range_of(e.body["CidrIp"]) for e in own if HTTPS in e.ports]
        shut = [e for e in near if not any(not e or not a or e.subnet_of(a) for a in admitted)]
        if (shut or not admitted) and len(known) == len(each["SecurityGroupIds"].listed):
            place = own[0].body if own else each["SecurityGroupIds"]
            found = "no rule admits TCP 443 from all private subnets: calls to it time out"
            yield place.finding(code, found, "admit tcp 443 from the VPC's range")


@template_guard
def self_rules(templates: Templates) -> Found:
    """EFA is no IP traffic: its group must admit itself (EC2, "Get started with EFA", step 1)."""
    for group in [e for e in templates.of("EC2::SecurityGroup") if NODES.fullmatch(e.name)]:
        for side, far in SIDES.items():
            own = [e for e in rules(templates) if e.way == (group.name, side, group.name)]
            none = ALL_TRAFFIC not in [each.ports for each in own]
            place = own[0].body["IpProtocol"] if own else group.body
            remedy = f"add AWS::EC2::SecurityGroup{side}: IpProtocol '-1', {far} this group"
            yield from report(Rule.EFA_SELF_RULES, none, place, f"no {side} {_ITSELF}", remedy)


def is_wide(cidr: Value) -> bool:
    """Tell a range that holds most of the internet."""
    return re.fullmatch(r".*/[0-7]", cidr.text) is not None


def range_of(value: Value) -> IPv4Network | None:
    """Return a range of addresses, if it is one."""
    with suppress(ValueError):
        return IPv4Network(value.text) if "/" in value.text else None
    return None


def _leading(templates: Templates, kind: str, key: str, to: Resource) -> list[Resource]:
    return [each for each in templates.of(kind) if templates.target(each[key]) is to]


def _service(templates: Templates, endpoint: Resource) -> str:
    """Return `ecr.api` of `com.amazonaws.REGION.ecr.api`."""
    name = templates.text(endpoint["ServiceName"])
    return name.removeprefix("com.amazonaws.").partition(".")[2]


def _roles(subnet: Resource) -> set[str]:
    return {each["Key"].text for each in subnet["Tags"] if each["Value"].raw in ("1", "")}


def _private(templates: Templates) -> list[Resource]:
    """Return the subnets for nodes, or with nodes in them."""
    every, nodes = templates.of("EC2::Subnet"), {"AWS::EKS::Nodegroup", "AWS::EC2::Instance"}
    used = [any(user.type in nodes for user in templates.users(each)) for each in every]
    return [e for e, own in zip(every, used, strict=True) if own or _PRIVATE in _roles(e)]


def _table(templates: Templates, subnet: Resource) -> tuple[Value, Resource | None]:
    links = _leading(templates, "EC2::SubnetRouteTableAssociation", "SubnetId", subnet)
    place = links[0]["RouteTableId"] if links else subnet["RouteTableId"]
    return place, templates.target(place)


def _ways_out(templates: Templates, table: Resource | None) -> set[str]:
    """Return what a table's routes to everywhere name: `NatGatewayId` or `GatewayId`."""
    routes = _leading(templates, "EC2::Route", "RouteTableId", table) if table else []
    out = [each for each in routes if each["DestinationCidrBlock"].text == "0.0.0.0/0"]
    ways = [way for each in out for key, way in each.properties.items() if key != "RouteTableId"]
    kinds = [(e.name, templates.target(e), e["Ref"]) for e in ways if e.name.endswith("Id")]
    return {name for name, kind, ref in kinds if (name[:-2] in kind.type if kind else not ref)}
