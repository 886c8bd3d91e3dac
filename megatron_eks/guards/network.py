"""Guards of the network: the VPC, its subnets, and the way out of them."""

import re
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Network
from statistics import mode

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.statements import allows, is_everybody, statements
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Value, report

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
_WITHOUT_NAT, _BASTION = {"ec2", "ecr.api", "ecr.dkr", "eks-auth"}, {"ssm", "ssmmessages"}


@template_guard
def subnets_and_logs(templates: Templates) -> Iterator[Finding]:
    """Names work in the VPC, and traffic is logged (EKS, "VPC and subnet considerations")."""
    subnets = templates.of("EC2::Subnet")
    for kind, rows in _CONSTANTS.items():
        yield from constants(templates.of(kind), _PART, rows)
    yield from constants(subnets, Code.PUBLIC_ADDRESS, _SUBNET)
    for vpc in templates.of("EC2::VPC"):
        if not _leading(templates, "EC2::FlowLog", "ResourceId", vpc):
            found = "no flow log: refused traffic is seen by nobody"
            yield vpc.properties.finding(_PART, found, "add one of this VPC", Level.WARNING)
    for subnet in subnets:
        if not {_PUBLIC, _PRIVATE} & _roles(subnet):
            found, remedy = "no load balancer is placed here", f"add {_PRIVATE} or {_PUBLIC}: '1'"
            yield subnet["Tags"].finding(Code.SUBNETS, found, remedy, Level.WARNING)


@template_guard
def way_out(templates: Templates) -> Iterator[Finding]:
    """Nodes have no public address: they get out by NAT (EKS, "VPC and subnet considerations")."""
    nat, private = templates.of("EC2::NatGateway"), _private(templates)
    for subnet in templates.of("EC2::Subnet"):
        place, table = _table(templates, subnet)
        ways = _ways_out(templates, table)
        public = _PUBLIC in _roles(subnet) or any(e in nat for e in templates.users(subnet))
        alone = subnet in private and not ways - {"GatewayId"} and (ways or nat)
        closed = public and "GatewayId" not in ways
        for way in [*["NAT"] * bool(alone), *["internet"] * closed] if table or not place else ():
            found = f"{subnet.name} has no way out by the {way} gateway: what is in it waits"
            remedy = f"name a route table whose route to 0.0.0.0/0 has the {way} gateway"
            yield (place or subnet.properties).finding(_PART, found, remedy)
    attached = {each.name for each in templates.of("EC2::VPCGatewayAttachment")}
    for each in templates.of("EC2::Route", "EC2::NatGateway", "EC2::EIP") if attached else ():
        waits, depends = each.type != "AWS::EC2::Route" or each["GatewayId"], each.body["DependsOn"]
        if waits and not attached & {*depends.texts}:
            found = "it does not wait for the gateway's attachment, and EC2 refuses it before that"
            yield depends.finding(_PART, found, f"set it to [{min(attached)!r}]")


@template_guard
def way_to_services(templates: Templates) -> Iterator[Finding]:
    """S3 has its own gateway; without NAT, the rest has endpoints (VPC, "Gateway endpoints")."""
    tables = [e for each in _private(templates) if (e := _table(templates, each)[1])]
    out = templates.of("EC2::NatGateway") or any(_ways_out(templates, each) for each in tables)
    known = sorted(templates.of("EC2::VPCEndpoint"), key=lambda each: bool(each["RouteTableIds"]))
    there = {_service(templates, each): each["RouteTableIds"] for each in known}
    wanted = _WITHOUT_NAT | (_BASTION if templates.of("EC2::Instance") else set())
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
    code = Code.ENDPOINT_UNUSED
    for each in templates.of("EC2::VPCEndpoint"):
        policy, service = each["PolicyDocument"], _service(templates, each)
        said, every = statements(policy), f"{service.partition('.')[0]}:*"
        wide = [e for e in said if allows(e, every) and not e["Condition"]]
        wide = [e for e in wide if is_everybody(e["Principal"]) and "*" in e["Resource"].texts]
        denied = [str(e.raw) for e in said if e["Effect"].text == "Deny"]
        shut = [each for each in denied if "aws:SecureTransport" not in each]
        if policy and (shut or not wide):
            found = "it lets only part through: ECR keeps image layers in buckets of its own"
            yield policy.finding(code, found, "remove the policy: roles decide", Level.WARNING)
        if service in {"s3", "dynamodb"} and each["VpcEndpointType"].text != "Interface":
            continue
        yield from constants([each], code, _ENDPOINT)
        known = templates.targets(each["SecurityGroupIds"])
        admitted = any(_admits(templates, group, "Ingress") for group in known)
        if not admitted and len(known) == len(list(each["SecurityGroupIds"])):
            place = known[0]["SecurityGroupIngress"] if known else each["SecurityGroupIds"]
            found = "no rule admits TCP 443 from all private subnets: calls to endpoints wait"
            yield place.finding(code, found, "admit tcp 443 from the VPC's range")


