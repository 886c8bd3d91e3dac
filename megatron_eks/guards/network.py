"""Guards of the network: the VPC, its subnets, and the way out of them."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from ipaddress import IPv4Network

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Value

_PART, _HTTPS = Code.NETWORK_PART, 443
_ZONE = re.compile(r"([a-z]{2}(?:-[a-z]+)+-[0-9]+)(?:[a-z]|-[a-z]+-[0-9]+[a-z])")
_PUBLIC, _PRIVATE = "kubernetes.io/role/elb", "kubernetes.io/role/internal-elb"
_CONSTANTS = {
    "EC2::VPC": (
        ("EnableDnsHostnames", (YES,), "nodes do not register, and no private name is resolved"),
        ("EnableDnsSupport", (YES, None), "nodes resolve no name at all"),
    ),
    "EC2::FlowLog": (
        ("TrafficType", ("ALL",), "refused or accepted traffic is not recorded"),
        ("LogDestinationType", ("cloud-watch-logs", None), "a log group is no such destination"),
        *((key, (), "EC2 refuses it") for key in ("LogGroupName", "DeliverLogsPermissionArn")),
    ),
    "EC2::NatGateway": (("AllocationId", (), "EC2 refuses it without an Elastic IP address"),),
}
_SUBNET = (("MapPublicIpOnLaunch", (NO, None), "the internet reaches nodes in it"),)
_ENDPOINT = (
    ("VpcEndpointType", ("Interface",), "EC2 refuses a gateway of this service"),
    ("SubnetIds", (), "it has no address, so nobody reaches it"),
    ("PrivateDnsEnabled", (YES,), "no name leads to it: nodes wait for the public address"),
)
# What nodes, and a bastion, call before they are ready (EKS, "Deploy private clusters").
_WITHOUT_NAT = ("ec2", "ecr.api", "ecr.dkr", "eks-auth")
_BASTION = ("ssm", "ssmmessages")
_SERVICES = {*_WITHOUT_NAT, *_BASTION, "autoscaling", "eks", "fsx", "logs", "s3", "sts", "kms"}


@template_guard
def subnets_and_logs(templates: Templates) -> Iterator[Finding]:
    """Names work in the VPC, and traffic is logged (EKS, "VPC and subnet considerations")."""
    subnets, usual = templates.of("EC2::Subnet"), _region(templates)
    for kind, rows in _CONSTANTS.items():
        yield from constants(templates.of(kind), _PART, rows)
    yield from constants(subnets, Code.PUBLIC_ADDRESS, _SUBNET)
    for vpc in templates.of("EC2::VPC"):
        if not _leading(templates, "EC2::FlowLog", "ResourceId", vpc):
            found = "no flow log: refused traffic is seen by nobody"
            yield vpc.properties.finding(_PART, found, "add one of this VPC", Level.WARNING)
    for subnet in subnets:
        zone, tags = subnet["AvailabilityZone"], subnet["Tags"]
        match = _ZONE.fullmatch(zone.text)
        if (zone.text or not zone) and (not match or match[1] != usual):
            found = f"{zone.text or 'no zone'}: EC2 refuses it, or the capacity is elsewhere"
            yield zone.finding(Code.RANGE, found, f"name a zone of {usual or 'the region'}")
        if not {_PUBLIC, _PRIVATE} & _roles(subnet):
            found = "no tag for load balancers: Kubernetes places none in this subnet"
            remedy = f"add {_PRIVATE} or, if it is public, {_PUBLIC}, with the value 1"
            yield tags.finding(Code.SUBNETS, found, remedy, Level.WARNING)


@template_guard
def way_out(templates: Templates) -> Iterator[Finding]:
    """Nodes have no public address: they get out by NAT (EKS, "VPC and subnet considerations")."""
    nat = templates.of("EC2::NatGateway")
    for subnet in templates.of("EC2::Subnet"):
        links, table = _links(templates, subnet)
        ways = _ways_out(templates, table)
        public = _PUBLIC in _roles(subnet) or any(e in nat for e in templates.users(subnet))
        by_nat = bool(ways - {"GatewayId"}) or not (ways or nat)
        place = links[0]["RouteTableId"] if links else subnet.properties
        alone = _is_private(templates, subnet) and not by_nat
        closed = public and "GatewayId" not in ways
        for gateway in [*["NAT"] * alone, *["internet"] * closed] if table or not links else ():
            found = f"{subnet.name} has no way out by the {gateway} gateway: what is in it waits"
            remedy = f"use a route table with a route to 0.0.0.0/0 by the {gateway} gateway"
            yield place.finding(_PART, found, remedy)
    attached = {each.name for each in templates.of("EC2::VPCGatewayAttachment")}
    for each in templates.of("EC2::Route", "EC2::NatGateway", "EC2::EIP") if attached else ():
        waits, depends = each.type != "AWS::EC2::Route" or each["GatewayId"], each.body["DependsOn"]
        if waits and not attached & {*depends.texts}:
            found = "it does not wait for the gateway's attachment, and EC2 refuses it before that"
            yield depends.finding(_PART, found, f"set it to [{min(attached)!r}]")


@template_guard
def way_to_services(templates: Templates) -> Iterator[Finding]:
    """S3 has its own gateway; without NAT, the rest has endpoints (VPC, "Gateway endpoints")."""
    private = [each for each in templates.of("EC2::Subnet") if _is_private(templates, each)]
    tables = [table for each in private if (table := _links(templates, each)[1])]
    out = templates.of("EC2::NatGateway") or any(_ways_out(templates, each) for each in tables)
    known = sorted(templates.of("EC2::VPCEndpoint"), key=lambda each: bool(each["RouteTableIds"]))
    there = {_service(each): each["RouteTableIds"] for each in known}
    wanted = {*_WITHOUT_NAT, *(_BASTION if templates.of("EC2::Instance") else ())}
    for name in sorted(wanted - there.keys()) if tables and not out else ():
        found = f"no NAT gateway, and no endpoint for {name}: nodes or pods wait for it"
        remedy = f"add an interface endpoint for com.amazonaws.REGION.{name}, or a NAT gateway"
        yield tables[0].properties.finding(_PART, found, remedy)
    loss = "image layers and checkpoints are billed by NAT" if out else "no image is pulled"
    for table in tables:
        if "s3" not in there or table not in templates.targets(there["s3"]):
            place, level = there.get("s3", table.properties), Level.WARNING if out else Level.ERROR
            found = f"no gateway endpoint of S3 in {table.name}: {loss}"
            remedy = f"add {table.name} to the RouteTableIds of a gateway endpoint for S3"
            yield place.finding(Code.ENDPOINT_UNUSED, found, remedy, level)


@template_guard
def endpoints(templates: Templates) -> Iterator[Finding]:
    """Nodes find an endpoint by name and reach it by HTTPS (PrivateLink, "Interface endpoints")."""
    usual = _region(templates)
    for each in templates.of("EC2::VPCEndpoint"):
        name, groups = each["ServiceName"], each["SecurityGroupIds"]
        close = get_close_matches(_service(each), _SERVICES, 1, 0.8) or [_service(each)]
        wanted = f"com.amazonaws.{usual}.{close[0]}"
        if usual and name.text not in {"", wanted}:
            found = f"{name.text} is no service here: EC2 refuses the endpoint"
            yield name.finding(Code.ENDPOINT_NAME, found, f"set it to {wanted!r}")
        if _service(each) in {"s3", "dynamodb"} and each["VpcEndpointType"].text != "Interface":
            continue
        yield from constants([each], Code.ENDPOINT_UNUSED, _ENDPOINT)
        known = templates.targets(groups)
        admitted = any(_admits(templates, group, "Ingress") for group in known)
        if not admitted and len(known) == len(list(groups)):
            found = "no group admits TCP 443 from the VPC, so every call waits"
            remedy = "name a group with an ingress rule for tcp 443 from the VPC's range"
            yield groups.finding(Code.ENDPOINT_UNUSED, found, remedy)


@template_guard
def groups(templates: Templates) -> Iterator[Finding]:
    """Nobody gets in from everywhere; nodes get out (Security Hub, EC2.19; aws-cdk issue 987)."""
    listed, kind = templates.of("EC2::SecurityGroup"), "EC2::SecurityGroupIngress"
    rules = [each.properties for each in templates.of(kind)]
    rules += [rule for group in listed for rule in group["SecurityGroupIngress"]]
    for cidr in (rule[key] for rule in rules for key in ("CidrIp", "CidrIpv6")):
        if is_wide(cidr):
            found = f"{cidr.text} lets the whole internet in"
            yield cidr.finding(Code.OPEN_TO_ALL, found, "name the group or range that needs it")
    for group in listed:
        own = _leading(templates, kind, "SourceSecurityGroupId", group)
        used = any("-1" in str(each["IpProtocol"].raw) for each in own)
        used |= any(each.type == "AWS::EC2::Instance" for each in templates.users(group))
        if used and not _admits(templates, group, "Egress"):
            found = "no rule leads out to TCP 443: ECR, S3 and the API endpoint are not reached"
            remedy = "add an egress rule to 0.0.0.0/0, with IpProtocol '-1' or tcp 443"
            yield group["SecurityGroupEgress"].finding(_PART, found, remedy)


def is_wide(cidr: Value) -> bool:
    """Tell a range that holds most of the internet."""
    return re.fullmatch(r".*/[0-7]", cidr.text) is not None


def range_of(value: Value) -> IPv4Network | None:
    """Return a range of addresses, if it is one."""
    try:
        return IPv4Network(value.text) if "/" in value.text else None
    except ValueError:
        return None


def covers(rule: Value) -> bool:
    """Tell whether a rule admits HTTPS, to or from somewhere."""
    first, last, cidr = rule["FromPort"].quantity, rule["ToPort"].quantity, rule["CidrIp"]
    ports = first is not None and last is not None and first <= _HTTPS <= last
    admitted = {"-1": True, "tcp": ports, "6": ports}.get(str(rule["IpProtocol"].raw), False)
    sides = any(key.startswith(("Cidr", "Source", "Destination")) for key, _ in rule.items())
    return admitted and sides and (not cidr.text or range_of(cidr) is not None)


def _admits(templates: Templates, group: Resource, way: str) -> bool:
    """Tell whether rules of a group admit HTTPS, to or from anything but itself."""
    rules, beside = list(group[f"SecurityGroup{way}"]), f"EC2::SecurityGroup{way}"
    other = "SourceSecurityGroupId" if way == "Ingress" else "DestinationSecurityGroupId"
    more = _leading(templates, beside, "GroupId", group)
    rules += [each.properties for each in more if templates.target(each[other]) is not group]
    return any(map(covers, rules)) or (way == "Egress" and not rules and not more)


def _leading(templates: Templates, kind: str, key: str, to: Resource) -> list[Resource]:
    return [each for each in templates.of(kind) if templates.target(each[key]) is to]


def _service(endpoint: Resource) -> str:
    return ".".join(endpoint["ServiceName"].text.split(".")[3:])


def _region(templates: Templates) -> str:
    zones = [_ZONE.fullmatch(e["AvailabilityZone"].text) for e in templates.of("EC2::Subnet")]
    regions = [zone[1] for zone in zones if zone]
    return max(regions, key=regions.count, default="")


def _roles(subnet: Resource) -> set[str]:
    return {each["Key"].text for each in subnet["Tags"] if each["Value"].raw in ("1", "")}


def _is_private(templates: Templates, subnet: Resource) -> bool:
    nodes = {"AWS::EKS::Nodegroup", "AWS::EC2::Instance"}
    return _PRIVATE in _roles(subnet) or any(e.type in nodes for e in templates.users(subnet))


def _links(templates: Templates, subnet: Resource) -> tuple[list[Resource], Resource | None]:
    links = _leading(templates, "EC2::SubnetRouteTableAssociation", "SubnetId", subnet)
    return links, templates.target(links[0]["RouteTableId"]) if links else None


def _ways_out(templates: Templates, table: Resource | None) -> set[str]:
    """Return what a table's routes to everywhere name: `NatGatewayId` or `GatewayId`."""
    routes = _leading(templates, "EC2::Route", "RouteTableId", table) if table else []
    out = [each for each in routes if each["DestinationCidrBlock"].text == "0.0.0.0/0"]
    ways = [way for each in out for key, way in each.properties.items() if key != "RouteTableId"]
    kinds = [(way, templates.target(way)) for way in ways if way.name.endswith("Id")]
    leads = [(e, e.name[:-2] in kind.type if kind else not e["Ref"]) for e, kind in kinds]
    return {way.name for way, is_right in leads if is_right}
