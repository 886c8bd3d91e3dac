"""Rules over routes, and over what is named by an ARN."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, shown, text, truth, written

# EKS User Guide, "Deploy private clusters with limited internet access".
_NEEDED = ("ec2", "ecr.api", "ecr.dkr", "s3")
_ANYWHERE = "0.0.0.0/0"
_FOR_BALANCERS = "kubernetes.io/role/elb"
_NAT = ("AWS::EC2::NatGateway",)
_GATEWAYS = {
    "GatewayId": {"AWS::EC2::NatGateway": "NatGatewayId"},
    "NatGatewayId": {"AWS::EC2::InternetGateway": "GatewayId"},
}
_ROLE = "AWS::IAM::Role"
_ROLE_KEYS = ("NodeRole", "PrincipalArn", "RoleArn", "ServiceAccountRoleArn")
_ARN = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:([0-9]{12}|aws)?:.+")


def ways_out(templates: TemplateSet) -> Iterator[Finding]:
    """Require a way out of the subnets of nodes, and of a NAT gateway.

    EKS User Guide, "VPC and subnet considerations" and "Deploy private clusters with limited
    internet access"; VPC User Guide, "NAT gateways": a public one stands in a public subnet.
    """
    for gateway in templates.resources("AWS::EC2::NatGateway"):
        subnet = templates.target(gateway.properties.get("SubnetId"), gateway.file)
        private = text(gateway.properties.get("ConnectivityType")) == "private"
        outward = default_routes(subnet, templates) if subnet and not private else None
        if outward is not None and not any(
            not is_absent(each.properties.get("GatewayId")) for each in outward
        ):
            found = "in a subnet without a route to an internet gateway"
            yield gateway.find(Code.NETWORK_PART, ("SubnetId",), found, "name a public subnet")
    yield from _crossed(templates)
    endpoints = [
        written(each.properties.get("ServiceName")) or "$"
        for each in templates.resources("AWS::EC2::VPCEndpoint")
    ]
    lacking = [name for name in _NEEDED if not any(_may_be(name, each) for each in endpoints)]
    for group in templates.resources("AWS::EKS::Nodegroup"):
        for subnet in templates.targets(items(group.properties.get("Subnets")) or [], group.file):
            outward = default_routes(subnet, templates) if subnet is not None else None
            if subnet is None or outward is None:
                continue
            said = _no_way(subnet, outward, endpoints, lacking, templates)
            if said is not None:
                refused = bool(outward) and _is_refused(group, subnet)
                found, remedy = said
                if refused:
                    found += ": EKS fails the group (Ec2SubnetInvalidConfiguration)"
                    remedy += ", or write MapPublicIpOnLaunch: true"
                level = Level.ERROR if refused else Level.WARNING
                yield group.find(Code.NETWORK_PART, ("Subnets",), found, remedy, level)


def _no_way(
    subnet: Resource,
    outward: list[Resource],
    endpoints: list[str],
    lacking: list[str],
    templates: TemplateSet,
) -> tuple[str, str] | None:
    """Say why nodes in a subnet reach nothing, and what to write."""
    public = truth(subnet.properties.get("MapPublicIpOnLaunch")) is True
    gateways = [(each.properties.get("GatewayId"), each.file) for each in outward]
    nat = [getattr(templates.target(*each), "type", "") in _NAT for each in gateways]
    by_gateway = any(
        not is_absent(value) and not is_nat
        for (value, _), is_nat in zip(gateways, nat, strict=True)
    )
    if not outward and not endpoints:
        found = f"{subnet.id} has no route out, and no endpoint is at hand: no node joins"
        return found, "route 0.0.0.0/0 to a NAT gateway, or add interface endpoints"
    if not outward and lacking:
        found = f"{subnet.id} has no route out and no endpoint for {', '.join(lacking)}"
        found += ": no node joins"
        return found, "add the endpoints, or route 0.0.0.0/0 to a NAT gateway"
    if by_gateway and not public:
        found = f"{subnet.id} routes to an internet gateway, and gives no public address"
        if _is_for_gateways(subnet, templates):
            return found, "name a private subnet, whose way out is a NAT gateway"
        if _shares_table(subnet, templates):
            # Other subnets may need the gateway in this table.
            return found, "give it a route table that leads to a NAT gateway"
        return found, "route 0.0.0.0/0 to a NAT gateway"
    return None


def _shares_table(subnet: Resource, templates: TemplateSet) -> bool:
    tables: dict[Resource | None, list[Resource | None]] = {}
    for each in templates.resources("AWS::EC2::SubnetRouteTableAssociation"):
        table = templates.target(each.properties.get("RouteTableId"), each.file)
        other = templates.target(each.properties.get("SubnetId"), each.file)
        tables.setdefault(table, []).append(other)
    return any(subnet in shared and len(shared) > 1 for shared in tables.values())


def _is_refused(group: Resource, subnet: Resource) -> bool:
    """Tell whether nothing else can give nodes of a group their public addresses.

    EKS User Guide, "Troubleshoot problems with Amazon EKS clusters and nodes",
    Ec2SubnetInvalidConfiguration: a launch template may do it instead.
    """
    assigns = subnet.properties.get("MapPublicIpOnLaunch")
    off = is_absent(assigns) or truth(assigns) is False
    return off and is_absent(group.properties.get("LaunchTemplate"))


def _is_for_gateways(subnet: Resource, templates: TemplateSet) -> bool:
    """Tell a subnet that is meant as a public one: for load balancers, or for a NAT gateway."""
    tags = items(subnet.properties.get("Tags")) or []
    if any(isinstance(each, dict) and each.get("Key") == _FOR_BALANCERS for each in tags):
        return True
    return any(
        templates.target(each.properties.get("SubnetId"), each.file) is subnet
        for each in templates.resources(*_NAT)
    )


def _crossed(templates: TemplateSet) -> Iterator[Finding]:
    """Find a NAT gateway where an internet gateway belongs, and the other way round."""
    for route in templates.resources("AWS::EC2::Route"):
        for key, other in _GATEWAYS.items():
            target = templates.target(route.properties.get(key), route.file)
            if target is not None and target.type in other:
                found = f"{target.id} as {key}, and it is another kind: EC2 refuses the route"
                remedy = f"name it as {other[target.type]}"
                yield route.find(Code.NETWORK_PART, (key,), found, remedy)


def _may_be(service: str, endpoint: str) -> bool:
    """Tell whether an endpoint is one for a service, or may be, since its name is not known."""
    return endpoint.endswith((f".{service}", "}", "$"))


def default_routes(subnet: Resource, templates: TemplateSet) -> list[Resource] | None:
    """Return the routes to everywhere of a subnet's own table; None where they are not at hand."""
    for each in templates.resources("AWS::EC2::SubnetRouteTableAssociation"):
        if templates.target(each.properties.get("SubnetId"), each.file) is subnet:
            table = templates.target(each.properties.get("RouteTableId"), each.file)
            routes = list(templates.resources("AWS::EC2::Route"))
            owners = [templates.target(r.properties.get("RouteTableId"), r.file) for r in routes]
            if table is None or None in owners:
                return None
            own = [r for r, owner in zip(routes, owners, strict=True) if owner is table]
            given = [r.properties.get("DestinationCidrBlock") for r in own]
            if any(not is_absent(each) and text(each) is None for each in given):
                return None
            return [r for r, to in zip(own, given, strict=True) if to == _ANYWHERE]
    return None


