"""Rules over references: what kind of resource a property names, by which value, in which VPC."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import DATA, launch_template_of
from megatron_eks.rules.shapes import CLOUDFORMATION, table
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, text

_Wanted = dict[str, tuple[str, ...]]
_VPC = "AWS::EC2::VPC"
_SUBNET: _Wanted = {"AWS::EC2::Subnet": ("Ref", "SubnetId")}
_GROUP: _Wanted = {
    "AWS::EC2::SecurityGroup": ("GroupId", "Ref", "Id"),
    "AWS::EKS::Cluster": ("ClusterSecurityGroupId",),
    _VPC: ("DefaultSecurityGroup",),
}
_TABLE_OF_ROUTES: _Wanted = {"AWS::EC2::RouteTable": ("Ref", "RouteTableId")}
_KEY: _Wanted = {
    "AWS::KMS::Key": ("Arn", "Ref", "KeyId"),
    "AWS::KMS::ReplicaKey": ("Arn", "Ref", "KeyId"),
    "AWS::KMS::Alias": ("Ref", "Arn"),
}
_TEMPLATE: _Wanted = {"AWS::EC2::LaunchTemplate": ("Ref", "LaunchTemplateId")}
_ROLE: _Wanted = {"AWS::IAM::Role": ("Ref",)}
# That a name is no ARN is said by routes.roles_by_arn.
_ROLE_ARN: _Wanted = {"AWS::IAM::Role": ("Arn", "Ref")}
_WORKSPACE: _Wanted = {"AWS::APS::Workspace": ("Arn", "Ref")}
_LOGS: _Wanted = {"AWS::Logs::LogGroup": ("Ref",)}
# CloudFormation User Guide, "Return values" of each type: what a property of this name takes.
_BY_NAME: dict[str, _Wanted] = {
    "SubnetId": _SUBNET,
    "SubnetIds": _SUBNET,
    "Subnets": _SUBNET,
    "VPCZoneIdentifier": _SUBNET,
    "SecurityGroupIds": _GROUP,
    "SourceSecurityGroups": _GROUP,
    "SourceSecurityGroupId": _GROUP,
    "DestinationSecurityGroupId": _GROUP,
    "VpcId": {_VPC: ("Ref", "VpcId")},
    "RouteTableId": _TABLE_OF_ROUTES,
    "RouteTableIds": _TABLE_OF_ROUTES,
    "AllocationId": {"AWS::EC2::EIP": ("AllocationId",)},
    "KmsKeyId": _KEY,
    "KMSMasterKeyID": _KEY,
    "LaunchTemplateId": _TEMPLATE,
    # Nothing of a launch template is its name.
    "LaunchTemplateName": {"AWS::EC2::LaunchTemplate": ()},
    "CapacityReservationId": {"AWS::EC2::CapacityReservation": ("Ref", "Id")},
    "DestinationBucketName": {"AWS::S3::Bucket": ("Ref",)},
}
# The same for a name that means other things elsewhere: with the part before it, or the type.
_IN_A_PART: dict[tuple[str, str], _Wanted] = {
    ("LaunchTemplate", "Id"): _TEMPLATE,
    ("LaunchTemplate", "Name"): {"AWS::EC2::LaunchTemplate": ()},
    ("LaunchTemplate", "Version"): {
        "AWS::EC2::LaunchTemplate": ("LatestVersionNumber", "DefaultVersionNumber")
    },
    ("NetworkInterfaces", "Groups"): _GROUP,
    ("Provider", "KeyArn"): {"AWS::KMS::Key": ("Arn",)},
    ("IamInstanceProfile", "Arn"): {"AWS::IAM::InstanceProfile": ("Arn",)},
    ("IamInstanceProfile", "Name"): {"AWS::IAM::InstanceProfile": ("Ref", "InstanceProfileName")},
    ("Placement", "GroupName"): {"AWS::EC2::PlacementGroup": ("Ref", "GroupName")},
    ("CloudWatchLogs", "GroupName"): _LOGS,
    ("AWS::EC2::FlowLog", "LogGroupName"): _LOGS,
    ("AWS::IAM::InstanceProfile", "Roles"): _ROLE,
    ("AWS::IAM::ManagedPolicy", "Roles"): _ROLE,
    ("AWS::IAM::Policy", "Roles"): _ROLE,
    ("AWS::Logs::LogGroup", "KmsKeyId"): {"AWS::KMS::Key": ("Arn",)},
    ("AWS::S3::BucketPolicy", "Bucket"): {"AWS::S3::Bucket": ("Ref",)},
    ("AWS::ImageBuilder::InfrastructureConfiguration", "InstanceProfileName"): {
        "AWS::IAM::InstanceProfile": ("Ref", "InstanceProfileName")
    },
    ("ComputeResources", "InstanceRole"): {"AWS::IAM::InstanceProfile": ("Arn", "Ref")},
    ("AWS::CodeBuild::Project", "ServiceRole"): _ROLE_ARN,
    ("AWS::EKS::AccessEntry", "PrincipalArn"): {**_ROLE_ARN, "AWS::IAM::User": ("Arn", "Ref")},
    # In a VPC a group is named by its id.
    ("AWS::EC2::SecurityGroupIngress", "GroupName"): {"AWS::EC2::SecurityGroup": ()},
    ("AWS::EKS::Addon", "ServiceAccountRoleArn"): _ROLE_ARN,
    ("AWS::EKS::Cluster", "RoleArn"): _ROLE_ARN,
    ("AWS::EKS::Nodegroup", "NodeRole"): _ROLE_ARN,
    ("AWS::EKS::PodIdentityAssociation", "RoleArn"): _ROLE_ARN,
    ("AWS::EKS::Addon", "ClusterName"): {"AWS::EKS::Cluster": ("Ref",)},
    ("AWS::EKS::AccessEntry", "ClusterName"): {"AWS::EKS::Cluster": ("Ref",)},
    ("AWS::EKS::FargateProfile", "ClusterName"): {"AWS::EKS::Cluster": ("Ref",)},
    ("AWS::EKS::Nodegroup", "ClusterName"): {"AWS::EKS::Cluster": ("Ref",)},
    ("AWS::EKS::PodIdentityAssociation", "ClusterName"): {"AWS::EKS::Cluster": ("Ref",)},
    ("EksConfiguration", "ClusterArn"): {"AWS::EKS::Cluster": ("Arn",)},
    ("AmpConfiguration", "WorkspaceArn"): _WORKSPACE,
    ("AWS::APS::RuleGroupsNamespace", "Workspace"): _WORKSPACE,
    ("AWS::EC2::Instance", "IamInstanceProfile"): {
        "AWS::IAM::InstanceProfile": ("Ref", "InstanceProfileName")
    },
    ("AWS::FSx::DataRepositoryAssociation", "FileSystemId"): {"AWS::FSx::FileSystem": ("Ref",)},
}
# Types of whose values nothing is one of another type's.
_KNOWN = {kind for wanted in (*_BY_NAME.values(), *_IN_A_PART.values()) for kind in wanted} | {
    "AWS::EC2::InternetGateway",
    "AWS::EC2::NatGateway",
}


def lists(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a parameter that is a list as an element of a list.

    CloudFormation User Guide, "Parameters", List<...> and CommaDelimitedList: a Ref of it is the
    whole list; "Value of property ... must be of type List of String".
    """
    for resource in templates.everything():
        own = resource.type.startswith("AWS::") and "::CloudFormation::" not in resource.type
        if not own or templates.has_macro(resource.file):
            continue
        parameters = templates.part(resource.file, "Parameters") or {}
        for path, name, alone in _in_lists(dict(resource.properties), ()):
            body = parameters.get(name)
            kind = text(body.get("Type")) if isinstance(body, dict) else None
            if kind is not None and ("List<" in kind or "CommaDelimitedList" in kind):
                key = next((str(each) for each in reversed(path[:-1]) if isinstance(each, str)), "")
                found = f"{name} is a list itself, so this is a list in a list: CloudFormation "
                remedy = f"write {key}: !Ref {name}" if alone else f"write !Ref {name} alone"
                place = path[:-1] if alone else path
                yield resource.find(Code.PROPERTY, place, f"{found}refuses it", remedy)


