"""Rules over ids and ARNs that are written out: a name where EC2 or KMS takes an id or an ARN."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_placeholder, shown

_OF = ("AWS::EC2::", "AWS::EKS::", "AWS::FSx::", "AWS::EFS::", "AWS::CodeBuild::Project")
_SUBNET, _GROUP, _TABLE = ("a subnet", "subnet-"), ("a security group", "sg-"), ("a table", "rtb-")
# EC2 User Guide, "Resource IDs": what each begins with.
_IDS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("SubnetId", "SubnetIds", "Subnets"), _SUBNET),
    **dict.fromkeys(("SecurityGroupIds", "Groups"), _GROUP),
    **dict.fromkeys(("SourceSecurityGroupId", "DestinationSecurityGroupId"), _GROUP),
    **dict.fromkeys(("RouteTableId", "RouteTableIds"), _TABLE),
    "VpcId": ("a VPC", "vpc-"),
    "InternetGatewayId": ("an internet gateway", "igw-"),
    "NatGatewayId": ("a NAT gateway", "nat-"),
    "AllocationId": ("an address", "eipalloc-"),
    "TransitGatewayId": ("a transit gateway", "tgw-"),
    "LaunchTemplateId": ("a launch template", "lt-"),
    "FileSystemId": ("a file system", "fs-"),
}
# CloudWatch Logs API, CreateLogGroup.kmsKeyId; EKS API, Provider.keyArn and
# AssociateAccessPolicy.policyArn; CodeBuild API, CreateProject.serviceRole.
_ARNS: tuple[tuple[str, str, str], ...] = (
    ("AWS::Logs::LogGroup", "KmsKeyId", "arn:aws:kms:REGION:ACCOUNT:key/ID"),
    ("AWS::EKS::Cluster", "KeyArn", "arn:aws:kms:REGION:ACCOUNT:key/ID"),
    (
        *("AWS::EKS::AccessEntry", "PolicyArn"),
        "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
    ),
    ("AWS::CodeBuild::Project", "ServiceRole", "arn:aws:iam::ACCOUNT:role/NAME"),
)


def ids(templates: TemplateSet) -> Iterator[Finding]:
    """Require ids of what is in a network, and not the names that the console shows beside them.

    EC2 API, InvalidSubnetID.NotFound, InvalidGroupId.Malformed and others; EKS, FSx and EFS ask EC2
    for the same ids.
    """
    for resource in templates.everything():
        if not resource.type.startswith(_OF):
            continue
        for path, key, value in _texts(dict(resource.properties), ()):
            kind = _IDS.get(key)
            # EFS takes ARNs of its file systems as well.
            if kind is not None and value and not value.startswith((kind[1], "arn:")):
                found = f"{shown(value)} is no id of {kind[0]}"
                remedy = f"write {kind[1]}..., or a reference to it"
                yield resource.find(Code.REFERENCE, path, found, remedy)


def arns(templates: TemplateSet) -> Iterator[Finding]:
    """Require whole ARNs of keys, policies and roles where an id, an alias or a name is not taken.

    CloudWatch Logs API, CreateLogGroup; EKS API, Provider and AssociateAccessPolicy; CodeBuild API,
    CreateProject: each answers InvalidParameterException.
    """
    for kind, name, form in _ARNS:
        for resource in templates.resources(kind):
            for path, key, value in _texts(dict(resource.properties), ()):
                if key == name and not value.startswith("arn:"):
                    found = f"{shown(value)} is no ARN"
                    yield resource.find(Code.ARN, path, found, f"write {form}")


def _texts(value: Json, path: Path) -> Iterator[tuple[Path, str, str]]:
    """Return each text with its place and the name of its property."""
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        if str(key).startswith("Fn::") or key in {"Ref", "Tags", "Metadata"}:
            continue
        if isinstance(each, str):
            name = next((part for part in reversed((*path, key)) if isinstance(part, str)), "")
            if not is_placeholder(each):
                yield (*path, key), name, each
        else:
            yield from _texts(each, (*path, key))
