"""Rules over what eksctl's cluster files say of the cluster: ranges, keys, logs, and who may in."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Network

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path, choices
from megatron_eks.config.load import Json
from megatron_eks.config.model import RESERVATION
from megatron_eks.config.spellings import of_value
from megatron_eks.rules.node_configs import faults_of_config, read_config
from megatron_eks.rules.node_groups import TYPE_NAME
from megatron_eks.rules.nodes.eksctl import REGION
from megatron_eks.rules.user_data_parts import nodeadm_parts
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    number,
    shown,
    text,
)
from megatron_eks.rules.workloads import Manifest

# eksctl, pkg/apis/eksctl.io/v1alpha5/cloudwatch.go, LogRetentionInDaysValues.
_RETENTIONS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653)
# eksctl, "VPC configuration": the range of a VPC that eksctl makes, where none is named.
_DEFAULT_RANGE = "192.168.0.0/16"
_KEY = re.compile(r"arn:aws[a-z-]*:kms:(?P<region>[a-z]{2}(-[a-z]+)+-[0-9]):")
_MODES = ("API", "API_AND_CONFIG_MAP", "CONFIG_MAP")
_API_VERSION = "node.eks.aws/v1alpha1"


def clusters(manifest: Manifest) -> Iterator[Finding]:
    """Require ranges, keys and log settings that EKS and eksctl take, and rights that are read.

    EKS API, KubernetesNetworkConfigRequest and EncryptionConfig; EKS User Guide, "Change
    authentication mode": in mode API nobody reads aws-auth, where iamIdentityMappings go; eksctl,
    pkg/apis/eksctl.io/v1alpha5/validation.go, validateCloudWatchLogging.
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    body = manifest.body
    logging = mapping((mapping(body.get("cloudWatch")) or {}).get("clusterLogging")) or {}
    days = number(logging.get("logRetentionInDays"))
    place: Path = ("cloudWatch", "clusterLogging", "logRetentionInDays")
    # 0 is what eksctl takes for nothing said.
    if days and days not in _RETENTIONS:
        found = f"{days} days: eksctl refuses the file"
        near = min(_RETENTIONS, key=lambda each: abs(each - days))
        yield manifest.find(Code.EKSCTL, place, found, f"write {near}; it takes no others near")
    mode = (mapping(body.get("accessConfig")) or {}).get("authenticationMode")
    name = text(mode)
    if name is not None and name not in _MODES and not is_placeholder(name):
        place = ("accessConfig", "authenticationMode")
        found = f"{shown(name)} is no mode of EKS: it refuses the cluster"
        plain = {each.replace("_", ""): f"write {each}" for each in _MODES}
        remedy = plain.get(re.sub("[^A-Z]", "", name.upper())) or choices(name, _MODES)
        yield manifest.find(Code.EKSCTL, place, found, remedy)
    if mode == "API" and items(body.get("iamIdentityMappings")):
        found = "they go to aws-auth, which nobody reads with authenticationMode: API: no access"
        remedy = "write accessConfig.accessEntries, or API_AND_CONFIG_MAP"
        yield manifest.find(Code.EKSCTL, ("iamIdentityMappings",), found, remedy, Level.WARNING)
    yield from _places(manifest)
    yield from _ranges(manifest)
    yield from _zones(manifest)


def _zones(manifest: Manifest) -> Iterator[Finding]:
    """Refuse zones beside subnets: eksctl, pkg/ctl/cmdutils/configfile.go, on `create cluster`."""
    subnets = mapping((mapping(manifest.body.get("vpc")) or {}).get("subnets")) or {}
    given = any(mapping(subnets.get(key)) for key in ("private", "public"))
    if given and items(manifest.body.get("availabilityZones")):
        found = "zones beside vpc.subnets, which are in theirs: eksctl refuses the file"
        yield manifest.find(Code.EKSCTL, ("availabilityZones",), found, "remove them")


def _places(manifest: Manifest) -> Iterator[Finding]:
    body = manifest.body
    region = text((mapping(body.get("metadata")) or {}).get("region")) or ""
    if region and not REGION.fullmatch(region) and not is_placeholder(region):
        found = f"{shown(region)} is no region of AWS"
        remedy = "write it like us-east-2"
        yield manifest.find(Code.EKSCTL, ("metadata", "region"), found, remedy)
        return
    key = _KEY.match(text((mapping(body.get("secretsEncryption")) or {}).get("keyARN")) or "")
    if key is not None and region and "$" not in region and key["region"] != region:
        found = f"a key of {key['region']}, and the cluster is in {region}: EKS refuses it"
        remedy = f"name a key of {region}"
        yield manifest.find(Code.EKSCTL, ("secretsEncryption", "keyARN"), found, remedy)