def _in_lists(value: Json, path: Path) -> Iterator[tuple[Path, str, bool]]:
    """Return the references that are elements of lists, and whether each is alone there."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            name = text(each.get("Ref")) if isinstance(each, dict) and len(each) == 1 else None
            if name is not None and not str(path[-1]).startswith("Fn::"):
                yield (*path, index), name, len(value) == 1
            yield from _in_lists(each, (*path, index))
    for key, each in value.items() if isinstance(value, dict) else ():
        if not key.startswith("Fn::") or key == "Fn::If":
            yield from _in_lists(each, (*path, key))


def kinds(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a reference the kind of resource, and the value of it, that a property takes.

    CloudFormation User Guide, "Ref", "Fn::GetAtt" and the return values of each type: a name where
    an id belongs, or an ARN where a name does, ends the stack when it is under way.
    """
    for resource in templates.everything():
        for path, value in _references(dict(resource.properties), (), resource.type):
            wanted = _wanted(path, resource.type)
            name, attribute = _named(value)
            target = templates.target(value, resource.file)
            if wanted is None or target is None or target.type not in _KNOWN:
                continue
            allowed = wanted.get(target.type)
            if allowed is None:
                needed = " or ".join(each.split("::", 1)[1] for each in list(wanted)[:2])
                found = f"{target.id} is an {target.type}, and here belongs an {needed}"
                yield resource.find(Code.REFERENCE, path, found, _meant(target, templates))
            elif path == ("GroupName",) and is_absent(target.properties.get("VpcId")):
                # In the default VPC Ref is the name.
                continue
            elif name is not None and _is_real(target, attribute) and attribute not in allowed:
                found = f"{_shown(name, attribute)} is not the value that belongs here"
                by_id = str(path[-1]).replace("Name", "Id")
                remedy = f"write {_shown(name, allowed[0])}" if allowed else f"put it under {by_id}"
                yield resource.find(Code.REFERENCE, path, found, remedy)


