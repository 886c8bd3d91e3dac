"""Rule over network ACLs, which know no connections and so keep answers out."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, number, text, truth

_ALL, _TCP = -1, 6
_HTTPS = 443
# Linux, net.ipv4.ip_local_port_range: where answers to a node's calls arrive.
_ANSWERS = (32768, 60999)
_USERS = (
    ("AWS::EKS::Nodegroup", "Subnets"),
    ("AWS::AutoScaling::AutoScalingGroup", "VPCZoneIdentifier"),
)


def answers(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a network ACL around nodes that calls go out and answers come in.

    VPC User Guide, "Network ACL basics" and "Ephemeral ports": an ACL of one's own denies what no
    entry allows, and is stateless.
    """
    users: dict[Resource, Resource] = {}
    for kind, key in _USERS:
        for user in templates.resources(kind):
            for subnet in templates.targets(items(user.properties.get(key)) or [], user.file):
                if subnet is not None:
                    users.setdefault(subnet, user)
    for link in templates.resources("AWS::EC2::SubnetNetworkAclAssociation"):
        acl = templates.target(link.properties.get("NetworkAclId"), link.file)
        subnet = templates.target(link.properties.get("SubnetId"), link.file)
        if acl is None or acl.type != "AWS::EC2::NetworkAcl" or subnet not in users:
            continue
        entries = _entries(acl, templates)
        if entries is None:
            continue
        nodes = users[subnet].id
        if not any(_passes(each, out=False, ports=_ANSWERS) for each in entries):
            found = f"lets in no TCP {_ANSWERS[0]}-{_ANSWERS[1]}, where answers to {nodes} arrive: "
            found += "no node joins"
            remedy = f"allow inbound TCP 1024-65535 in {acl.id}: it knows no connections"
            yield link.find(Code.NETWORK_PART, ("NetworkAclId",), found, remedy)
        if not any(_passes(each, out=True, ports=(_HTTPS, _HTTPS)) for each in entries):
            found = f"lets out no TCP {_HTTPS}, which {nodes} need: no node joins"
            remedy = f"allow outbound TCP {_HTTPS} in {acl.id}"
            yield link.find(Code.NETWORK_PART, ("NetworkAclId",), found, remedy)


def _entries(acl: Resource, templates: TemplateSet) -> "list[dict[str, Json]] | None":
    """Return the entries of an ACL; none where one of any ACL cannot be placed, or read."""
    found = []
    for entry in templates.resources("AWS::EC2::NetworkAclEntry"):
        target = templates.target(entry.properties.get("NetworkAclId"), entry.file)
        if target is None:
            return None
        body = dict(entry.properties)
        ports = body.get("PortRange")
        plain = (
            number(body.get("Protocol")) is not None and text(body.get("RuleAction")) is not None
        )
        if target is acl and not (plain and (is_absent(ports) or mapping(ports) is not None)):
            return None
        if target is acl:
            found.append(body)
    return found or None


def _passes(entry: "dict[str, Json]", *, out: bool, ports: tuple[int, int]) -> bool:
    """Tell whether an entry allows some of the ports."""
    if (truth(entry.get("Egress")) is True) is not out or entry.get("RuleAction") != "allow":
        return False
    protocol = number(entry.get("Protocol"))
    given = mapping(entry.get("PortRange")) or {}
    first, last = number(given.get("From")), number(given.get("To"))
    if protocol == _ALL:
        return True
    return protocol == _TCP and (
        first is None or last is None or (first <= ports[1] and last >= ports[0])
    )