def roles_by_arn(templates: TemplateSet) -> Iterator[Finding]:
    """Require an ARN where one is needed; Ref of a role gives its name.

    CloudFormation User Guide, AWS::IAM::Role, "Return values"; IAM User Guide, "ARNs".
    """
    for resource in templates.everything():
        # Other services take names as well, such as AWS Batch.
        for key in _ROLE_KEYS if resource.type.startswith("AWS::EKS::") else ():
            value = resource.properties.get(key)
            target = templates.target(value, resource.file)
            by_name = isinstance(value, dict) and "Ref" in value
            if target is not None and target.type == _ROLE and by_name:
                found = f"Ref {target.id} is the role's name, and not its ARN"
                remedy = f"write Fn::GetAtt [{target.id}, Arn]"
                yield resource.find(Code.ARN, (key,), found, remedy)
            if isinstance(value, str) and not _is_arn(value):
                found = f"{shown(value)} is no ARN"
                yield resource.find(Code.ARN, (key,), found, "write arn:aws:iam::ACCOUNT:role/NAME")
        for index, value in enumerate(items(resource.properties.get("ManagedPolicyArns")) or []):
            if isinstance(value, str) and not _is_arn(value):
                found, path = f"{shown(value)} is no ARN", ("ManagedPolicyArns", index)
                yield resource.find(Code.ARN, path, found, "write arn:aws:iam::aws:policy/NAME")


def _is_arn(value: str) -> bool:
    return is_placeholder(value) or _ARN.fullmatch(value) is not None
