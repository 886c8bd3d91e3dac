"""Rules over how nodes start: user data, the root volume, names that stand in the way."""

import base64
import re
import tomllib
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.ami_paths import families
from megatron_eks.rules.launch_templates import DATA, LaunchTemplate, launch_templates
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    number,
    shown,
    text,
    written,
)

_BOOTSTRAP = "/etc/eks/bootstrap.sh"
_SCRIPT = re.compile(r"\s*(#!|#cloud-config)")
_PLAIN = re.compile(
    r"\s*(#!|#cloud-config|mime-version:|content-type:|---\s|apiversion:|\[settings)", re.IGNORECASE
)
_ROOT = "/dev/xvda"
_DATA_DISK = "/dev/xvdb"
# EKS User Guide: the disk of an AMI with NVIDIA's driver is 20 GiB; an image of a framework has
# about 20 GiB itself, unpacked.
_SMALL_GIB = 50
_OF_THE_AMI = 20

_SETTINGS = re.compile(r"^\s*\[settings[.\]]|^\s*settings\.", re.MULTILINE)
_NODEADM = "application/node.eks.aws"
_API_VERSION = "node.eks.aws/v1alpha1"
_NODE_CONFIG = "NodeConfig"
_CONFIG = re.compile(r"apiVersion[\"']?:\s*[\"']?(node\.eks\.aws/[A-Za-z0-9]+)")

_NAME = re.compile(r"\$\{([A-Za-z0-9:]+)\}")


def user_data(templates: TemplateSet) -> Iterator[Finding]:
    """Require user data that EKS can merge with its own, for the AMI's way to start.

    EKS User Guide, "Customize managed nodes with launch templates": MIME multi-part where EKS
    chooses the AMI; Amazon Linux 2023 starts by nodeadm and has no bootstrap.sh.
    """
    for template in launch_templates(templates):
        given = written(template.data.get("UserData"))
        # The beginning tells even where the rest is known to CloudFormation alone.
        plain = given is not None and _PLAIN.match(given) is not None
        waits = given is None or is_placeholder(given)
        if plain or not (waits or _is_base64(given or "")):
            found = "a text that is not in Base64: EC2 refuses the template"
            place = (DATA, "UserData")
            yield template.resource.find(Code.USER_DATA, place, found, "put Fn::Base64 around it")
        data = user_data_of(template)
        amis = families(template, templates)
        yield from _of_another(template, data or "", amis)
        if data and _NODE_CONFIG in data and amis and all(each.startswith("AL2_") for each in amis):
            found = "a NodeConfig, which Amazon Linux 2 does not read: no node joins"
            remedy = f"take Amazon Linux 2023, or call {_BOOTSTRAP} in a script"
            yield template.resource.find(Code.USER_DATA, (DATA, "UserData"), found, remedy)
        # Where the AMI is not known, a part for nodeadm says what it is meant for.
        guessed = not any(amis) and _NODEADM in (data or "")
        newer = guessed or (any(amis) and all(each.startswith("AL2023") for each in amis))
        if not data or not newer:
            continue
        path = (DATA, "UserData")
        config = _CONFIG.search(data)
        if _NODE_CONFIG in data and config is not None and config[1] != _API_VERSION:
            found = f"nodeadm knows no {config[1]}, so the node does not start"
            remedy = f"write apiVersion: {_API_VERSION}"
            yield template.resource.find(Code.USER_DATA, path, found, remedy)
        if _BOOTSTRAP in data:
            found = f"Amazon Linux 2023 has no {_BOOTSTRAP}"
            remedy = "write a NodeConfig (node.eks.aws/v1alpha1), or nothing"
            level = Level.WARNING if guessed else Level.ERROR
            if guessed:
                found += ", and the NodeConfig beside it is for nothing else"
                remedy = "remove the call: nodeadm joins the cluster by the NodeConfig"
            yield template.resource.find(Code.USER_DATA, path, found, remedy, level)
        elif is_absent(template.data.get("ImageId")) and _SCRIPT.match(data):
            found = "user data that is not MIME multi-part: EKS refuses the node group"
            remedy = "put it into a part of a multipart/mixed message"
            yield template.resource.find(Code.USER_DATA, path, found, remedy)


