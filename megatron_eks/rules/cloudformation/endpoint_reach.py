"""Rules over VPC endpoints that nodes beside them cannot use: tables, ports and regions."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.cloudformation.security_groups import ALL, GROUP, TCP, rules_of
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, text, truth, written

_HTTPS = 443
_OWN_REGION = "${AWS::Region}"
_SERVICE = re.compile(
    r"(?:com|cn\.com)\.amazonaws\.(vpce\.)?(?P<region>\$\{AWS::Region\}|[a-z0-9-]+)\..+"
)
# AWS PrivateLink Guide, "AWS services that integrate", and the guides of these: SES takes mail on
# 25, 465, 587 and others, Keyspaces queries on 9142, Transfer Family files on 21 and 22.
_ON_OTHER_PORTS = re.compile(
    r"\.(email-smtp|cassandra(-fips|-streams)?|transfer\.server|workspaces|vpce-svc-[0-9a-f]+)$"
)
# A local zone, such as us-west-2-lax-1a, belongs to the region before its second name.
_ZONE = re.compile(r"(?P<region>[a-z]{2}(-[a-z]+)+-[0-9]+)([a-z]|-[a-z]+-[0-9]+[a-z])")
_ENDPOINT = "AWS::EC2::VPCEndpoint"
_INSTANCE, _SCALING = "AWS::EC2::Instance", "AWS::AutoScaling::AutoScalingGroup"
_DEFAULT = "DefaultSecurityGroup"
_ASSOCIATION = "AWS::EC2::SubnetRouteTableAssociation"


def gateway_tables(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a gateway endpoint in no route table of the nodes' subnets.

    VPC User Guide, "Gateway endpoints": traffic of other subnets takes the NAT gateway, which is
    billed for each gigabyte of data and checkpoints.
    """
    every = _tables_of_nodes(templates)
    for endpoint in templates.resources("AWS::EC2::VPCEndpoint"):
        listed = items(endpoint.properties.get("RouteTableIds")) or []
        given = templates.targets(listed, endpoint.file)
        vpc = templates.target(endpoint.properties.get("VpcId"), endpoint.file)
        tables = {each for each in every if _vpc_of(each, templates) is vpc}
        if given and tables and vpc is not None and None not in given and tables.isdisjoint(given):
            names = ", ".join(sorted(each.id for each in tables))
            found = f"not in {names}, by which nodes go out: they pay the NAT gateway instead"
            remedy = "name the route tables of the nodes' subnets"
            path = ("RouteTableIds",)
            yield endpoint.find(Code.ENDPOINT_UNUSED, path, found, remedy, Level.WARNING)


def _tables_of_nodes(templates: TemplateSet) -> set[Resource]:
    """Return the route tables of the subnets of node groups; without groups, of NAT gateways."""
    table_of = {}
    for each in templates.resources(_ASSOCIATION):
        subnet = templates.target(each.properties.get("SubnetId"), each.file)
        table = templates.target(each.properties.get("RouteTableId"), each.file)
        if subnet is not None and table is not None:
            table_of[subnet] = table
    groups = list(templates.resources("AWS::EKS::Nodegroup"))
    subnets = {
        subnet
        for group in groups
        for subnet in templates.targets(items(group.properties.get("Subnets")) or [], group.file)
    }
    of_groups = {table_of[subnet] for subnet in subnets if subnet in table_of}
    by_nat = {
        table
        for route in templates.resources("AWS::EC2::Route")
        if not is_absent(route.properties.get("NatGatewayId"))
        and (table := templates.target(route.properties.get("RouteTableId"), route.file))
    }
    return of_groups or by_nat


def _vpc_of(part: Resource, templates: TemplateSet) -> Resource | None:
    return templates.target(part.properties.get("VpcId"), part.file)


