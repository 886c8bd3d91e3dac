"""Rules over what CloudFormation refuses at once, and over tags, ARNs and policies of endpoints."""

import json
import re
from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path, choices
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.policy_documents import documents_of
from megatron_eks.rules.cloudformation.properties import named
from megatron_eks.rules.launch_templates import DATA, launch_templates
from megatron_eks.rules.policies import parsed, statements
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_given,
    is_placeholder,
    items,
    mapping,
    number,
    shown,
    text,
    written,
)

# AWS Load Balancer Controller, "Subnet discovery"; EKS User Guide, "Configure subnet selection for
# Pod IP addresses".
_ROLES = (
    "kubernetes.io/role/elb",
    "kubernetes.io/role/internal-elb",
    "kubernetes.io/role/cni",
)
_ROLE = "kubernetes.io/role/"
# AWS General Reference, "Tag naming limits and requirements".
_LONGEST_KEY, _LONGEST_VALUE = 128, 256
_ON = frozenset({"1", ""})
_NAMES = {
    **dict.fromkeys(("AWS::S3::Bucket", "AWS::ECR::Repository", "AWS::EKS::Cluster"), "a name"),
    **dict.fromkeys(("AWS::IAM::Role", "AWS::Logs::LogGroup", "AWS::CodeBuild::Project"), "a name"),
    "AWS::KMS::Key": "an id",
}
_REF = re.compile(r"\$\{(?P<name>[A-Za-z0-9]+)\}(/.*)?")
_PART = re.compile(r"\$\{[^}]*\}")
# CloudFormation User Guide, "CloudFormation-supplied parameter types".
_SUPPLIED = (
    r"AWS::(EC2::(AvailabilityZone::Name|Image::Id|Instance::Id|KeyPair::KeyName"
    r"|SecurityGroup::GroupName|SecurityGroup::Id|Subnet::Id|Volume::Id|VPC::Id)"
    r"|Route53::HostedZone::Id)"
)
_PLAIN = rf"String|Number|CommaDelimitedList|List<(Number|String|{_SUPPLIED})>|{_SUPPLIED}"
_PARAMETER = re.compile(rf"{_PLAIN}|AWS::SSM::Parameter::(Name|Value<({_PLAIN})>)")
# IAM User Guide, "IAM ARNs"; S3 User Guide, "Policy resources": neither has a region, and what of
# S3 has one is named after it.
_WITH_REGION = re.compile(
    r"arn:[^:]+:(iam:[^:]+:[^:]*:|s3:(?!:)[^:]*:[^:]*:(?!accesspoint|access-grants|job|storage-lens"
    r"|async-request)|s3::[^:]+:(?!accesspoint)).*"
)
_ACTIONS_OF_A_RULE = (
    *("AbortIncompleteMultipartUpload", "ExpirationDate", "ExpirationInDays", "Transition"),
    *("ExpiredObjectDeleteMarker", "NoncurrentVersionExpiration", "Transitions"),
    *("NoncurrentVersionExpirationInDays", "NoncurrentVersionTransition"),
    "NoncurrentVersionTransitions",
)


