"""Rule over resources of a template that are one and the same thing to the service."""

import json
import re
from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, shown, text, truth

# What a service has once: by these properties together (EKS, EC2, KMS and Logs API references,
# Create* of each: ResourceInUseException, RouteAlreadyExists, AlreadyExistsException).
_ONCE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("AWS::EKS::AccessEntry", ("ClusterName", "PrincipalArn")),
    ("AWS::EKS::Addon", ("ClusterName", "AddonName")),
    ("AWS::EKS::Nodegroup", ("ClusterName", "NodegroupName")),
    ("AWS::EKS::PodIdentityAssociation", ("ClusterName", "Namespace", "ServiceAccount")),
    ("AWS::EC2::Route", ("RouteTableId", "DestinationCidrBlock")),
    ("AWS::EC2::Route", ("RouteTableId", "DestinationIpv6CidrBlock")),
    ("AWS::EC2::VPCGatewayAttachment", ("VpcId", "InternetGatewayId")),
    ("AWS::EC2::LaunchTemplate", ("LaunchTemplateName",)),
    ("AWS::KMS::Alias", ("AliasName",)),
    ("AWS::Logs::LogGroup", ("LogGroupName",)),
    ("AWS::ECR::Repository", ("RepositoryName",)),
    ("AWS::S3::Bucket", ("BucketName",)),
    ("AWS::S3::BucketPolicy", ("Bucket",)),
    ("AWS::IAM::Role", ("RoleName",)),
    ("AWS::IAM::InstanceProfile", ("InstanceProfileName",)),
    ("AWS::CodeBuild::Project", ("Name",)),
    ("AWS::EKS::Cluster", ("Name",)),
)
_ASSOCIATION = "AWS::EKS::PodIdentityAssociation"
_ENDPOINT = "AWS::EC2::VPCEndpoint"


# EKS User Guide, "AWS add-ons": the accounts in kube-system that an add-on takes a role for.
_IN_SYSTEM = re.compile(r"vpc-cni|aws-(ebs|efs|fsx|mountpoint-s3)-csi-driver")
_GROUP = "AWS::EC2::SecurityGroup"
_PEERS = {
    "Ingress": ("CidrIp", "CidrIpv6", "SourceSecurityGroupId", "SourcePrefixListId"),
    "Egress": ("CidrIp", "CidrIpv6", "DestinationSecurityGroupId", "DestinationPrefixListId"),
}
_PROTOCOLS = {"6": "tcp", "17": "udp", "1": "icmp"}


