"""Rules over AMIs that are named by a path of Systems Manager: version, processor, driver."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.clusters import past_support
from megatron_eks.rules.launch_templates import DATA, LaunchTemplate, has_gpus, launch_templates
from megatron_eks.rules.node_groups import is_arm
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, mapping, shown, text, written

# EKS User Guide, "Retrieve recommended Amazon Linux AMI IDs" and "Retrieve recommended Bottlerocket
# AMI IDs"; amazon-eks-ami, doc/usage: the older paths are those of Amazon Linux 2.
_AMAZON = re.compile(
    r"/aws/service/eks/optimized-ami/(?P<minor>[^/]+)/(?P<family>amazon-linux-2[^/]*)"
    r"(/(?P<processor>x86_64|arm64)/(?P<variant>[^/]+))?/(?P<rest>.+)"
)
_BOTTLEROCKET = re.compile(
    r"/aws/service/bottlerocket/aws-k8s-(?P<minor>[0-9.]+)(?P<variant>-nvidia)?/"
    r"(?P<processor>x86_64|arm64)/(?P<rest>.+)"
)
_UBUNTU = re.compile(r"/aws/service/canonical/ubuntu/eks/[^/]+/(?P<minor>[0-9.]+)/.+")
_RESOLVE = re.compile(r"\{\{resolve:ssm:(?P<path>/[^}:]+)(:[0-9]+)?\}\}|resolve:ssm:(?P<own>/.+)")
_MINOR = re.compile(r"1\.([0-9]{1,2})")
_OLDER = 3
_LAST_OF_AL2 = 32


@dataclass(frozen=True)
class Ami:
    """What a path says of an AMI; what it does not say is empty."""

    path: str
    family: str
    """`AL2`, `AL2023`, `BOTTLEROCKET` or `UBUNTU`."""
    minor: str
    processor: str
    gpus: bool | None
    """Tell whether it has NVIDIA's driver; None where the path does not say."""
    rest: str


def ami_of(value: Json, file: str, templates: TemplateSet) -> Ami | None:
    """Return the AMI that a launch template names by a path, through a parameter or directly."""
    given = templates.default(value, file)
    said = text(given) or written(given) or ""
    match = _RESOLVE.fullmatch(said)
    path = (match["path"] or match["own"]) if match else said
    amazon, rocket = _AMAZON.fullmatch(path), _BOTTLEROCKET.fullmatch(path)
    if amazon is not None:
        older = not amazon["family"].startswith("amazon-linux-2023")
        name = amazon["family"]
        gpus = name.endswith("-gpu") if older else amazon["variant"] == "nvidia"
        processor = "arm64" if name.endswith("arm64") else amazon["processor"] or "x86_64"
        family = "AL2" if older else "AL2023"
        return Ami(path, family, amazon["minor"], processor, gpus, amazon["rest"])
    if rocket is not None:
        gpus = rocket["variant"] is not None
        own = (rocket["minor"], rocket["processor"], gpus, rocket["rest"])
        return Ami(path, "BOTTLEROCKET", *own)
    ubuntu = _UBUNTU.fullmatch(path)
    return Ami(path, "UBUNTU", ubuntu["minor"], "", None, "") if ubuntu else None