def _ranges(manifest: Manifest) -> Iterator[Finding]:
    vpc = mapping(manifest.body.get("vpc")) or {}
    own = text(vpc.get("cidr"))
    if own is None and is_absent(vpc.get("id")) and is_absent(vpc.get("subnets")):
        own = _DEFAULT_RANGE
    config = mapping(manifest.body.get("kubernetesNetworkConfig")) or {}
    services = text(config.get("serviceIPv4CIDR"))
    try:
        overlap = IPv4Network(own or "").overlaps(IPv4Network(services or ""))
    except ValueError:
        return
    if overlap:
        found = f"{services} for Services, and the VPC has {own}: EKS refuses the cluster"
        path: Path = ("kubernetesNetworkConfig", "serviceIPv4CIDR")
        yield manifest.find(Code.EKSCTL, path, found, "write 172.20.0.0/16, or another range")


def groups(manifest: Manifest) -> Iterator[Finding]:
    """Require NodeConfigs that nodeadm reads, and one type for what a reservation holds.

    eksctl, "Node bootstrapping": for Amazon Linux 2023 overrideBootstrapCommand is a NodeConfig;
    amazon-eks-ami, nodeadm, "API"; EC2 User Guide, "Capacity Reservations": a reservation is for
    one instance type.
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    for key in ("managedNodeGroups", "nodeGroups"):
        for index, value in enumerate(items(manifest.body.get(key)) or []):
            group, path = mapping(value) or {}, (key, index)
            yield from _configs(manifest, (*path, "overrideBootstrapCommand"), group)
            yield from _forms(manifest, path, group)
            reservation = mapping(group.get("capacityReservation")) or {}
            target = mapping(reservation.get("capacityReservationTarget")) or {}
            types = {text(each) for each in items(group.get("instanceTypes")) or []}
            if len(types) > 1 and not is_absent(target.get("capacityReservationID")):
                found = f"{len(types)} types, and a reservation is of one: instances of the others "
                found += "find no room in it"
                remedy = "name the type of the reservation alone, as instanceType"
                place = (*path, "instanceTypes")
                yield manifest.find(Code.EKSCTL, place, found, remedy, Level.WARNING)


def _forms(manifest: Manifest, path: Path, group: "dict[str, Json]") -> Iterator[Finding]:
    """Find names of types, reservations and roles in a form that EC2 and IAM do not have."""
    listed: list[tuple[Path, Json]] = [(("instanceType",), group.get("instanceType"))]
    for index, each in enumerate(items(group.get("instanceTypes")) or []):
        listed.append((("instanceTypes", index), each))
    for place, value in listed:
        name = text(value)
        known = name is None or name == "mixed" or is_placeholder(name)
        if not known and not TYPE_NAME.fullmatch(name or ""):
            found = f"{shown(name)} is no instance type"
            # SageMaker's names.
            meant = (name or "").removeprefix("ml.")
            remedy = f"write {meant if TYPE_NAME.fullmatch(meant) else 'it like p4d.24xlarge'}"
            yield manifest.find(Code.EKSCTL, (*path, *place), found, remedy)
    reservation = mapping(group.get("capacityReservation")) or {}
    target = mapping(reservation.get("capacityReservationTarget")) or {}
    said = text(target.get("capacityReservationID"))
    if said is not None and not is_placeholder(said) and not re.search(RESERVATION, said):
        where = (*path, "capacityReservation", "capacityReservationTarget", "capacityReservationID")
        remedy = of_value(said, RESERVATION) or "write cr- and 17 hexadecimal digits"
        found = f"{shown(said)} is no capacity reservation: EC2 refuses the nodes"
        yield manifest.find(Code.EKSCTL, where, found, remedy)
    iam = mapping(group.get("iam")) or {}
    for key, kind in (("instanceRoleARN", ":role/"), ("instanceProfileARN", ":instance-profile/")):
        arn = text(iam.get(key))
        if arn is not None and not is_placeholder(arn) and kind not in arn:
            found = f"{shown(arn)} is no {kind.strip(':/').replace('-', ' ')}: the group is refused"
            remedy = f"write arn:aws:iam::ACCOUNT{kind}NAME"
            yield manifest.find(Code.EKSCTL, (*path, "iam", key), found, remedy)
    if path[0] == "managedNodeGroups" and number(group.get("maxSize")) == 0:
        found = "maxSize 0, and EKS takes 1 or more: the group is refused"
        remedy = "write 1 or more; desiredCapacity may be 0"
        yield manifest.find(Code.EKSCTL, (*path, "maxSize"), found, remedy)


def _configs(manifest: Manifest, path: Path, group: "dict[str, Json]") -> Iterator[Finding]:
    for part in nodeadm_parts(text(group.get("overrideBootstrapCommand")) or ""):
        config = read_config(part)
        if config is None:
            found = "a NodeConfig that is no YAML: the node does not start"
            remedy = "correct it: one mapping, with spaces before nested keys"
            yield manifest.find(Code.EKSCTL, path, found, remedy)
            continue
        version = text(config.get("apiVersion"))
        if version is not None and version != _API_VERSION and "$" not in version:
            found = f"nodeadm knows no {version}, so the node does not start"
            yield manifest.find(Code.EKSCTL, path, found, f"write apiVersion: {_API_VERSION}")
        for found, remedy in faults_of_config(mapping(config.get("spec")) or {}):
            yield manifest.find(Code.EKSCTL, path, found, remedy)
