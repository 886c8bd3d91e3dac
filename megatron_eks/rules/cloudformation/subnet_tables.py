"""Rules over the route tables of subnets: one for each, and the one that its users need."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.cloudformation.routes import default_routes
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, text, truth

_ASSOCIATION = "AWS::EC2::SubnetRouteTableAssociation"
_SUBNET = "AWS::EC2::Subnet"
_INSIDE = "kubernetes.io/role/internal-elb"
_OUTSIDE = "kubernetes.io/role/elb"
_PRIVATE, _PUBLIC = re.compile(r"[Pp]rivate"), re.compile(r"[Pp]ublic")
# Services whose interfaces never have a public address, and where each names its subnets.
_WITHOUT_ADDRESS = (
    ("AWS::CodeBuild::Project", "VpcConfig", "Subnets", "CodeBuild", Level.ERROR),
    ("AWS::EKS::FargateProfile", None, "Subnets", "Fargate", Level.ERROR),
    ("AWS::Lambda::Function", "VpcConfig", "SubnetIds", "Lambda", Level.WARNING),
    ("AWS::Serverless::Function", "VpcConfig", "SubnetIds", "Lambda", Level.WARNING),
)


def tables(templates: TemplateSet) -> Iterator[Finding]:
    """Require one route table of each subnet, and of one for load balancers or nodes some table.

    VPC User Guide, "Route tables": a subnet is associated with one table at a time
    (Resource.AlreadyAssociated), and without any it has the VPC's main one, which leads nowhere.
    """
    every = list(templates.resources(_ASSOCIATION))
    subnets = [templates.target(each.properties.get("SubnetId"), each.file) for each in every]
    # Those of nodes are said where their node group is judged.
    said = {
        subnet
        for group in templates.resources("AWS::EKS::Nodegroup")
        for subnet in templates.targets(items(group.properties.get("Subnets")) or [], group.file)
    }
    alone = [
        each
        for each in templates.resources(_SUBNET)
        if None not in subnets and each not in subnets and _tags(each) & {_INSIDE, _OUTSIDE}
    ]
    seen: dict[Resource, Resource] = {}
    for association, subnet in zip(every, subnets, strict=True):
        if subnet is None:
            continue
        if subnet in seen:
            found = f"{subnet.id} has a route table by {seen[subnet].id}: EC2 refuses a second one"
            remedy = f"name {alone[0].id}, which has none" if alone else "remove one of the two"
            yield association.find(Code.NETWORK_PART, ("SubnetId",), found, remedy)
            alone = alone[1:]
        seen.setdefault(subnet, association)
    for subnet in (each for each in alone if seen and each not in said):
        found = "no route table, so only the VPC's main one, which has no way out by itself"
        remedy = f"add an {_ASSOCIATION}"
        yield subnet.find(Code.NETWORK_PART, (), found, remedy, Level.WARNING)


def kinds(templates: TemplateSet) -> Iterator[Finding]:
    """Require of private subnets a way out by NAT, and of public ones an internet gateway.

    VPC User Guide, "Enable internet access for a VPC using an internet gateway": what has no public
    address gets no answer; AWS Load Balancer Controller, "Subnet discovery", on the two tags.
    """
    for subnet in templates.resources(_SUBNET):
        routes = default_routes(subnet, templates)
        if routes is None:
            continue
        tags, public = _tags(subnet), _is_public(routes, templates)
        assigns = subnet.properties.get("MapPublicIpOnLaunch")
        off = is_absent(assigns) or truth(assigns) is False
        named = _INSIDE in tags or _PRIVATE.search(f"{subnet.id} {_name(subnet)}") is not None
        if public and named and off and _OUTSIDE not in tags:
            found = f"{subnet.id} is private and gives no public address: behind an internet "
            found += "gateway nothing in it gets an answer, and no node joins"
            shared = _shared(subnet, templates)
            if shared is not None:
                association, table, other = shared
                found = f"{table.id} is the table of {other.id}, which is public, and {found}"
                path, remedy = ("RouteTableId",), _own_table(subnet, table, templates)
                yield association.find(Code.NETWORK_PART, path, found, remedy)
                continue
            route = next(r for r in routes if not is_absent(r.properties.get("GatewayId")))
            remedy = "name a NAT gateway, as NatGatewayId"
            yield route.find(Code.NETWORK_PART, ("GatewayId",), found, remedy)
        elif _OUTSIDE in tags and _INSIDE not in tags and not public and _is_known(routes):
            found = f"tagged {_OUTSIDE}, and no route to an internet gateway: load balancers in it "
            found += "answer nobody"
            remedy = f"route 0.0.0.0/0 to an internet gateway, or write {_INSIDE}"
            yield subnet.find(Code.NETWORK_PART, ("Tags",), found, remedy, Level.WARNING)


def _shared(subnet: Resource, templates: TemplateSet) -> tuple[Resource, Resource, Resource] | None:
    """Return how a subnet gets a table, the table, and a subnet that needs it to be public."""
    joined = _associations(templates)
    own = next(((each, table) for each, one, table in joined if one is subnet), None)
    for _, other, table in joined:
        if own is not None and table is own[1] and other is not None and other is not subnet:
            meant = _OUTSIDE in _tags(other) or _PUBLIC.search(f"{other.id} {_name(other)}")
            if meant or truth(other.properties.get("MapPublicIpOnLaunch")) is True:
                return own[0], table, other
    return None


def _own_table(subnet: Resource, public: Resource, templates: TemplateSet) -> str:
    """Say which table to name: one by which a NAT gateway is reached, one of no other subnet."""
    joined = _associations(templates)
    by_nat = [
        templates.target(route.properties.get("RouteTableId"), route.file)
        for route in templates.resources("AWS::EC2::Route")
        if not is_absent(route.properties.get("NatGatewayId"))
    ]
    vpc = templates.target(subnet.properties.get("VpcId"), subnet.file)
    near = [
        each
        for each in by_nat
        if each is not None
        and each is not public
        and templates.target(each.properties.get("VpcId"), each.file) is vpc
    ]
    free = [each for each in near if not any(table is each for *_, table in joined)]
    if not near:
        return "name a table of its own, with a route to a NAT gateway"
    return f"name {(free or near)[0].id}, which routes to a NAT gateway"


def _associations(templates: TemplateSet) -> list[tuple[Resource, Resource | None, Resource]]:
    """Return each association whose table is at hand, with its subnet and that table."""
    return [
        (each, templates.target(each.properties.get("SubnetId"), each.file), table)
        for each in templates.resources(_ASSOCIATION)
        if (table := templates.target(each.properties.get("RouteTableId"), each.file))
    ]


def users(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse public subnets to what gets no public address in them.

    CodeBuild User Guide, "Use CodeBuild with Amazon VPC"; EKS User Guide, "Define which Pods use
    AWS Fargate", which takes private subnets alone; Lambda Developer Guide, "Giving Lambda
    functions access to resources in an Amazon VPC".
    """
    for kind, part, key, service, level in _WITHOUT_ADDRESS:
        for user in templates.resources(kind):
            body = mapping(user.properties.get(part)) if part else dict(user.properties)
            path = (part, key) if part else (key,)
            for subnet in templates.targets(items((body or {}).get(key)) or [], user.file):
                if subnet is None or subnet.type != _SUBNET:
                    continue
                routes = default_routes(subnet, templates)
                if routes and _is_public(routes, templates):
                    found = f"{subnet.id} routes to an internet gateway, and {service} has no "
                    found += "public address there: it reaches nothing outside"
                    remedy = "name private subnets, behind a NAT gateway"
                    yield user.find(Code.NETWORK_PART, path, found, remedy, level)
                    break


def _is_public(routes: list[Resource], templates: TemplateSet) -> bool:
    targets = [templates.target(each.properties.get("GatewayId"), each.file) for each in routes]
    return any(each is not None and each.type == "AWS::EC2::InternetGateway" for each in targets)


def _is_known(routes: list[Resource]) -> bool:
    """Tell whether no route may lead to an internet gateway that is not at hand."""
    return all(is_absent(each.properties.get("GatewayId")) for each in routes)


def _tags(subnet: Resource) -> set[str]:
    tags = items(subnet.properties.get("Tags")) or []
    return {text((mapping(each) or {}).get("Key")) or "" for each in tags}


def _name(subnet: Resource) -> str:
    for each in items(subnet.properties.get("Tags")) or []:
        body = mapping(each) or {}
        if body.get("Key") == "Name":
            return text(body.get("Value")) or ""
    return ""