def plain_names(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse names of the template in user data that nothing replaces, since Fn::Sub is missing.

    CloudFormation User Guide, "Fn::Sub" and "Fn::Base64": a NodeConfig then names a cluster
    ${ClusterName}, letter by letter. A script may have variables of the same names.
    """
    for template in launch_templates(templates):
        given = template.data.get("UserData")
        data = text(given.get("Fn::Base64")) if isinstance(given, dict) else None
        names = templates.names(template.resource.file)
        for match in _NAME.finditer(data or ""):
            own = names is not None and match[1] in names.known
            set_here = re.search(rf"\b{re.escape(match[1])}=", data or "")
            if match[1].startswith("AWS::") or (own and not set_here):
                found = f"{match[0]} is not replaced: there is no Fn::Sub, and the node reads it so"
                remedy = "write Fn::Base64 with Fn::Sub inside it (Fn::Base64: !Sub |)"
                place = (DATA, "UserData")
                yield template.resource.find(Code.USER_DATA, place, found, remedy)
                break


def _of_another(template: LaunchTemplate, data: str, amis: list[str]) -> Iterator[Finding]:
    """Find settings of Bottlerocket on Amazon Linux, and the other way round.

    EKS User Guide, "Customize managed nodes with launch templates": Bottlerocket takes TOML alone.
    """
    path = (DATA, "UserData")
    toml = _SETTINGS.search(data) is not None
    rockets = [each.startswith("BOTTLEROCKET") for each in amis]
    if data and not toml and rockets and all(rockets):
        found = "user data that is not TOML, which is all that Bottlerocket reads"
        remedy = "write [settings.kubernetes] and the like, or nothing"
        yield template.resource.find(Code.USER_DATA, path, found, remedy)
    elif toml and rockets and all(rockets) and "${" not in data:
        try:
            tomllib.loads(data)
        except tomllib.TOMLDecodeError as error:
            found = f"no TOML ({error}), and Bottlerocket does not start with it"
            remedy = 'correct it: texts in quotes, "a.b/c" = "x" for a key with a slash'
            yield template.resource.find(Code.USER_DATA, path, found, remedy)
    elif toml and amis and all(each.startswith(("AL2", "UBUNTU", "WINDOWS")) for each in amis):
        found = f"settings of Bottlerocket, and the AMI is {amis[0]}"
        remedy = "write a NodeConfig (node.eks.aws/v1alpha1), or nothing"
        yield template.resource.find(Code.USER_DATA, path, found, remedy)


def _is_base64(written: str) -> bool:
    try:
        base64.b64decode("".join(written.split()), validate=True)
    except ValueError:
        return False
    return True


def user_data_of(template: LaunchTemplate) -> str | None:
    """Return the text of a template's user data, as far as it is written out."""
    value = template.data.get("UserData")
    if isinstance(value, str) and not is_placeholder(value):
        try:
            return base64.b64decode("".join(value.split()), validate=True).decode()
        except ValueError:
            return None
    return written(value.get("Fn::Base64")) if isinstance(value, dict) else None


def disks(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a disk the speeds that its type has.

    EC2 API, EbsBlockDevice: iops is needed for io1 and io2, and throughput is for gp3 alone.
    """
    for template in templates.resources("AWS::EC2::LaunchTemplate"):
        data = mapping(template.properties.get(DATA)) or {}
        for index, each in enumerate(items(data.get("BlockDeviceMappings")) or []):
            disk = mapping((mapping(each) or {}).get("Ebs")) or {}
            kind, path = text(disk.get("VolumeType")), (DATA, "BlockDeviceMappings", index, "Ebs")
            if kind in {"io1", "io2"} and is_absent(disk.get("Iops")):
                found, remedy = f"{kind} without Iops: EC2 refuses it", "add Iops, or use gp3"
                yield template.find(Code.ROOT_VOLUME, (*path, "Iops"), found, remedy)
            if kind not in {None, "gp3"} and not is_absent(disk.get("Throughput")):
                found, remedy = f"Throughput of {kind}: EC2 refuses it", "use gp3, or remove it"
                yield template.find(Code.ROOT_VOLUME, (*path, "Throughput"), found, remedy)


def root_volume(templates: TemplateSet) -> Iterator[Finding]:
    """Require the disk that images lie on by its name, and large enough for those of frameworks.

    EKS User Guide, "Amazon EKS optimized AMIs": /dev/xvda on Amazon Linux; Bottlerocket, "Default
    volumes": /dev/xvda is the system's there, and /dev/xvdb has images and logs. A mapping of
    another disk leaves this one at 20 GiB.
    """
    for template in launch_templates(templates):
        amis = families(template, templates)
        mappings = items(template.data.get("BlockDeviceMappings"))
        name, said = _disk_of_images(amis)
        if not mappings or name is None:
            continue
        path = (DATA, "BlockDeviceMappings")
        devices = [text((mapping(each) or {}).get("DeviceName")) for each in mappings]
        if None not in devices and name not in devices:
            found = f"{shown(devices[0])} is not {said}, so it stays 20 GiB"
            yield template.resource.find(Code.ROOT_VOLUME, path, found, f"name it {name}")
        for index, each in enumerate(mappings):
            disk = mapping((mapping(each) or {}).get("Ebs")) or {}
            size = number(disk.get("VolumeSize"))
            gpus = template.instance is not None
            least = _OF_THE_AMI if name == _ROOT else 0
            if devices[index] == name and size is not None and size < least:
                found = f"{size} GiB, and the AMI has {least} GiB: EC2 refuses the launch"
                remedy = f"use {_SMALL_GIB} GiB or more"
                yield template.resource.find(Code.ROOT_VOLUME, (*path, index), found, remedy)
            elif devices[index] == name and size is not None and size < _SMALL_GIB and gpus:
                found = f"{size} GiB for the system and all images of a GPU node"
                remedy = f"use {_SMALL_GIB} GiB or more"
                yield template.resource.find(
                    Code.ROOT_VOLUME, (*path, index), found, remedy, Level.WARNING
                )


def _disk_of_images(amis: list[str]) -> tuple[str | None, str]:
    """Return the disk that holds images, and what it is, where all AMIs are of one kind."""
    if amis and all(each.startswith(("AL2023", "AL2_")) for each in amis):
        return _ROOT, "the root volume of Amazon Linux"
    if amis and all(each.startswith("BOTTLEROCKET") for each in amis):
        return _DATA_DISK, "the disk of Bottlerocket that has the images"
    return None, ""
