"""Guards of what a node starts with: user data, pods that it takes, and its root volume."""

import binascii
from base64 import b64decode
from collections.abc import Iterator
from email import message_from_string

from megatron_eks.catalog.interfaces import max_pods
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, choices
from megatron_eks.config.load import read_documents
from megatron_eks.guards.nodes import NodeGroup, node_groups
from megatron_eks.guards.templates import Templates, template_guard
from megatron_eks.guards.values import Place, Value

_NODE_CONFIG = "application/node.eks.aws"
_PARTS = (_NODE_CONFIG, "text/x-shellscript", "text/cloud-config")
# amazon-eks-ami, nodeadm/api/v1alpha1: what a NodeConfig has.
_KEYS = {
    (): ("apiVersion", "kind", "metadata", "spec"),
    ("spec",): ("cluster", "containerd", "featureGates", "instance", "kubelet"),
    ("spec", "instance"): ("environment", "localStorage", "network"),
    ("spec", "instance", "localStorage"): ("disabledMounts", "mountPath", "strategy"),
    ("spec", "kubelet"): ("config", "flags", "maxPodsExpression"),
}
_DISKS = ("RAID0", "RAID10", "Mount")
_ROOT = "/dev/xvda"
# Images of CUDA and Megatron take more than what the AMI has by itself (20 GiB).
_SMALL_GIB = 50


@template_guard
def user_data(templates: Templates) -> Iterator[Finding]:
    """User data is MIME text in Base64 with one NodeConfig that nodeadm reads.

    EKS adds its own part to it and refuses other forms; with a NodeConfig that nodeadm does not
    understand no node joins (EKS User Guide, "Customize managed nodes with launch templates").
    """
    for each in [group for group in node_groups(templates) if not group.data["ImageId"]]:
        given = each.data["UserData"]
        text, place = _text(each, templates)
        message = message_from_string(text)
        if given.text and not text:
            found = "a text that is not in Base64: EC2 refuses the template"
            yield given.finding(Code.USER_DATA, found, "put it into Fn::Base64")
        elif text and (message.get_content_maintype() != "multipart" or message.defects):
            found = "no MIME text of several parts, or its boundary differs: EKS refuses it"
            remedy = 'begin with `Content-Type: multipart/mixed; boundary="X"`, and part with --X'
            yield place.finding(Code.USER_DATA, found, remedy)
        for part in message.walk() if message.is_multipart() else ():
            kind = part.get_content_type()
            if not part.is_multipart() and kind not in _PARTS:
                found = f"a part of type {kind}: neither nodeadm nor cloud-init reads it"
                yield place.finding(Code.USER_DATA, found, choices(kind, _PARTS))
        for config in _configs(text):
            for found, remedy in _faults(config):
                yield place.finding(Code.USER_DATA, found, remedy)


@template_guard
def pods_and_disks(templates: Templates) -> Iterator[Finding]:
    """GPU nodes take as many pods as their first card has addresses, and use their NVMe disks.

    nodeadm also counts the addresses of the EFA-only interface, which has none: pods beyond it
    stay in ContainerCreating (amazon-vpc-cni-k8s issue 3189). A prefix for each would allow more.
    """
    addons = str([each["ConfigurationValues"].raw for each in templates.of("EKS::Addon")])
    for each in node_groups(templates):
        if each.instance is None or each.template is None:
            continue
        text, given = _text(each, templates)
        config = next(_configs(text), given)
        right, pods = max_pods(each.instance), config["spec"]["kubelet"]["config"]["maxPods"]
        if pods.number != right and "PREFIX_DELEGATION" not in addons and (text or not given):
            found = f"maxPods is {pods.raw}" if pods else "no maxPods"
            found += f", and {each.instance.name} has addresses for {right} pods"
            fewer = pods.number is not None and pods.number < right
            level = Level.WARNING if fewer else Level.ERROR
            remedy = f"set spec.kubelet.config.maxPods to {right} in the NodeConfig"
            yield given.finding(Code.MAX_PODS, found, remedy, level)
        strategy = config["spec"]["instance"]["localStorage"]["strategy"]
        if each.instance.instance_store_gb and not strategy and (text or not given):
            found = f"the NVMe disks of {each.instance.name} stay idle, and images fill the root "
            remedy = "set spec.instance.localStorage.strategy to RAID0 in the NodeConfig"
            yield given.finding(Code.USER_DATA, f"{found}volume", remedy, Level.WARNING)