def associations(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse an association for a service account that an add-on associates itself.

    EKS API, CreatePodIdentityAssociation: one for each service account of a cluster
    (ResourceInUseException); EKS User Guide, "Assign IAM roles to Amazon EKS add-ons".
    """
    for addon in templates.resources("AWS::EKS::Addon"):
        body = addon.properties
        cluster = templates.target(body.get("ClusterName"), addon.file)
        name = text(body.get("AddonName")) or ""
        moved = not is_absent(body.get("NamespaceConfig")) or "Condition" in addon.body
        if cluster is None or moved or not _IN_SYSTEM.fullmatch(name):
            continue
        for value in items(body.get("PodIdentityAssociations")) or []:
            account = text((mapping(value) or {}).get("ServiceAccount"))
            for other in templates.resources(_ASSOCIATION):
                same = templates.target(other.properties.get("ClusterName"), other.file) is cluster
                given = [other.properties.get(key) for key in ("Namespace", "ServiceAccount")]
                if account and same and given == ["kube-system", account]:
                    if "Condition" in other.body:
                        continue
                    found = f"{addon.id} associates a role with {shown(account)} itself, and EKS "
                    found += "takes one for each service account (ResourceInUseException)"
                    remedy = "remove one of the two"
                    yield other.find(Code.TWICE, ("ServiceAccount",), found, remedy)


def rules(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a rule of a security group that the group has already.

    EC2 API, AuthorizeSecurityGroupIngress and -Egress: InvalidPermission.Duplicate, which ends the
    stack unless CloudFormation passes over it; then the removal of one rule takes both away
    (cloudformation-coverage-roadmap issues 612 and 1534). Descriptions make no difference.
    """
    for direction, peers in _PEERS.items():
        seen: dict[str, tuple[Resource, str]] = {}
        kind, key = f"{_GROUP}{direction}", f"SecurityGroup{direction}"
        for group in templates.resources(_GROUP):
            for index, value in enumerate(items(group.properties.get(key)) or []):
                same = _rule(group, mapping(value) or {}, peers, group, templates)
                if same is not None and "Condition" not in group.body:
                    seen.setdefault(same, (group, f"{key}[{index}] of {group.id}"))
        for rule in templates.resources(kind):
            owner = templates.target(rule.properties.get("GroupId"), rule.file)
            known = owner is not None and owner.type == _GROUP and "Condition" not in rule.body
            same = _rule(rule, rule.properties, peers, owner, templates) if known else None
            if same is None:
                continue
            if same in seen:
                found = f"the same rule as {seen[same][1]}: EC2 refuses the second "
                found += "(InvalidPermission.Duplicate), or the removal of one takes both away"
                remedy = "remove one of the two"
                yield rule.find(Code.TWICE, (), found, remedy, Level.WARNING)
            seen.setdefault(same, (rule, rule.id))


def _rule(
    resource: Resource,
    body: Mapping[str, Json],
    peers: tuple[str, ...],
    group: Resource | None,
    templates: TemplateSet,
) -> str | None:
    """Return a text that is equal for equal rules; None for one that nobody can compare."""
    given = [(key, body[key]) for key in peers if not is_absent(body.get(key))]
    protocol = str(body.get("IpProtocol")).lower()
    ports = [] if protocol == "-1" else [body.get("FromPort"), body.get("ToPort")]
    if group is None or len(given) != 1 or any(isinstance(each, dict | list) for each in ports):
        return None
    key, peer = given[0]
    target = templates.target(peer, resource.file)
    other: list[Json] = [peer, resource.file if isinstance(peer, dict) else ""]
    if target is not None:
        # Of a group in a VPC Ref and GroupId are the same.
        other = [target.file, target.id, "" if target.type == _GROUP else peer]
    parts = [group.file, group.id, _PROTOCOLS.get(protocol, protocol), *map(str, ports), key]
    return json.dumps([*parts, *other], sort_keys=True)


def once(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a second resource that is, to the service, the first one again.

    EKS API, CreateAccessEntry, CreateAddon and others; EC2 API, CreateRoute and CreateVpcEndpoint
    (private-dns-enabled cannot be set because there is already a conflicting DNS domain).
    """
    for kind, keys in _ONCE:
        seen: dict[str, Resource] = {}
        for resource in templates.resources(kind):
            given = [resource.properties.get(key) for key in keys]
            # Of two with a condition each, one is made.
            if any(is_absent(each) for each in given) or "Condition" in resource.body:
                continue
            same = json.dumps([resource.file, given], sort_keys=True)
            if same in seen:
                found = f"the same {' and '.join(keys)} as {seen[same].id}: the service refuses it"
                remedy = "remove one of the two, or correct what should differ"
                yield resource.find(Code.TWICE, keys[-1:], found, remedy)
            seen.setdefault(same, resource)
    names: dict[str, Resource] = {}
    for endpoint in templates.resources(_ENDPOINT):
        body = endpoint.properties
        if truth(body.get("PrivateDnsEnabled")) is not True or "Condition" in endpoint.body:
            continue
        parts = [endpoint.file, body.get("VpcId"), body.get("ServiceName")]
        same = json.dumps(parts, sort_keys=True)
        if same in names:
            found = f"private names of the service as {names[same].id} has them in this VPC: EC2 "
            found += "refuses it"
            remedy = "use one endpoint, in the subnets of both"
            yield endpoint.find(Code.NETWORK_PART, ("ServiceName",), found, remedy)
        names.setdefault(same, endpoint)
