"""Rules over what stands beside a cluster: pipelines that build its AMIs, and AWS Batch."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.launch_templates import has_gpus
from megatron_eks.rules.policies import policy_name
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text

_BUILDER = "AWS::ImageBuilder::"
_SEMANTIC = re.compile(r"([0-9]+|x)\.([0-9]+|x)\.([0-9]+|x)(/[0-9]+)?")
_WITH_AGENT = frozenset(
    {"AmazonSSMManagedInstanceCore", "AmazonSSMFullAccess", "AdministratorAccess"}
)
_CHECKS = ("EBS", "EC2", "ELB", "VPC_LATTICE")
# AWS Batch API, Ec2Configuration.imageType.
_WITHOUT_DRIVER = ("ECS_AL2", "ECS_AL2023")


def pipelines(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a pipeline for AMIs versions in three parts, and a name of its own for each AMI.

    EC2 Image Builder API, CreateImageRecipe and CreateComponent, semanticVersion; EC2 API,
    RegisterImage.Name.
    """
    for kind in ("Component", "ImageRecipe", "ContainerRecipe"):
        for resource in templates.resources(f"{_BUILDER}{kind}"):
            value = resource.properties.get("Version")
            said = str(value) if isinstance(value, int | float) else text(value)
            if said is not None and not _SEMANTIC.fullmatch(said) and not is_placeholder(said):
                found = f"{shown(value)} is no version in three parts: Image Builder refuses it"
                yield resource.find(Code.UNKNOWN_VALUE, ("Version",), found, "write it like 1.0.0")
    for resource in templates.resources(f"{_BUILDER}DistributionConfiguration"):
        for index, value in enumerate(items(resource.properties.get("Distributions")) or []):
            ami = mapping((mapping(value) or {}).get("AmiDistributionConfiguration")) or {}
            name = text(ami.get("Name"))
            if name is not None and "{{" not in name and "$" not in name:
                found = f"{shown(name)} for every AMI, and an account has a name once: the second "
                found += "build fails"
                path = ("Distributions", index, "AmiDistributionConfiguration", "Name")
                remedy = f'write "{name}-{{{{ imagebuilder:buildDate }}}}"'
                yield resource.find(Code.RESOURCE_NAME, path, found, remedy, Level.WARNING)


def builders(templates: TemplateSet) -> Iterator[Finding]:
    """Require of what builds AMIs the rights by which Systems Manager reaches it.

    EC2 Image Builder User Guide, "IAM integration": the role of the instance profile has
    AmazonSSMManagedInstanceCore and EC2InstanceProfileForImageBuilder.
    """
    told: set[Resource] = set()
    for place in templates.resources(f"{_BUILDER}InfrastructureConfiguration"):
        given = templates.target(place.properties.get("InstanceProfileName"), place.file)
        listed = items(given.properties.get("Roles")) or [] if given is not None else []
        for role in templates.targets(listed, place.file):
            if role is not None and role not in told and _is_without_agent(role, templates):
                told.add(role)
                found = f"{place.id} builds with this role, and it may not speak to Systems "
                found += "Manager: every build waits, and fails"
                remedy = "add AmazonSSMManagedInstanceCore and EC2InstanceProfileForImageBuilder"
                yield role.find(Code.NODE_ROLE, ("ManagedPolicyArns",), found, remedy)


def _is_without_agent(role: Resource, templates: TemplateSet) -> bool:
    """Tell whether a role has policies of AWS alone, none of which lets the agent work."""
    listed = items(role.properties.get("ManagedPolicyArns"))
    names = [policy_name(each) for each in listed or []]
    attached = any(
        role in templates.targets(items(each.properties.get("Roles")) or [], each.file)
        for each in templates.resources("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
    )
    known = listed is not None and None not in names and is_absent(role.properties.get("Policies"))
    return known and not attached and not {*names} & _WITH_AGENT


def health(templates: TemplateSet) -> Iterator[Finding]:
    """Require of an Auto Scaling group a kind of health check that there is.

    EC2 Auto Scaling API, CreateAutoScalingGroup.HealthCheckType; EC2 is always among them.
    """
    for group in templates.resources("AWS::AutoScaling::AutoScalingGroup"):
        said = text(group.properties.get("HealthCheckType"))
        for each in (said or "").split(","):
            name = each.strip()
            if name and name not in _CHECKS and not is_placeholder(name):
                found = f"{shown(name)} is no health check of Auto Scaling, which refuses the group"
                remedy = f"use {', '.join(_CHECKS)}"
                yield group.find(Code.UNKNOWN_VALUE, ("HealthCheckType",), found, remedy)


def batch(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a compute environment with GPUs an image that has their driver.

    AWS Batch API, Ec2Configuration.imageType: ECS_AL2023_NVIDIA is the one for GPU instances, and
    is what Batch takes by itself for them.
    """
    for place in templates.resources("AWS::Batch::ComputeEnvironment"):
        parts = mapping(place.properties.get("ComputeResources")) or {}
        types = [text(each) or "" for each in items(parts.get("InstanceTypes")) or []]
        if not types or not all(has_gpus(each) for each in types):
            continue
        for index, value in enumerate(items(parts.get("Ec2Configuration")) or []):
            body = mapping(value) or {}
            kind = text(body.get("ImageType")) or ""
            if kind in _WITHOUT_DRIVER and body.get("ImageIdOverride") is None:
                found = f"{kind} has no NVIDIA driver, and {types[0]} has GPUs: no job starts"
                path: Path = ("ComputeResources", "Ec2Configuration", index, "ImageType")
                yield place.find(Code.AMI_TYPE, path, found, f"write {kind}_NVIDIA")