@template_guard
def groups(templates: Templates) -> Iterator[Finding]:
    """Nobody gets in from everywhere; nodes get out (Security Hub, EC2.19; aws-cdk issue 987)."""
    listed, kind = templates.of("EC2::SecurityGroup"), "EC2::SecurityGroupIngress"
    rules = [rule for group in listed for rule in group["SecurityGroupIngress"]]
    rules += [each.properties for each in templates.of(kind)]
    for cidr in (rule[key] for rule in rules for key in ("CidrIp", "CidrIpv6")):
        row = (is_wide(cidr), cidr, f"{cidr.text} lets the whole internet in", "name who needs it")
        yield from report(Code.OPEN_TO_ALL, row)
    for group in listed:
        own = _leading(templates, kind, "SourceSecurityGroupId", group)
        used = any(each.type == "AWS::EC2::Instance" for each in templates.users(group))
        used |= any("-1" in str(each["IpProtocol"].raw) for each in own)
        if used and not _admits(templates, group, "Egress"):
            found = "no rule leads out to TCP 443: ECR, S3 and the API endpoint are not reached"
            yield group["SecurityGroupEgress"].finding(_PART, found, "let tcp 443 out to 0.0.0.0/0")


def is_wide(cidr: Value) -> bool:
    """Tell a range that holds most of the internet."""
    return re.fullmatch(r".*/[0-7]", cidr.text) is not None


def range_of(value: Value) -> IPv4Network | None:
    """Return a range of addresses, if it is one."""
    with suppress(ValueError):
        return IPv4Network(value.text) if "/" in value.text else None
    return None


def covers(rule: Value) -> bool:
    """Tell whether a rule admits HTTPS, to or from somewhere."""
    first, last, cidr = rule["FromPort"].quantity, rule["ToPort"].quantity, rule["CidrIp"]
    ports = first is not None and last is not None and first <= _HTTPS <= last
    admitted = {"-1": True, "tcp": ports, "6": ports}.get(str(rule["IpProtocol"].raw), False)
    sides = any(key.startswith(("Cidr", "Source", "Destination")) for key, _ in rule.items())
    return admitted and sides and (not cidr.text or range_of(cidr) is not None)


def _admits(templates: Templates, group: Resource, way: str) -> bool:
    """Tell whether rules of a group admit HTTPS from all private subnets, or to anywhere."""
    key = "SourceSecurityGroupId" if way == "Ingress" else "DestinationSecurityGroupId"
    inside, kind = list(group[f"SecurityGroup{way}"]), f"EC2::SecurityGroup{way}"
    beside = _leading(templates, kind, "GroupId", group)
    if way == "Egress" and not inside and not beside:
        return True  # a group without rules lets everything out
    others = [each.properties for each in beside if templates.target(each[key]) is not group]
    ranges = [range_of(each["CidrIp"]) for each in (*inside, *others) if covers(each)]
    near = [range_of(each["CidrBlock"]) for each in _private(templates) if way == "Ingress"]
    shut = [all(wide and net and not net.subnet_of(wide) for wide in ranges) for net in near]
    return bool(ranges) and not any(shut)


def _leading(templates: Templates, kind: str, key: str, to: Resource) -> list[Resource]:
    return [each for each in templates.of(kind) if templates.target(each[key]) is to]


def _service(templates: Templates, endpoint: Resource) -> str:
    """Return `s3` of `com.amazonaws.REGION.s3`, the whole name in another region."""
    return endpoint["ServiceName"].text.removeprefix(f"com.amazonaws.{_region(templates)}.")


def _region(templates: Templates) -> str:
    zones = [_ZONE.fullmatch(e["AvailabilityZone"].text) for e in templates.of("EC2::Subnet")]
    return mode([zone[1] for zone in zones if zone] or [""])


def _roles(subnet: Resource) -> set[str]:
    return {each["Key"].text for each in subnet["Tags"] if each["Value"].raw in ("1", "")}


def _private(templates: Templates) -> list[Resource]:
    """Return the subnets for nodes, or with nodes in them."""
    every, nodes = templates.of("EC2::Subnet"), {"AWS::EKS::Nodegroup", "AWS::EC2::Instance"}
    used = [any(user.type in nodes for user in templates.users(each)) for each in every]
    return [e for e, own in zip(every, used, strict=True) if own or _PRIVATE in _roles(e)]


def _table(templates: Templates, subnet: Resource) -> tuple[Value, Resource | None]:
    """Return where a subnet's route table is named, and the table."""
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