def interface_ports(templates: TemplateSet) -> Iterator[Finding]:
    """Require HTTPS into the groups of an interface endpoint.

    AWS PrivateLink Guide, "Access an AWS service using an interface VPC endpoint": without it all
    calls wait, since the service's name leads here.
    """
    told: list[list[Resource]] = []
    for endpoint in templates.resources(_ENDPOINT):
        listed = items(endpoint.properties.get("SecurityGroupIds")) or []
        groups = templates.targets(listed, endpoint.file)
        known = [each for each in groups if each is not None and each.type == GROUP]
        rules = [rules_of(each, "Ingress", templates) for each in known]
        if not known or len(known) != len(groups) or None in rules or not _is_https(endpoint):
            continue
        admitted = (
            rule.protocol in {ALL, None}
            or (rule.protocol == TCP and (rule.first or 0) <= _HTTPS <= (rule.last or 2**16))
            for each in rules
            for rule in each or []
        )
        if not any(admitted) and known not in told:
            told.append(known)
            found = f"{known[0].id} admits no TCP 443, so every call to the service waits"
            remedy = "admit TCP 443 from the nodes"
            users = _endpoints_with(known, templates)
            if len(users) > 1 and len(known) == 1:
                found = f"no TCP 443, so every call by {', '.join(users)} waits"
                path = ("SecurityGroupIngress",)
                yield known[0].find(Code.ENDPOINT_UNUSED, path, found, remedy)
            else:
                path = ("SecurityGroupIds",)
                yield endpoint.find(Code.ENDPOINT_UNUSED, path, found, remedy)


def _endpoints_with(groups: list[Resource], templates: TemplateSet) -> list[str]:
    """Return the endpoints with HTTPS that have these groups."""
    return [
        each.id
        for each in templates.resources(_ENDPOINT)
        if _is_https(each)
        and templates.targets(items(each.properties.get("SecurityGroupIds")) or [], each.file)
        == groups
    ]


