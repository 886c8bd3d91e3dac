"""Rules over how a network is put together: ranges, names, routes, and the rules of groups."""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from megatron_eks.catalog.regions import PARTITIONS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.security_groups import GROUP, TCP, protocol_of
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_given,
    is_intrinsic,
    is_placeholder,
    is_range,
    items,
    mapping,
    number,
    shown,
    text,
    written,
)

_CLOSE = 0.75
_ZONE = re.compile(r"(?P<region>[a-z]{2}(-[a-z]+)+-[0-9])[a-z]")
_GATEWAYS = ("dynamodb", "s3", "s3express")
_SERVICES = (
    *("aws.", "cn.com.amazonaws.", "com.amazonaws.", "eu.", "gov.ic.", "gov.sgov."),
    "uk.adc-e.",
)
_ELSEWHERE = ("cn-", "eu-isoe-", "eusc-", "us-iso")
_RANGES = frozenset(
    {
        *("CidrBlock", "CidrIp", "CidrIpv6", "DestinationCidrBlock", "DestinationIpv6CidrBlock"),
        *("Ipv6CidrBlock", "PublicAccessCidrs", "ServiceIpv4Cidr"),
    }
)
# What a resource needs one of, beyond what its schema says (CloudFormation User Guide, each type).
_ONE_OF: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "AWS::EC2::NatGateway": (
        ("SubnetId", "VpcId"),
        ("AllocationId", "ConnectivityType", "AvailabilityZoneAddresses", "AvailabilityMode"),
    ),
    "AWS::EC2::Route": (
        ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId"),
        (
            *("GatewayId", "NatGatewayId", "TransitGatewayId", "VpcPeeringConnectionId"),
            *("NetworkInterfaceId", "InstanceId", "VpcEndpointId", "EgressOnlyInternetGatewayId"),
            *("CarrierGatewayId", "CoreNetworkArn", "LocalGatewayId"),
        ),
    ),
    "AWS::EC2::SecurityGroupIngress": (("GroupId", "GroupName"),),
    "AWS::EC2::Subnet": (("CidrBlock", "Ipv4IpamPoolId", "Ipv6CidrBlock", "Ipv6IpamPoolId"),),
    "AWS::EC2::VPC": (("CidrBlock", "Ipv4IpamPoolId"),),
    "AWS::EC2::VPCEndpoint": (("ServiceName", "ResourceConfigurationArn", "ServiceNetworkArn"),),
    "AWS::EC2::VPCGatewayAttachment": (("InternetGatewayId", "VpnGatewayId"),),
}
_IN_DESCRIPTIONS = re.compile(r"[A-Za-z0-9 ._\-:/()#,@\[\]+=&;{}!$*]")
_PLAIN = "use letters, digits, spaces and ._-:/()#,@[]+=&;{}!$*"
_WITH_PORTS = frozenset({TCP, "udp"})
_PORTS = range(65536)
_PEERS = {
    "Ingress": (
        *("CidrIp", "CidrIpv6", "SourcePrefixListId", "SourceSecurityGroupId"),
        "SourceSecurityGroupName",
    ),
    "Egress": ("CidrIp", "CidrIpv6", "DestinationPrefixListId", "DestinationSecurityGroupId"),
}


def ranges(templates: TemplateSet) -> Iterator[Finding]:
    """Require ranges of addresses that EC2 can read.

    EC2 API, CreateVpc, CreateSubnet, IpRange; EKS API, VpcConfigRequest: always with the length.
    """
    for resource in templates.everything():
        for path, value in _ranges(dict(resource.properties), ()):
            if not is_range(value) and not is_placeholder(value):
                found = f"{shown(value)} is no range of addresses"
                yield resource.find(Code.RANGE, path, found, _as_range(value))


def _as_range(value: str) -> str:
    """Say what to write; of one address the range that holds it alone, of none all of them."""
    try:
        address = ipaddress.ip_address(value.strip())
    except ValueError:
        return "write it as 10.0.0.0/16"
    whole = address.max_prefixlen if int(address) else 0
    if whole and not address.packed[-1]:
        return "write it as 10.0.0.0/16"
    return f"write {address}/{whole}, or the length of the range that is meant"