def _meant(target: Resource, templates: TemplateSet) -> str:
    """Say what to write: of an instance profile its role, if that is at hand."""
    profile = target.type == "AWS::IAM::InstanceProfile"
    listed = items(target.properties.get("Roles")) or [] if profile else []
    role = next((each for each in templates.targets(listed, target.file) if each), None)
    return f"write Fn::GetAtt [{role.id}, Arn]" if role else "name the resource that is meant"


def _is_real(target: Resource, attribute: str) -> bool:
    """Tell whether a resource has this value; what it has not is a finding of its own."""
    known = table(CLOUDFORMATION).get(f"@{target.type}")
    listed = known.get("=") if isinstance(known, dict) else None
    return attribute == "Ref" or (
        bool(attribute) and (not isinstance(listed, list) or attribute in listed)
    )


def _references(value: Json, path: Path, kind: str) -> Iterator[tuple[Path, Json]]:
    """Return every Ref, GetAtt and import below a value, with its place."""
    if isinstance(value, dict) and len(value) == 1:
        (key,) = value
        if key in {"Ref", "Fn::GetAtt", "Fn::ImportValue"}:
            yield path, value
            return
        if key.startswith("Fn::"):
            return
    children = enumerate(value) if isinstance(value, list) else ()
    for key_, each in value.items() if isinstance(value, dict) else children:
        yield from _references(each, (*path, key_), kind)


def _wanted(path: Path, kind: str) -> _Wanted | None:
    names = [each for each in path if isinstance(each, str)]
    if not names:
        return None
    before = names[-2] if names[1:] else kind
    special = _IN_A_PART.get((before, names[-1])) or (
        _IN_A_PART.get((kind, names[-1])) if not names[1:] else None
    )
    plain = _BY_NAME.get(names[-1]) if kind.startswith("AWS::") else None
    return special or plain


def _named(value: Json) -> tuple[str | None, str]:
    """Return the resource and the attribute of a reference; None for an import."""
    if not isinstance(value, dict):
        return None, ""
    if "Ref" in value:
        return text(value["Ref"]), "Ref"
    inner = value.get("Fn::GetAtt")
    if isinstance(inner, list) and len(inner) == 2:  # noqa: PLR2004 -- a name and an attribute
        return text(inner[0]), text(inner[1]) or ""
    if isinstance(inner, str):
        name, _, attribute = inner.partition(".")
        return name, attribute
    return None, ""


def _shown(name: str, attribute: str) -> str:
    return f"Ref {name}" if attribute == "Ref" else f"Fn::GetAtt [{name}, {attribute}]"


def networks(templates: TemplateSet) -> Iterator[Finding]:
    """Require the subnets, groups and tables of one resource in one VPC.

    EC2 API, RunInstances and AssociateRouteTable; EKS API, VpcConfigRequest; FSx API,
    CreateFileSystem: each refuses parts of two VPCs (InvalidGroup.NotFound, InvalidParameter).
    """
    for resource in templates.everything():
        parts = list(_parts(resource, templates))
        if resource.type == "AWS::EKS::Nodegroup":
            cluster = templates.target(resource.properties.get("ClusterName"), resource.file)
            used = launch_template_of(resource, templates)
            parts += list(_parts(cluster, templates))[:1] if cluster is not None else []
            parts += list(_parts(used, templates)) if used is not None else []
        if resource.type in {"AWS::EC2::Route", "AWS::EC2::VPCPeeringConnection"}:
            continue
        own = [(part, vpc) for part in parts if (vpc := _vpc(part, templates)) is not None]
        other = next(((part, vpc) for part, vpc in own if vpc is not own[0][1]), None)
        rule = resource.type.startswith("AWS::EC2::SecurityGroup")
        if other is not None and not rule:
            found = f"{own[0][0].id} is in {own[0][1].id}, and {other[0].id} in {other[1].id}: "
            found += "nothing is made of parts of two VPCs"
            place: Path = (DATA,) if resource.type == "AWS::EC2::LaunchTemplate" else ()
            yield resource.find(Code.NETWORK_PART, place, found, "name parts of one VPC")


def _parts(resource: Resource, templates: TemplateSet) -> Iterator[Resource]:
    for _, value in _references(dict(resource.properties), (), resource.type):
        target = templates.target(value, resource.file)
        if target is not None and target.type in {
            *("AWS::EC2::Subnet", "AWS::EC2::SecurityGroup", "AWS::EC2::RouteTable", _VPC),
        }:
            yield target


def _vpc(part: Resource, templates: TemplateSet) -> Resource | None:
    target = (
        part if part.type == _VPC else templates.target(part.properties.get("VpcId"), part.file)
    )
    return target if target is not None and target.type == _VPC else None
