"""Rules over the form of a template: names of its parts, values that are nothing, references."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.properties import imported
from megatron_eks.rules.shapes import CLOUDFORMATION, table
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_placeholder, mapping, shown, text

_NAME = re.compile(r"[A-Za-z0-9]+")
_NAMED = ("Mappings", "Outputs", "Parameters", "Resources")
# CloudFormation User Guide, "DeletionPolicy attribute": what has snapshots.
_WITH_SNAPSHOTS = (
    *("AWS::DocDB::DBCluster", "AWS::EC2::Volume", "AWS::ElastiCache::CacheCluster"),
    *("AWS::ElastiCache::ReplicationGroup", "AWS::Neptune::DBCluster", "AWS::RDS::DBCluster"),
    *("AWS::RDS::DBInstance", "AWS::Redshift::Cluster"),
)
_REFERENCE = re.compile(r"\{\{\s*resolve:[^{}]*(?P<end>\}{0,2})")
# Lists and texts that their service refuses when nothing is in them (EKS API, CreateNodegroup; IAM
# API, AddRoleToInstanceProfile and PutRolePolicy; FSx API, CreateFileSystem; CodeBuild API).
_FILLED: tuple[tuple[str, Path], ...] = (
    ("AWS::EKS::Nodegroup", ("Subnets",)),
    ("AWS::FSx::FileSystem", ("SubnetIds",)),
    ("AWS::IAM::InstanceProfile", ("Roles",)),
    ("AWS::EFS::MountTarget", ("SecurityGroups",)),
    ("AWS::CodeBuild::Project", ("Environment", "Image")),
    ("AWS::EKS::Cluster", ("EncryptionConfig", 0, "Resources")),
    ("AWS::EKS::PodIdentityAssociation", ("ServiceAccount",)),
    ("AWS::EKS::PodIdentityAssociation", ("Namespace",)),
)


def names(templates: TemplateSet) -> Iterator[Finding]:
    """Require names of letters and digits of the parts of a template, and a type of a resource.

    CloudFormation User Guide, "Resources" and "Outputs": logical ids are alphanumeric ("Template
    format error: Resource name ... is non alphanumeric"). A macro may take others.
    """
    for file, template in templates.files():
        for section in _NAMED if "Transform" not in template else ():
            for name in mapping(template.get(section)) or {}:
                if not _NAME.fullmatch(name) and not name.startswith("Fn::") and "$" not in name:
                    plain = re.sub(r"[^A-Za-z0-9]", "", name) or "Name"
                    found = f"{shown(name)} in {section}: CloudFormation takes letters and digits"
                    remedy = f"write {plain}, here and where it is named"
                    yield Finding(Code.PROPERTY, (section, name), found, remedy, file=file)
    for resource in templates.resources(""):
        found, remedy = "a resource without Type", "say what it is: Type: AWS::..."
        yield resource.find(Code.PROPERTY, ("Type",), found, remedy)


def values(templates: TemplateSet) -> Iterator[Finding]:
    """Require values of outputs, names of imports and dynamic references that can be read.

    CloudFormation User Guide, "Outputs" ("value must be a string"), "Fn::ImportValue" and "Get
    values stored in other services using dynamic references": what lacks a brace is a plain text.
    """
    for file, outputs in templates.outputs():
        for name, output in (mapping(outputs) or {}).items():
            value = (mapping(output) or {}).get("Value")
            if value == {} or isinstance(value, list):
                found = f"{shown(value)} as the value of an output: CloudFormation takes a text"
                remedy = "write what is meant, such as Ref or Fn::GetAtt of a resource"
                path: Path = ("Outputs", name, "Value")
                yield Finding(Code.FUNCTION, path, found, remedy, file=file)
    for resource in templates.everything():
        for path, name in imported(dict(resource.properties), ()):
            if not name.strip():
                found = "an import without a name: CloudFormation refuses the template"
                yield resource.find(Code.REFERENCE, path, found, "write the name of the export")
        for path, said in _texts(dict(resource.properties), ()):
            match = _REFERENCE.search(said)
            if match is not None and match["end"] != "}}":
                found = "a dynamic reference that does not end with }}, so nobody looks it up"
                yield resource.find(Code.FUNCTION, path, found, "write }} at its end")


def _texts(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str) and "resolve:" in value:
        yield path, value
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        if isinstance(each, str | list | dict):
            yield from _texts(each, (*path, key))


def snapshots(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a snapshot of what has none when it is deleted.

    CloudFormation User Guide, "DeletionPolicy attribute": the types that have one are listed, and
    the template is refused for others ("does not support deletion policy Snapshot").
    """
    known = table(CLOUDFORMATION)
    for resource in templates.everything():
        if resource.type in _WITH_SNAPSHOTS or resource.type not in known:
            continue
        for key in ("DeletionPolicy", "UpdateReplacePolicy"):
            if resource.body.get(key) == "Snapshot":
                found = f"Snapshot, which {resource.type} has not: CloudFormation refuses it"
                yield resource.find(Code.UNKNOWN_VALUE, (key,), found, "write Retain, or Delete")


def filled(templates: TemplateSet) -> Iterator[Finding]:
    """Require an element of lists, and words of texts, that their service needs.

    EKS API, CreateNodegroup.subnets; IAM API, AddRoleToInstanceProfile and PutRolePolicy; FSx API,
    CreateFileSystem.SubnetIds; EFS API, CreateMountTarget; CodeBuild API, ProjectEnvironment.image.
    """
    for kind, path in _FILLED:
        for resource in templates.resources(kind):
            yield from _empty(resource, path)
    for role in templates.resources("AWS::IAM::Role", "AWS::IAM::User", "AWS::IAM::Group"):
        listed = role.properties.get("Policies")
        for index, _ in enumerate(listed if isinstance(listed, list) else []):
            yield from _empty(role, ("Policies", index, "PolicyName"))


def _empty(resource: Resource, path: Path) -> Iterator[Finding]:
    value: Json = dict(resource.properties)
    for part in path:
        if isinstance(part, int):
            value = value[part] if isinstance(value, list) and part < len(value) else None
        else:
            value = (mapping(value) or {}).get(part)
    if value not in ("", []):
        return
    what = "an empty list" if isinstance(value, list) else "an empty text"
    service = resource.type.split("::")[1]
    remedy = "write what is meant" if text(value) is not None else "name one or more"
    if not is_placeholder(str(value)):
        yield resource.find(Code.UNKNOWN_VALUE, path, f"{what}: {service} refuses it", remedy)
