"""Rules over what endpoints take by their kind, and over gateways that nothing attaches."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, text, truth, written

_ATTACHMENT = "AWS::EC2::VPCGatewayAttachment"
_OF_INTERFACES = ("SubnetIds", "SecurityGroupIds")
_GATEWAYS = (".s3", ".dynamodb", ".s3express")


def kinds(templates: TemplateSet) -> Iterator[Finding]:
    """Require of an endpoint the parts of its kind, and one subnet in each zone.

    EC2 API, CreateVpcEndpoint: groups, subnets and private names are of interfaces, route tables of
    gateways; DuplicateSubnetsInSameZone.
    """
    for endpoint in templates.resources("AWS::EC2::VPCEndpoint"):
        body = endpoint.properties
        kind = text(body.get("VpcEndpointType"))
        name = written(body.get("ServiceName")) or ""
        gateway = kind == "Gateway" or (is_absent(body.get("VpcEndpointType")))
        if gateway and name.endswith(_GATEWAYS):
            given = [key for key in _OF_INTERFACES if not is_absent(body.get(key))]
            given += ["PrivateDnsEnabled"] if truth(body.get("PrivateDnsEnabled")) else []
            if given:
                found = f"{', '.join(given)} of a gateway endpoint: EC2 refuses it"
                remedy = "remove it, or set VpcEndpointType to Interface"
                yield endpoint.find(Code.NETWORK_PART, (given[0],), found, remedy)
        if kind != "Interface":
            continue
        if not is_absent(body.get("RouteTableIds")):
            found, remedy = "route tables of an interface endpoint: EC2 refuses it", "remove them"
            yield endpoint.find(Code.NETWORK_PART, ("RouteTableIds",), found, remedy)
        names = templates.names(endpoint.file)
        whole = names is not None and names.whole
        if (
            whole
            and is_absent(body.get("SubnetIds"))
            and is_absent(body.get("SubnetConfigurations"))
        ):
            found = "an interface endpoint without subnets has no address, and answers nobody"
            remedy = "name a subnet in each zone of the nodes"
            yield endpoint.find(Code.NETWORK_PART, ("SubnetIds",), found, remedy, Level.WARNING)
        subnets = templates.targets(items(body.get("SubnetIds")) or [], endpoint.file)
        zones = [text(each.properties.get("AvailabilityZone")) for each in subnets if each]
        double = {each for each in zones if each is not None and zones.count(each) > 1}
        if double:
            found = f"two subnets in {min(double)}: EC2 refuses it"
            remedy = "name one subnet of each zone"
            yield endpoint.find(Code.NETWORK_PART, ("SubnetIds",), found, remedy)


def attached(templates: TemplateSet) -> Iterator[Finding]:
    """Require that an internet gateway is attached, and that what needs it waits for that.

    CloudFormation User Guide, "DependsOn attribute", when it is required: the route is made before
    the attachment otherwise, and the stack fails now and then.
    """
    attachments = list(templates.resources(_ATTACHMENT))
    gateways = [
        templates.target(each.properties.get("InternetGatewayId"), each.file)
        for each in attachments
    ]
    for route in templates.resources("AWS::EC2::Route"):
        gateway = templates.target(route.properties.get("GatewayId"), route.file)
        if gateway is None or gateway.type != "AWS::EC2::InternetGateway" or None in gateways:
            continue
        names = templates.names(route.file)
        if gateway not in gateways:
            if names is not None and names.whole:
                found = f"{gateway.id} is attached to no VPC: EC2 refuses the route"
                remedy = f"add an {_ATTACHMENT} of {gateway.id} and the VPC"
                yield route.find(Code.NETWORK_PART, ("GatewayId",), found, remedy)
            continue
        own = attachments[gateways.index(gateway)]
        if own.file == route.file and own.id not in _waits_for(route):
            found = f"does not wait for {own.id}: the route may be made before {gateway.id} is "
            found += "attached, and the stack fails then"
            remedy = f"write DependsOn: {own.id}"
            yield route.find(Code.START_ORDER, ("DependsOn",), found, remedy, Level.WARNING)


def _waits_for(resource: Resource) -> list[str]:
    given = resource.body.get("DependsOn")
    names = [given] if isinstance(given, str) else items(given) or []
    # A reference to the attachment makes it wait as well.
    table = str(mapping(dict(resource.properties)) or {})
    return [*(each for each in names if isinstance(each, str)), table]