def parameters(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a parameter's default that the parameter allows it.

    CloudFormation User Guide, "Parameters": the template is refused as it stands.
    """
    for file, template in templates.files():
        for name, value in (mapping(template.get("Parameters")) or {}).items():
            body = mapping(value) or {}
            kind = text(body.get("Type"))
            if kind is not None and not _PARAMETER.fullmatch(kind):
                path: Path = ("Parameters", name, "Type")
                found = (
                    f"{shown(kind)} is no type of a parameter: CloudFormation refuses the template"
                )
                remedy = "write String, Number, CommaDelimitedList or a type such as "
                remedy += "AWS::EC2::Subnet::Id or List<AWS::EC2::Subnet::Id>"
                yield Finding(Code.PROPERTY, path, found, remedy, file=file)
            default = text(body.get("Default"))
            allowed = [_as_text(each) for each in items(body.get("AllowedValues")) or []]
            pattern = text(body.get("AllowedPattern"))
            plain = not str(body.get("Type")).startswith(("List", "Comma", "AWS::SSM"))
            wrong = None
            # An empty default that is refused makes people give a value.
            if not default or not plain:
                continue
            if allowed and default not in allowed:
                wrong = f"{shown(default)} is none of the AllowedValues"
            elif pattern is not None and not _matches(pattern, default):
                wrong = f"{shown(default)} does not match the AllowedPattern"
            elif (number(body.get("MinLength")) or 0) > len(default):
                wrong = f"{shown(default)} is shorter than MinLength"
            if wrong is not None:
                path = ("Parameters", name, "Default")
                found = f"{wrong}: CloudFormation refuses the template"
                remedy = choices(default, allowed) if allowed else "correct one of the two"
                yield Finding(Code.PROPERTY, path, found, remedy, file=file)


def _as_text(value: Json) -> str:
    """Write a value as CloudFormation does, to which true of YAML is the text "true"."""
    return value if isinstance(value, str) else json.dumps(value)


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.fullmatch(pattern, value) is not None
    except re.error:
        return True


def exports(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse two exports of one name, and a name that a resource is asked for.

    CloudFormation User Guide, "Outputs": names of exports are unique in a region, and Ref and
    GetAtt of a resource cannot be in them.
    """
    for file, outputs in templates.outputs():
        seen: dict[str, str] = {}
        for name, value in (mapping(outputs) or {}).items():
            export = mapping((mapping(value) or {}).get("Export")) or {}
            made = sorted(
                {each for _, each in named(export.get("Name"), ())} & templates.made_in(file)
            )
            if made:
                found = f"its name comes from {made[0]}, and only parameters may be in the name of "
                found += "an export: CloudFormation refuses the template"
                path: Path = ("Outputs", name, "Export", "Name")
                remedy = 'write a name such as Fn::Sub "${AWS::StackName}-' + f'{name}"'
                yield Finding(Code.PROPERTY, path, found, remedy, file=file)
                continue
            said = written(export.get("Name"))
            conditional = "Condition" in (mapping(value) or {})
            if said is None or conditional:
                continue
            if said in seen:
                found = f"{shown(said)} is exported by {seen[said]} already: it is refused"
                path = ("Outputs", name, "Export", "Name")
                yield Finding(Code.TWICE, path, found, "take another name", file=file)
            seen.setdefault(said, name)


def tags(templates: TemplateSet) -> Iterator[Finding]:
    """Require tags that AWS takes, and those of load balancers as their controller reads them.

    AWS General Reference, "Tagging AWS resources"; AWS Load Balancer Controller,
    "Subnet discovery".
    """
    for resource in templates.everything():
        seen: set[str] = set()
        listed = resource.properties.get("Tags")
        for index, each in enumerate(items(listed) or [] if isinstance(listed, list) else []):
            body = mapping(each) or {}
            key, path = text(body.get("Key")), ("Tags", index)
            if key is None:
                continue
            if key.lower().startswith("aws:"):
                found = f"{shown(key)}: only AWS writes keys with aws:"
                yield resource.find(Code.UNKNOWN_VALUE, path, found, "take another key")
            elif key in seen:
                found = f"a second tag {shown(key)}: AWS refuses it"
                yield resource.find(Code.TWICE, path, found, "keep one of the two")
            yield from _long(resource, path, body)
            seen.add(key)
            if resource.type != "AWS::EC2::Subnet" or not key.startswith(_ROLE):
                continue
            if key not in _ROLES:
                found = f"no controller reads {shown(key)}"
                remedy = choices(key, _ROLES)
                yield resource.find(Code.UNKNOWN_VALUE, path, found, remedy, Level.WARNING)
            elif (
                key.endswith("elb")
                and (said := text(body.get("Value"))) is not None
                and said not in _ON | {"${"}
            ):
                found = f"{shown(said)}: no load balancer finds the subnet"
                yield resource.find(Code.UNKNOWN_VALUE, path, found, 'write "1"', Level.WARNING)


def _long(resource: Resource, path: Path, tag: Mapping[str, Json]) -> Iterator[Finding]:
    for part, most in (("Key", _LONGEST_KEY), ("Value", _LONGEST_VALUE)):
        said = text(tag.get(part)) or ""
        if len(said) > most and not is_placeholder(said):
            found = f"{len(said)} characters: AWS refuses the tag"
            yield resource.find(Code.UNKNOWN_VALUE, (*path, part), found, f"use {most} at most")


def arns(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse names where a policy takes ARNs, and regions in ARNs that have none.

    IAM User Guide, "IAM JSON policy elements: Resource" and "Amazon Resource Names".
    """
    for resource in templates.everything():
        for path, _, value in documents_of(resource):
            for index, body in enumerate(statements(parsed(value)) or []):
                given = body.get("Resource")
                place = (*path, "Statement", index, "Resource")
                for each in given if isinstance(given, list) else [given]:
                    found = _wrong(each, resource.file, templates)
                    if found is not None:
                        yield resource.find(Code.POLICY, place, *found)


def _wrong(value: Json, file: str, templates: TemplateSet) -> tuple[str, str] | None:
    said = written(value) or ""
    match = _REF.fullmatch(said)
    target = templates.target({"Ref": match["name"]}, file) if match else None
    if match is not None and target is not None and target.type in _NAMES:
        found = f"{shown(said)} is {_NAMES[target.type]}, and no ARN: IAM refuses the policy"
        return found, f"write {said.replace('}', '.Arn}', 1)}"
    plain = _PART.sub("x", said)
    if _WITH_REGION.fullmatch(plain) and "*" not in plain.split(":", 5)[2:5]:
        service = plain.split(":")[2]
        found = f"{shown(said)}: an ARN of {service} has no such region or account: it is nothing's"
        form = "arn:aws:s3:::BUCKET/*" if service == "s3" else "arn:aws:iam::ACCOUNT:role/NAME"
        return found, f"write it as {form}"
    return None


def endpoint_policies(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a policy of an endpoint that allows nothing.

    AWS PrivateLink Guide, "Control access to VPC endpoints using endpoint policies": what is not
    allowed there is denied to everybody.
    """
    for endpoint in templates.resources("AWS::EC2::VPCEndpoint"):
        listed = statements(endpoint.properties.get("PolicyDocument"))
        if listed and all(body.get("Effect") == "Deny" for body in listed):
            found = "nothing is allowed, so every call through it is denied"
            remedy = "add a statement that allows what the nodes call"
            yield endpoint.find(Code.ENDPOINT_UNUSED, ("PolicyDocument",), found, remedy)


def rules(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a lifecycle rule that it does something, and of nodes one way to choose a type.

    S3 API, PutBucketLifecycleConfiguration; EC2 API, LaunchTemplateData.InstanceRequirements; EKS
    User Guide, "Customize managed nodes with launch templates", which take no requirements.
    """
    for bucket in templates.resources("AWS::S3::Bucket"):
        cycle = mapping(bucket.properties.get("LifecycleConfiguration")) or {}
        for index, value in enumerate(items(cycle.get("Rules")) or []):
            rule = mapping(value)
            if rule and all(is_absent(rule.get(key)) for key in _ACTIONS_OF_A_RULE):
                path: Path = ("LifecycleConfiguration", "Rules", index)
                found = "a rule that does nothing: S3 refuses it"
                yield bucket.find(Code.EXPIRES, path, found, "add an expiration or a transition")
    for template in launch_templates(templates):
        if not is_given(template.data.get("InstanceRequirements")):
            continue
        path = (DATA, "InstanceRequirements")
        if is_given(template.data.get("InstanceType")):
            found = "beside InstanceType: EC2 refuses the two together"
            yield template.resource.find(Code.MANAGED_NODES, path, found, "keep one of them")
        elif template.node_groups:
            found = "requirements in the launch template of a node group: EKS refuses it"
            remedy = "list InstanceTypes in the node group"
            yield template.resource.find(Code.MANAGED_NODES, path, found, remedy)