def amis(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a node's AMI the cluster's version, and the instance type's processor and driver.

    Kubernetes, "Version Skew Policy": a kubelet is never newer than its API server; EKS User Guide,
    "Use EKS-optimized accelerated AMIs for GPU instances".
    """
    for template in launch_templates(templates):
        value, file = template.data.get("ImageId"), template.resource.file
        ami = ami_of(value, file, templates)
        if ami is None:
            continue
        yield from _as_a_text(template, value, templates)
        yield from _version(template, ami, templates)
        kind = template.instance_type or ""
        if kind and ami.processor and (ami.processor == "arm64") != is_arm(kind):
            found = f"{shown(ami.path)} is for {ami.processor}, and {kind} has another processor"
            other = "x86_64" if ami.processor == "arm64" else "arm64"
            yield _ami(template, found, f"write {other} in the path")
        elif has_gpus(kind) and ami.gpus is False:
            found = f"{shown(ami.path)} has no NVIDIA driver, and {kind} has GPUs"
            yield _ami(template, found, "take the variant nvidia, as AL2023 has it")
        if ami.rest.endswith(("recommended", "latest")):
            found = f"{shown(ami.path)} is a record of JSON, and no id of an AMI"
            yield _ami(template, found, "add /image_id (image_id for Bottlerocket) at its end")


def _ami(template: LaunchTemplate, found: str, remedy: str) -> Finding:
    return template.resource.find(Code.AMI_TYPE, (DATA, "ImageId"), found, remedy)


def _as_a_text(template: LaunchTemplate, value: Json, templates: TemplateSet) -> Iterator[Finding]:
    """Find a path that nobody resolves, so that EC2 gets it as the id."""
    file = template.resource.file
    said = text(templates.default(value, file)) or ""
    name = text(value.get("Ref")) if isinstance(value, dict) else None
    parameter = mapping((templates.part(file, "Parameters") or {}).get(name or "")) or {}
    kind = text(parameter.get("Type")) or ""
    if said.startswith("/") and (not isinstance(value, dict) or (kind and "SSM" not in kind)):
        found = f"{shown(said)} as an AMI's id, and nothing looks it up"
        remedy = "give the parameter the type AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
        yield _ami(template, found, remedy)


def _version(template: LaunchTemplate, ami: Ami, templates: TemplateSet) -> Iterator[Finding]:
    clusters = {
        templates.target(group.properties.get("ClusterName"), group.file)
        for group in template.node_groups
    } or {*templates.resources("AWS::EKS::Cluster")}
    cluster = next(iter(clusters)) if len(clusters) == 1 else None
    mine, its = _minor(ami.minor), _cluster_minor(cluster, templates)
    if ami.family == "AL2" and mine is not None and mine > _LAST_OF_AL2:
        found = f"{shown(ami.path)}: EKS has no Amazon Linux 2 for Kubernetes 1.{mine}"
        yield _ami(template, found, "take amazon-linux-2023/x86_64/nvidia")
    if mine is not None and cluster is None and past_support(f"1.{mine}"):
        found = f"{shown(ami.path)} is for a cluster of 1.{mine}, past its standard support: the "
        found += "control plane costs six times as much"
        path = (DATA, "ImageId")
        remedy = "upgrade the cluster, and write its version here"
        yield template.resource.find(Code.CLUSTER_VERSION, path, found, remedy, Level.WARNING)
    if mine is None or its is None or its - _OLDER <= mine <= its:
        return
    how = "newer" if mine > its else f"more than {_OLDER} versions older"
    found = f"{shown(ami.path)} is {how} than the cluster's 1.{its}"
    path = (DATA, "ImageId")
    yield template.resource.find(Code.VERSION_SKEW, path, found, f"write 1.{its} in the path")


def _minor(value: Json) -> int | None:
    # YAML makes a number of 1.34 without quotes.
    given = str(value) if isinstance(value, float) else text(value) or ""
    match = _MINOR.fullmatch(given)
    return int(match[1]) if match else None


def _cluster_minor(cluster: Resource | None, templates: TemplateSet) -> int | None:
    if cluster is None or is_absent(cluster.properties.get("Version")):
        return None
    return _minor(templates.default(cluster.properties["Version"], cluster.file))


def families(template: LaunchTemplate, templates: TemplateSet) -> list[str]:
    """Return what the nodes run, as the AMI types of node groups say it or the AMI's path."""
    ami = ami_of(template.data.get("ImageId"), template.resource.file, templates)
    if ami is not None:
        return [ami.family if ami.family != "AL2" else "AL2_x86_64"]
    if not is_absent(template.data.get("ImageId")):
        return [""]
    return [text(group.properties.get("AmiType")) or "" for group in template.node_groups]