def _ranges(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        named = key in _RANGES
        for index, one in enumerate(each) if named and isinstance(each, list) else ():
            if isinstance(one, str):
                yield (*path, key, index), one
        if named and isinstance(each, str):
            yield (*path, key), each
        elif isinstance(each, dict | list) and not is_intrinsic(each):
            yield from _ranges(each, (*path, key))


def zones(templates: TemplateSet) -> Iterator[Finding]:
    """Require zones of regions that exist.

    AWS General Reference, "AWS regions and endpoints"; a local zone's name starts with its region.
    """
    for resource in templates.everything():
        zone = text(resource.properties.get("AvailabilityZone"))
        if zone is None or is_placeholder(zone) or zone.startswith((*PARTITIONS, *_ELSEWHERE)):
            continue
        close = get_close_matches(zone[:-1], PARTITIONS, 2, _CLOSE)
        if close:
            found = f"{shown(zone)} is in no region"
            remedy = f"did you mean {' or '.join(f'{each}{zone[-1:]}' for each in close)}?"
            yield resource.find(Code.RANGE, ("AvailabilityZone",), found, remedy)
    yield from _other_regions(templates)


def _other_regions(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a zone of another region than the stack's others: a stack makes all in its own."""
    named = [
        (resource, match["region"], zone)
        for resource in templates.everything()
        if (zone := text(resource.properties.get("AvailabilityZone")))
        and (match := _ZONE.fullmatch(zone))
        and match["region"] in PARTITIONS
    ]
    for file in dict.fromkeys(resource.file for resource, _, _ in named):
        here = [each for each in named if each[0].file == file]
        first = Counter(region for _, region, _ in here).most_common(1)[0][0]
        for resource, region, zone in here:
            if region != first:
                found = f"{zone} is in {region}, and the zones beside it are in {first}"
                remedy = f"name a zone of {first}"
                yield resource.find(Code.RANGE, ("AvailabilityZone",), found, remedy)
    for resource in templates.everything():
        zone = text(resource.properties.get("AvailabilityZone"))
        if zone in PARTITIONS:
            found, remedy = f"{zone} is a region", f"name one of its zones, such as {zone}a"
            yield resource.find(Code.RANGE, ("AvailabilityZone",), found, remedy)


def services(templates: TemplateSet) -> Iterator[Finding]:
    """Require names of services as an endpoint takes them.

    EC2 API, CreateVpcEndpoint.ServiceName.
    """
    for endpoint in templates.resources("AWS::EC2::VPCEndpoint"):
        path: Path
        name = written(endpoint.properties.get("ServiceName"))
        if name is not None and not is_placeholder(name) and not name.startswith(_SERVICES):
            found, remedy = f"{shown(name)} is no service", "write it as com.amazonaws.REGION.NAME"
            yield endpoint.find(Code.NETWORK_PART, ("ServiceName",), found, remedy)
        gateway = text(endpoint.properties.get("VpcEndpointType")) in {None, "Gateway"}
        typed = is_absent(endpoint.properties.get("VpcEndpointType"))
        last = (name or "").rpartition(".")[2]
        if gateway and name and last not in _GATEWAYS and name.startswith(_SERVICES):
            found = f"{shown(name)} as a gateway, which {', '.join(_GATEWAYS)} alone have"
            path = ("VpcEndpointType",)
            remedy = "set VpcEndpointType to Interface"
            yield endpoint.find(Code.NETWORK_PART, path, found, remedy)
        elif (typed or gateway) and is_absent(endpoint.properties.get("RouteTableIds")):
            found, remedy = "in no route table, so nothing goes through it", "name the route tables"
            path = ("RouteTableIds",)
            yield endpoint.find(Code.NETWORK_PART, path, found, remedy, Level.WARNING)


def parts(templates: TemplateSet) -> Iterator[Finding]:
    """Require the parts without which a network is none.

    CloudFormation User Guide, AWS::EC2::Route, ::Subnet, ::VPC and others: one of several
    properties is needed; EC2 API, CreateSecurityGroup: without a VPC it is the default one.
    """
    for kind, needs in _ONE_OF.items():
        for resource in templates.resources(kind):
            for names in needs if _is_whole(resource, templates) else ():
                if all(is_absent(resource.properties.get(name)) for name in names):
                    found = f"{kind} needs one of {', '.join(names[:4])}"
                    yield resource.find(Code.NETWORK_PART, (names[0],), found, f"add {names[0]}")
    # Another template of the folder may be another example.
    own = {each.file for each in templates.resources("AWS::EC2::VPC")}
    for group in templates.resources(GROUP):
        whole = group.file in own and _is_whole(group, templates)
        if whole and is_absent(group.properties.get("VpcId")):
            found = "no VPC, so the group goes into the account's default one"
            remedy = "name the VPC that the other resources are in"
            yield group.find(Code.NETWORK_PART, ("VpcId",), found, remedy)
    yield from _without_routes(templates)


def _is_whole(resource: Resource, templates: TemplateSet) -> bool:
    """Tell a template from a fragment, which something else may complete."""
    names = templates.names(resource.file)
    return names is not None and names.whole


def _without_routes(templates: TemplateSet) -> Iterator[Finding]:
    """Find subnets of nodes that have only the VPC's main routes, beside others that have more."""
    joined = {
        templates.target(each.properties.get("SubnetId"), each.file)
        for each in templates.resources("AWS::EC2::SubnetRouteTableAssociation")
    }
    if not joined or None in joined:
        return
    for group in templates.resources("AWS::EKS::Nodegroup"):
        for subnet in templates.targets(items(group.properties.get("Subnets")) or [], group.file):
            if subnet is not None and subnet.type == "AWS::EC2::Subnet" and subnet not in joined:
                joined.add(subnet)
                found = "no route table, so its nodes reach neither EKS nor a registry"
                remedy = "add an AWS::EC2::SubnetRouteTableAssociation"
                yield subnet.find(Code.NETWORK_PART, (), found, remedy, Level.WARNING)


def group_rules(templates: TemplateSet) -> Iterator[Finding]:
    """Require the other side, and ports where a protocol has any, of each rule of a group.

    EC2 API, IpPermission, and CreateSecurityGroup on the characters of a description;
    CloudFormation User Guide, AWS::EC2::SecurityGroupIngress.
    """
    for group in templates.resources(GROUP):
        written = text(group.properties.get("GroupDescription")) or ""
        if refused := _refused(written):
            yield group.find(Code.GROUP_RULE, ("GroupDescription",), refused, _PLAIN)
    for way, peers in _PEERS.items():
        for group in templates.resources(GROUP):
            key = f"SecurityGroup{way}"
            for index, value in enumerate(items(group.properties.get(key)) or []):
                yield from _rule(group, (key, index), mapping(value) or {}, peers)
        for rule in templates.resources(f"{GROUP}{way}"):
            yield from _rule(rule, (), rule.properties, peers)


def _refused(description: str) -> str:
    """Say what EC2 does not take in a description; nothing where it takes all."""
    refused = {each for each in description if not _IN_DESCRIPTIONS.fullmatch(each)}
    if not refused or is_placeholder(description):
        return ""
    return f"EC2 refuses {', '.join(ascii(each) for each in sorted(refused))} in it"


def _rule(
    resource: Resource, path: Path, body: Mapping[str, Json], peers: tuple[str, ...]
) -> Iterator[Finding]:
    if not body or any(key.startswith("Fn::") for key in body):
        return
    if refused := _refused(text(body.get("Description")) or ""):
        yield resource.find(Code.GROUP_RULE, (*path, "Description"), refused, _PLAIN)
    given = [peer for peer in peers if is_given(body.get(peer))]
    none = all(is_absent(body.get(peer)) for peer in peers)
    if len(given) > 1 or none:
        found = f"{' and '.join(given)} in one rule" if given else "a rule without another side"
        yield resource.find(Code.GROUP_RULE, path, found, f"give one of {', '.join(peers)}")
    missing = [key for key in ("FromPort", "ToPort") if is_absent(body.get(key))]
    protocol = protocol_of(body.get("IpProtocol"))
    first, last = number(body.get("FromPort")), number(body.get("ToPort"))
    if protocol in _WITH_PORTS and first is not None and last is not None and first > last:
        found = f"ports {first} to {last}: EC2 refuses the rule"
        yield resource.find(Code.GROUP_RULE, path, found, f"write FromPort {last}, ToPort {first}")
    for key, port in (("FromPort", first), ("ToPort", last)):
        if protocol in _WITH_PORTS and port is not None and port not in _PORTS:
            found = f"port {port}: EC2 refuses the rule"
            yield resource.find(Code.GROUP_RULE, (*path, key), found, "write 0 to 65535")
    if protocol in _WITH_PORTS and missing:
        found = f"{protocol} without {' and '.join(missing)}: EC2 refuses the rule"
        yield resource.find(Code.GROUP_RULE, path, found, "name the first and the last port")
