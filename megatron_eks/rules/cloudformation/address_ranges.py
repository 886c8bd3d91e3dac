"""Rules over a network's addresses: what VPCs and clusters take, and ranges that must not meet."""

import json
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.networks import networks_of
from megatron_eks.rules.launch_templates import launch_template_of, launch_templates
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, number, text, truth

# EC2 API, CreateVpc and CreateSubnet; EKS API, KubernetesNetworkConfigRequest.
_VPC_PREFIXES = range(16, 29)
_SERVICE_PREFIXES = range(12, 25)
_PRIVATE = tuple(IPv4Network(each) for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
_OF_KUBERNETES = ("kubernetes.io/role/", "kubernetes.io/cluster/")
_RESERVED = 5
_OWN_NETWORKS = "CUSTOM_NETWORK_CFG"
_REMOTE = (("RemoteNodeNetworks", "nodes elsewhere"), ("RemotePodNetworks", "their pods"))


def names(templates: TemplateSet) -> Iterator[Finding]:
    """Require ranges that EC2 takes, and the DNS settings of what is in it.

    EC2 API, CreateVpc; EKS User Guide, "VPC and subnet requirements and considerations"; AWS
    PrivateLink, "DNS names of an interface endpoint"; FSx and EFS User Guides, "Mounting".
    """
    for subnet in templates.resources("AWS::EC2::Subnet"):
        given = text(subnet.properties.get("CidrBlock")) or ""
        own = _network(given) if "/" in given else None
        if isinstance(own, IPv4Network) and own.prefixlen not in _VPC_PREFIXES:
            found = f"a subnet cannot be {own}"
            yield subnet.find(Code.SUBNETS, ("CidrBlock",), found, "use a prefix from /16 to /28")
    for vpc in templates.resources("AWS::EC2::VPC"):
        network = _network(vpc.properties.get("CidrBlock"))
        if network is not None and network.prefixlen not in _VPC_PREFIXES:
            found = f"a VPC cannot be {network}"
            yield vpc.find(Code.SUBNETS, ("CidrBlock",), found, "use a prefix from /16 to /28")
        named = truth(vpc.properties.get("EnableDnsHostnames")) is True
        for key in ("EnableDnsHostnames", "EnableDnsSupport"):
            value = vpc.properties.get(key)
            off = truth(value) is False or (is_absent(value) and key == "EnableDnsHostnames")
            why = _needs_names(vpc, templates) if off else None
            if off and named and key == "EnableDnsSupport":
                # EC2 API, ModifyVpcAttribute.
                why = why or "EC2 refuses EnableDnsHostnames without it"
            if why is not None:
                yield vpc.find(Code.SUBNETS, (key,), f"{key} is off, and {why}", "set it to true")


def _needs_names(vpc: Resource, templates: TemplateSet) -> str | None:
    """Say what in a VPC needs names; None where nothing does, as far as is known."""
    if any(True for _ in templates.resources("AWS::EKS::Cluster")):
        return "nodes cannot register with the cluster"
    for subnet in templates.resources("AWS::EC2::Subnet"):
        own = templates.target(subnet.properties.get("VpcId"), subnet.file) is vpc
        for tag in items(subnet.properties.get("Tags")) or [] if own else ():
            if str((mapping(tag) or {}).get("Key")).startswith(_OF_KUBERNETES):
                return "nodes of a cluster cannot register with it"
    for endpoint in templates.resources("AWS::EC2::VPCEndpoint"):
        own = templates.target(endpoint.properties.get("VpcId"), endpoint.file) is vpc
        if own and truth(endpoint.properties.get("PrivateDnsEnabled")) is True:
            return f"EC2 refuses {endpoint.id}, whose names need it"
    for kind in ("AWS::FSx::FileSystem", "AWS::EFS::MountTarget"):
        for system in templates.resources(kind):
            given = items(system.properties.get("SubnetIds")) or []
            given = [*given, system.properties.get("SubnetId")]
            subnets = [each for each in templates.targets(given, system.file) if each is not None]
            own_vpcs = [templates.target(s.properties.get("VpcId"), s.file) for s in subnets]
            if vpc in own_vpcs:
                return f"{system.id} is mounted by its name"
    return None


def for_nodes(templates: TemplateSet) -> Iterator[Finding]:
    """Require room in its subnets for as many nodes as a group may have.

    VPC User Guide, "Subnet CIDR blocks": five addresses of each are AWS's own. Every interface
    takes one that is not EFA-only, and a launch without one fails (InsufficientFreeAddresses).
    EKS Best Practices Guide, "Optimizing IP address utilization": each pod takes a further one of
    the node's subnet, unless they have a network of their own.
    """
    apart = _pods_apart(templates)
    for group in templates.resources("AWS::EKS::Nodegroup"):
        subnets = templates.targets(items(group.properties.get("Subnets")) or [], group.file)
        sizes = mapping(group.properties.get("ScalingConfig")) or {}
        most, each = number(sizes.get("MaxSize")), _of_a_node(group, templates)
        room = [_room(subnet, templates) for subnet in subnets]
        free = sum(one for one in room if one is not None)
        if not room or None in room or most is None or each is None:
            continue
        left = free - most * each
        if left >= 0:
            if left < most and not apart:
                found = f"{free} addresses, of which {most} nodes leave {left} for their pods"
                remedy = "use a larger subnet, such as a /22, or lower MaxSize"
                yield group.find(Code.SUBNETS, ("Subnets",), found, remedy, Level.WARNING)
            continue
        several = f" with {each} interfaces each" if each > 1 else ""
        found = f"{free} addresses for nodes, and {most} nodes{several} take {most * each}"
        remedy = "use a larger subnet, such as a /22, or lower MaxSize"
        yield group.find(Code.SUBNETS, ("Subnets",), found, remedy)


def _pods_apart(templates: TemplateSet) -> bool:
    """Tell whether pods take their addresses elsewhere: IPv6, or networks of their own."""
    addons = templates.resources("AWS::EKS::Addon")
    own = any(_OWN_NETWORKS in json.dumps(each.properties) for each in addons)
    return own or any(
        (mapping(each.properties.get("KubernetesNetworkConfig")) or {}).get("IpFamily") == "ipv6"
        for each in templates.resources("AWS::EKS::Cluster")
    )


def _room(subnet: Resource | None, templates: TemplateSet) -> int | None:
    """Count what a subnet has for instances; None where that cannot be known."""
    if subnet is None or subnet.type != "AWS::EC2::Subnet":
        return None
    given = networks_of(subnet.properties.get("CidrBlock"), subnet, templates)
    own = given[0] if len(given) == 1 else None
    fits = isinstance(own, IPv4Network) and own.prefixlen in _VPC_PREFIXES
    return own.num_addresses - _RESERVED if own is not None and fits else None


def _of_a_node(group: Resource, templates: TemplateSet) -> int | None:
    """Count the addresses that a node starts with; None where that cannot be known."""
    if is_absent(group.properties.get("LaunchTemplate")):
        return 1
    used = launch_template_of(group, templates)
    template = next((one for one in launch_templates(templates) if one.resource is used), None)
    if template is None or template.interfaces is None:
        return None
    types = [each.type for each in template.interfaces]
    return None if None in types else max(1, len(types) - types.count("efa-only"))


def services(templates: TemplateSet) -> Iterator[Finding]:
    """Require ranges of Services, and of networks elsewhere, that EKS takes beside the VPC's.

    EKS API, KubernetesNetworkConfigRequest and RemoteNetworkConfigRequest: a range that a VPC has
    as well leads to a Service or to a host, and cannot be changed later.
    """
    for cluster in templates.resources("AWS::EKS::Cluster"):
        config = mapping(cluster.properties.get("KubernetesNetworkConfig")) or {}
        given = templates.default(config.get("ServiceIpv4Cidr"), cluster.file)
        network = _network(given)
        path: Path = ("KubernetesNetworkConfig", "ServiceIpv4Cidr")
        of_vpcs = _networks_of_vpcs(cluster, templates)
        if network is not None:
            inside = any(network.subnet_of(each) for each in _PRIVATE)
            if network.prefixlen not in _SERVICE_PREFIXES or not inside:
                remedy = (
                    "use a prefix from /12 to /24 in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
                )
                found = f"EKS refuses {network} for Services"
                yield cluster.find(Code.SUBNETS, path, found, remedy)
            for taken in of_vpcs:
                if taken.version == network.version and taken.overlaps(network):
                    found = f"{network} for Services overlaps {taken} of the VPC: EKS refuses it"
                    remedy = "take addresses outside the VPC"
                    yield cluster.find(Code.SUBNETS, path, found, remedy)
                    break
        taken_ = [(each, "of the VPC") for each in of_vpcs]
        taken_ += [(network, "of Services")] if network is not None else []
        yield from _remote(cluster, taken_, templates)


def _remote(
    cluster: Resource, taken: "list[tuple[IPv4Network | IPv6Network, str]]", templates: TemplateSet
) -> Iterator[Finding]:
    remote = mapping(cluster.properties.get("RemoteNetworkConfig")) or {}
    known = list(taken)
    for key, what in _REMOTE:
        for index, value in enumerate(items(remote.get(key)) or []):
            for at, cidr in enumerate(items((mapping(value) or {}).get("Cidrs")) or []):
                network = _network(templates.default(cidr, cluster.file))
                path = ("RemoteNetworkConfig", key, index, "Cidrs", at)
                for other, whose in known if network is not None else ():
                    if network and other.version == network.version and other.overlaps(network):
                        found = f"{network} of {what} overlaps {other} {whose}: EKS refuses it"
                        yield cluster.find(Code.SUBNETS, path, found, "take a range of its own")
                        break
                if network is not None:
                    known.append((network, f"of {what}"))


def _networks_of_vpcs(
    cluster: Resource, templates: TemplateSet
) -> "list[IPv4Network | IPv6Network]":
    """Return the ranges of the VPCs that the cluster's subnets are in, where they are plain."""
    config = mapping(cluster.properties.get("ResourcesVpcConfig")) or {}
    listed = items(config.get("SubnetIds")) or []
    subnets = [each for each in templates.targets(listed, cluster.file) if each is not None]
    vpcs = {
        templates.target(subnet.properties.get("VpcId"), subnet.file): None for subnet in subnets
    }
    every = [vpc for vpc in vpcs if vpc is not None and vpc.type == "AWS::EC2::VPC"]
    more = [
        each
        for each in templates.resources("AWS::EC2::VPCCidrBlock")
        if templates.target(each.properties.get("VpcId"), each.file) in every
    ]
    found = [
        networks_of(each.properties.get("CidrBlock"), each, templates) for each in [*every, *more]
    ]
    # Where a mapping has several, nobody can tell which one it is.
    known = [networks[0] for networks in found if len(networks) == 1]
    own = [_network(each.properties.get("CidrBlock")) for each in subnets]
    return known or [each for each in own if each is not None]


def _network(value: Json) -> IPv4Network | None:
    written = text(value)
    try:
        return IPv4Network(written, strict=False) if written else None
    except ValueError:
        return None