@template_guard
def root_volume(templates: Templates) -> Iterator[Finding]:
    """Root volumes are large enough for images, encrypted, and gone with their nodes.

    AL2023 boots from /dev/xvda; a volume by another name stands empty beside one of 20 GiB (EKS
    User Guide, "Customize managed nodes with launch templates").
    """
    for each in node_groups(templates):
        volumes = each.data["BlockDeviceMappings"]
        if each.template is None or "BOTTLEROCKET" in each.group["AmiType"].text:
            continue
        names = [volume["DeviceName"].text for volume in volumes]
        if _ROOT not in names:
            found = f"no {_ROOT}: the root volume has 20 GiB, and images fill it"
            remedy = f"add or name it {_ROOT}: gp3, encrypted, 100 GiB or more"
            yield volumes.finding(Code.ROOT_VOLUME, found, remedy)
        for index, volume in enumerate(volumes):
            disk = volume["Ebs"]
            if names[index] in names[:index]:
                found = f"a second {names[index]}: EC2 refuses the launch"
                yield volume.finding(Code.ROOT_VOLUME, found, "remove one of the two")
            size = disk["VolumeSize"].number
            if names[index] == _ROOT and (size is None or size < _SMALL_GIB):
                found = f"{size or 'no'} GiB: images fill the disk, and the kubelet evicts pods"
                yield disk["VolumeSize"].finding(Code.ROOT_VOLUME, found, "use 100 GiB or more")
            for name, code, allowed, why in (
                ("Encrypted", Code.ENCRYPTION, (True,), "who takes the disk reads its tokens"),
                ("DeleteOnTermination", Code.ROOT_VOLUME, (True, None), "it outlives its node"),
                (
                    "VolumeType",
                    Code.DISK,
                    ("gp3", "gp2", "io2", "io1", None),
                    "EC2 boots no node from it",
                ),
            ):
                yield from disk[name].must_be(code, *allowed, why=why)
            key = templates.target(disk["KmsKeyId"])
            if key and "AWSServiceRoleForAutoScaling" not in str(key["KeyPolicy"].raw):
                found = f"the policy of {key.name} leaves out AWSServiceRoleForAutoScaling, which "
                found += "starts the nodes: each ends before it joins (Client.InternalError)"
                remedy = (
                    "allow it kms:CreateGrant, Decrypt and GenerateDataKey*, or remove KmsKeyId"
                )
                yield disk["KmsKeyId"].finding(Code.KEY_POLICY, found, remedy)


def _text(each: NodeGroup, templates: Templates) -> tuple[str, Value]:
    """Return the text of the user data, empty where only AWS knows it, and where it stands."""
    given = each.data["UserData"]
    place = given["Fn::Base64"] or given
    return _decoded(given.text) or (templates.text(place) if place is not given else ""), place


def _decoded(text: str) -> str:
    try:
        return b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _configs(text: str) -> Iterator[Value]:
    for part in message_from_string(text).walk():
        if part.get_content_type() == _NODE_CONFIG and not part.is_multipart():
            for document in read_documents(str(part.get_payload()), ""):
                yield Value({} if document.findings else document.value, Place("", ()))


def _faults(config: Value) -> Iterator[tuple[str, str]]:
    """Say what nodeadm does not take in a NodeConfig, each with what to do."""
    for key, right in (("apiVersion", "node.eks.aws/v1alpha1"), ("kind", "NodeConfig")):
        if config[key].raw != right:
            found = f"a NodeConfig whose {key} is {config[key].raw!r}: nodeadm reads none of it, "
            yield found + "and no node joins", f"write {key}: {right}"
    for path, known in _KEYS.items():
        inner = config
        for key in path:
            inner = inner[key]
        for key, value in inner.items():
            if value and key not in known:
                where = ".".join((*path, key))
                found = f"a NodeConfig has no {where}: nodeadm refuses it, and no node joins"
                yield found, choices(key, known)
    strategy = config["spec"]["instance"]["localStorage"]["strategy"]
    if strategy and strategy.raw not in _DISKS:
        found = f"localStorage.strategy is {strategy.raw!r}: nodeadm refuses it, and no node joins"
        yield found, f"write {' or '.join(_DISKS)}"
