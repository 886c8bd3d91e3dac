"""Rule over resources of a template that are one and the same thing to the service."""

import json
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, truth

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
_ENDPOINT = "AWS::EC2::VPCEndpoint"


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