def default_groups(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse an interface endpoint of nodes in the default group of a VPC, which admits itself.

    EC2 API, CreateVpcEndpoint.SecurityGroupId: without one it is the VPC's default group; VPC User
    Guide, "Default security groups for your VPCs"; nodes of EKS are in the cluster's.
    """
    others = (_INSTANCE, _SCALING, "AWS::Lambda::Function", "AWS::ECS::Service")
    if any(True for _ in templates.resources(*others)):
        return
    groups = list(templates.resources("AWS::EKS::Nodegroup"))
    for endpoint in templates.resources(_ENDPOINT):
        vpc = templates.target(endpoint.properties.get("VpcId"), endpoint.file)
        private = truth(endpoint.properties.get("PrivateDnsEnabled")) is True
        interface = endpoint.properties.get("VpcEndpointType") == "Interface" and private
        given = "SecurityGroupIds" in endpoint.properties
        if vpc is None or not interface or given or not _is_https(endpoint):
            continue
        # Whoever names it may open it, or put nodes in it.
        named = any(_DEFAULT in str(template) for _, template in templates.files())
        beside = [
            group
            for group in groups
            for subnet in templates.targets(
                items(group.properties.get("Subnets")) or [], group.file
            )
            if subnet is not None and _vpc_of(subnet, templates) is vpc
        ]
        if beside and not named:
            found = "no group, so the default one of the VPC, which admits its own members alone: "
            found += f"calls from {beside[0].id} wait"
            remedy = f"name a group that admits TCP 443 from the nodes{_like(endpoint, templates)}"
            yield endpoint.find(Code.ENDPOINT_UNUSED, ("SecurityGroupIds",), found, remedy)


def _like(endpoint: Resource, templates: TemplateSet) -> str:
    """Say which group the endpoints beside one have."""
    listed = [
        group
        for each in templates.resources(_ENDPOINT)
        if each.file == endpoint.file
        for group in templates.targets(
            items(each.properties.get("SecurityGroupIds")) or [], each.file
        )
    ]
    return f", as {listed[0].id}" if listed and listed[0] is not None else ""


def _is_https(endpoint: Resource) -> bool:
    """Tell whether the service of an endpoint listens on 443, as far as is known.

    Others than AWS serve what they like by com.amazonaws.vpce.REGION.vpce-svc-ID.
    """
    name = written(endpoint.properties.get("ServiceName")) or ""
    known = _SERVICE.fullmatch(name) and "${" not in name.replace(_OWN_REGION, "")
    return bool(known) and not _ON_OTHER_PORTS.search(name)


def regions(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of an endpoint to another region than what is beside it.

    EC2 API, CreateVpcEndpoint: without ServiceRegion the service must be in the VPC's own region.
    """
    named = [
        (endpoint, match["region"])
        for endpoint in templates.resources("AWS::EC2::VPCEndpoint")
        if is_absent(endpoint.properties.get("ServiceRegion"))
        and (match := _SERVICE.fullmatch(written(endpoint.properties.get("ServiceName")) or ""))
    ]
    for endpoint, region in named:
        zones = {
            zone["region"]
            for subnet in templates.resources("AWS::EC2::Subnet")
            if subnet.file == endpoint.file
            and (zone := _ZONE.fullmatch(text(subnet.properties.get("AvailabilityZone")) or ""))
        }
        own = next(iter(zones)) if len(zones) == 1 else None
        # The CDK writes ${AWS::Region} for every gateway, and for interfaces what their stack names
        # (aws-cdk-lib, aws-ec2/lib/vpc-endpoint.ts); services of others are where they are.
        others = {
            other
            for each, other in named
            if each.file == endpoint.file
            and (_is_gateway(endpoint) or not _is_gateway(each))
            and ".vpce-svc-" not in (written(endpoint.properties.get("ServiceName")) or "")
        }
        mixed = _OWN_REGION in others and region != _OWN_REGION and own is None
        elsewhere = own is not None and region not in {own, _OWN_REGION}
        if mixed or elsewhere:
            beside = own or "the stack's own"
            found = f"a service of {region}, and what is beside it is in {beside}"
            remedy = f"write {own or _OWN_REGION} in its name"
            path = ("ServiceName",)
            # An interface endpoint may be to another region; a gateway may not.
            kind = endpoint.properties.get("VpcEndpointType")
            refused = elsewhere and (is_absent(kind) or kind == "Gateway")
            level = Level.ERROR if refused else Level.WARNING
            yield endpoint.find(Code.ENDPOINT_UNUSED, path, found, remedy, level)


def _is_gateway(endpoint: Resource) -> bool:
    return text(endpoint.properties.get("VpcEndpointType")) in {None, "Gateway"}


def zones(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of an interface endpoint that has fewer subnets than those beside it.

    AWS PrivateLink Guide, "Access an AWS service using an interface VPC endpoint", subnets: calls
    from the other zones cross into this one, are billed for it, and end with it.
    """
    placed: dict[Resource, dict[Resource, frozenset[Resource]]] = {}
    for endpoint in templates.resources("AWS::EC2::VPCEndpoint"):
        vpc = templates.target(endpoint.properties.get("VpcId"), endpoint.file)
        given = templates.targets(items(endpoint.properties.get("SubnetIds")) or [], endpoint.file)
        subnets = frozenset(each for each in given if each is not None)
        if vpc is not None and given and len(subnets) == len(given):
            placed.setdefault(vpc, {})[endpoint] = subnets
    for endpoints in placed.values():
        whole = [*endpoints.values()]
        for endpoint, subnets in endpoints.items():
            # Two others alike show that it is no choice of this network.
            wider = [each for each in whole if subnets < each and whole.count(each) > 1]
            if wider:
                missing = ", ".join(sorted(each.id for each in wider[0] - subnets))
                found = f"not in {missing}, where the endpoints beside it are: calls from there "
                found += "cross zones, are billed, and end with this zone"
                remedy = f"add {missing}, if the service is in its zone"
                yield endpoint.find(
                    Code.ENDPOINT_UNUSED, ("SubnetIds",), found, remedy, Level.WARNING
                )
