"""Rules over properties that a service takes alone, but not beside another one."""

import json
import re
from collections.abc import Iterator

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.security_groups import ALL, GROUP, protocol_of
from megatron_eks.rules.launch_templates import DATA, launch_templates
from megatron_eks.rules.lustre import file_systems
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_given,
    items,
    mapping,
    number,
    shown,
    text,
    truth,
)

_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_MOST_DAYS = 90
_FEWEST_DAYS_OF_IA = 30
_OF_VERSIONS = (
    *("NoncurrentVersionExpiration", "NoncurrentVersionExpirationInDays"),
    *("NoncurrentVersionTransition", "NoncurrentVersionTransitions"),
)
_INFREQUENT = frozenset({"STANDARD_IA", "ONEZONE_IA"})
_LAUNCHED = ("instance", "volume", "network-interface", "spot-instances-request")
# Where tags are: what may have them there, and what is to be said of anything else.
_TAGGED: tuple[tuple[Path, tuple[str, ...], str, str], ...] = (
    (
        (),
        ("launch-template",),
        "only the launch template itself is tagged here",
        f"write launch-template, or move tags of instances into {DATA}",
    ),
    (
        (DATA,),
        (*_LAUNCHED, "elastic-gpu"),
        "only what is launched is tagged here",
        f"write {' or '.join(_LAUNCHED)}, or move tags of the template out of {DATA}",
    ),
)


def of_lustre(templates: TemplateSet) -> Iterator[Finding]:
    """Require settings of a file system that FSx takes together.

    FSx API, CreateFileSystemLustreConfiguration and
    CreateFileSystemLustreMetadataConfiguration: each of them ends the creation.
    """
    for system in file_systems(templates):
        settings, place = system.settings, "LustreConfiguration"
        cache = settings.get("DriveCacheType")
        if not is_absent(cache) and system.storage == "SSD":
            found = "DriveCacheType is for HDD, and this file system has SSD"
            yield system.wrong((place, "DriveCacheType"), found, "remove it")
        metadata = mapping(settings.get("MetadataConfiguration")) or {}
        mode, iops = text(metadata.get("Mode")), metadata.get("Iops")
        path = (place, "MetadataConfiguration", "Iops")
        if mode == "AUTOMATIC" and not is_absent(iops):
            yield system.wrong(path, "Iops beside Mode AUTOMATIC", "remove it, or the mode")
        elif mode == "USER_PROVISIONED" and is_absent(iops):
            yield system.wrong(path, "Mode USER_PROVISIONED without Iops", "add Iops, such as 1500")
        days = number(settings.get("AutomaticBackupRetentionDays"))
        if days is not None and not 0 <= days <= _MOST_DAYS:
            where = (place, "AutomaticBackupRetentionDays")
            yield system.wrong(where, f"{days} days", f"write 0 to {_MOST_DAYS}")
        start = text(settings.get("DailyAutomaticBackupStartTime"))
        where = (place, "DailyAutomaticBackupStartTime")
        if start is not None and not _TIME.fullmatch(start):
            yield system.wrong(where, f"{shown(start)} is no time of a day", "write it as 05:00")
        elif start is not None and days == 0:
            yield system.wrong(where, "a time of backups, which are off", "remove it")
        elif start is not None and is_absent(settings.get("AutomaticBackupRetentionDays")):
            found = "a time of backups, which Lustre has none of by default"
            remedy = "add AutomaticBackupRetentionDays, or remove it"
            resource = system.resource
            yield resource.find(Code.LUSTRE_SETTINGS, where, found, remedy, Level.WARNING)


def of_groups(templates: TemplateSet) -> Iterator[Finding]:
    """Require names and ports of security groups that mean what they say.

    EC2 API, CreateSecurityGroup and AuthorizeSecurityGroupIngress: with protocol -1 no port is
    looked at.
    """
    for group in templates.resources(GROUP):
        name = text(group.properties.get("GroupName"))
        if name is not None and name.startswith("sg-"):
            found = f"{shown(name)}: a name cannot start with sg-"
            yield group.find(Code.GROUP_RULE, ("GroupName",), found, "take another name")
        for key in ("SecurityGroupIngress", "SecurityGroupEgress"):
            for index, value in enumerate(items(group.properties.get(key)) or []):
                yield from _all_ports(group, (key, index), mapping(value) or {})
    for rule in templates.resources(f"{GROUP}Ingress", f"{GROUP}Egress"):
        yield from _all_ports(rule, (), dict(rule.properties))


def of_gateways(templates: TemplateSet) -> Iterator[Finding]:
    """Require of NAT gateways, flow logs and placement groups what EC2 takes together.

    EC2 API, CreateNatGateway, CreateFlowLogs and CreatePlacementGroup.
    """
    for gateway in templates.resources("AWS::EC2::NatGateway"):
        private = gateway.properties.get("ConnectivityType") == "private"
        if private and not is_absent(gateway.properties.get("AllocationId")):
            found = "an address beside ConnectivityType private: EC2 refuses the gateway"
            remedy = "remove ConnectivityType, for nodes need the way out"
            yield gateway.find(Code.NETWORK_PART, ("ConnectivityType",), found, remedy)
        absent = is_absent(gateway.properties.get("AllocationId"))
        modes = (gateway.properties.get(each) for each in ("ConnectivityType", "AvailabilityMode"))
        # One for a whole region takes addresses by itself.
        if absent and all(is_absent(mode) or mode in {"public", "zonal"} for mode in modes):
            found = "a public NAT gateway without an address: EC2 refuses it"
            remedy = "add an AWS::EC2::EIP, and name it here: !GetAtt EIP.AllocationId"
            yield gateway.find(Code.NETWORK_PART, ("AllocationId",), found, remedy)
    for log in templates.resources("AWS::EC2::FlowLog"):
        seconds = number(log.properties.get("MaxAggregationInterval"))
        if seconds is not None and seconds not in {60, 600}:
            found = f"{seconds} seconds, and EC2 takes 60 or 600"
            yield log.find(Code.UNKNOWN_VALUE, ("MaxAggregationInterval",), found, "write 60")
    for group in templates.resources("AWS::EC2::PlacementGroup"):
        strategy = text(group.properties.get("Strategy"))
        for key, kind in (("PartitionCount", "partition"), ("SpreadLevel", "spread")):
            if strategy not in {None, kind} and not is_absent(group.properties.get(key)):
                found = f"{key} beside Strategy {strategy}: EC2 refuses the group"
                yield group.find(Code.PLACEMENT, (key,), found, "remove it")


def _all_ports(resource: Resource, path: Path, body: "dict[str, Json]") -> Iterator[Finding]:
    first, last = number(body.get("FromPort")), number(body.get("ToPort"))
    protocol = protocol_of(body.get("IpProtocol"))
    ports = [each for each in (first, last) if each not in {None, 0, -1, 65535}]
    if protocol == ALL and ports:
        found = f"port {ports[0]} beside protocol -1: every port of every protocol is open"
        remedy = "write tcp, or remove the ports"
        yield resource.find(Code.GROUP_RULE, (*path, "IpProtocol"), found, remedy, Level.WARNING)


def of_zones(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a launch template's zone that it is the one of the node group's subnet.

    EC2 API, Placement.AvailabilityZone; EKS User Guide, "Customize managed nodes with launch
    templates": the subnets are those of the node group.
    """
    for template in launch_templates(templates):
        placement = mapping(template.data.get("Placement")) or {}
        zone = text(placement.get("AvailabilityZone"))
        for group in template.node_groups if zone else ():
            listed = items(group.properties.get("Subnets")) or []
            subnets = templates.targets(listed, group.file)
            zones = [text(each.properties.get("AvailabilityZone")) for each in subnets if each]
            if zones and len(zones) == len(listed) and None not in zones and zone not in zones:
                found = f"{zone}, and the subnets of {group.id} are in {', '.join(map(str, zones))}"
                path = (DATA, "Placement", "AvailabilityZone")
                yield template.resource.find(Code.PLACEMENT, path, found, "remove it")


def of_tags(templates: TemplateSet) -> Iterator[Finding]:
    """Require tags of a launch template itself outside its data, and of what it launches in them.

    CloudFormation Template Reference, AWS::EC2::LaunchTemplate TagSpecification and
    LaunchTemplateTagSpecification, ResourceType:
    https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-properties-ec2-launchtemplate-tagspecification.html
    """
    for template in launch_templates(templates):
        bodies = (template.resource.properties, template.data)
        for (place, allowed, why, remedy), body in zip(_TAGGED, bodies, strict=True):
            for index, value in enumerate(items(body.get("TagSpecifications")) or []):
                kind = text((mapping(value) or {}).get("ResourceType"))
                yield from _twice(template.resource, (*place, "TagSpecifications", index), value)
                if kind is not None and kind not in allowed:
                    found = f"{shown(kind)}: {why}, and EC2 refuses the rest"
                    path = (*place, "TagSpecifications", index, "ResourceType")
                    yield template.resource.find(Code.UNKNOWN_VALUE, path, found, remedy)


def _twice(resource: Resource, path: Path, value: Json) -> Iterator[Finding]:
    """Find a tag that is given twice (EC2: Duplicate tag key specified)."""
    seen: set[str] = set()
    for index, each in enumerate(items((mapping(value) or {}).get("Tags")) or []):
        key = text((mapping(each) or {}).get("Key"))
        if key is not None and key in seen:
            found = f"a second tag {shown(key)}: AWS refuses it"
            yield resource.find(Code.TWICE, (*path, "Tags", index), found, "keep one of the two")
        seen.add(key or "")


def of_clusters(templates: TemplateSet) -> Iterator[Finding]:
    """Require of clusters and add-ons settings that EKS can read, and takes together.

    EKS API, KubernetesNetworkConfigRequest, CreateAddon.configurationValues and
    CreateAccessEntry.principalArn.
    """
    for cluster in templates.resources("AWS::EKS::Cluster"):
        config = mapping(cluster.properties.get("KubernetesNetworkConfig")) or {}
        if config.get("IpFamily") == "ipv6" and not is_absent(config.get("ServiceIpv4Cidr")):
            found = "a range of IPv4 for Services of an IPv6 cluster: EKS refuses it"
            path = ("KubernetesNetworkConfig", "ServiceIpv4Cidr")
            yield cluster.find(Code.CLUSTER_CONTROL, path, found, "remove it")
    for addon in templates.resources("AWS::EKS::Addon"):
        written = text(addon.properties.get("ConfigurationValues"))
        known = written is not None and "${" not in written and not written.startswith("{")
        if written is not None and known and not _is_readable(written):
            found = "neither JSON nor YAML with keys: EKS refuses the add-on"
            remedy = "write one object, in JSON"
            yield addon.find(Code.ADDON_SETTINGS, ("ConfigurationValues",), found, remedy)
    for entry in templates.resources("AWS::EKS::AccessEntry"):
        principal = text(entry.properties.get("PrincipalArn"))
        if principal is not None and "*" in principal:
            found = f"{shown(principal)}: an entry is for one role or user"
            remedy = "name one role, and let people take it"
            yield entry.find(Code.ACCESS_ENTRY, ("PrincipalArn",), found, remedy)


def _is_readable(written: str) -> bool:
    try:
        value = json.loads(written)
    except ValueError:
        try:
            value = yaml.safe_load(written)
        except yaml.YAMLError:
            return False
    return isinstance(value, dict)


def of_buckets(templates: TemplateSet) -> Iterator[Finding]:
    """Require of buckets what S3 takes together.

    S3 API, PutBucketEncryption, PutBucketLifecycleConfiguration and DefaultRetention; S3 User
    Guide, "Transitioning objects using Amazon S3 Lifecycle".
    """
    for bucket in templates.resources("AWS::S3::Bucket"):
        encryption = mapping(bucket.properties.get("BucketEncryption")) or {}
        rules = items(encryption.get("ServerSideEncryptionConfiguration")) or []
        for index, value in enumerate(rules):
            default = mapping((mapping(value) or {}).get("ServerSideEncryptionByDefault")) or {}
            key = is_given(default.get("KMSMasterKeyID"))
            if key and default.get("SSEAlgorithm") == "AES256":
                found = "a key of KMS beside AES256: S3 refuses the bucket"
                place = ("BucketEncryption", "ServerSideEncryptionConfiguration", index)
                remedy = "write SSEAlgorithm: aws:kms"
                yield bucket.find(Code.ENCRYPTION, place, found, remedy)
        lock = mapping(bucket.properties.get("ObjectLockConfiguration")) or {}
        kept = mapping((mapping(lock.get("Rule")) or {}).get("DefaultRetention")) or {}
        if is_given(kept.get("Days")) and is_given(kept.get("Years")):
            found = "Days beside Years: S3 refuses the bucket"
            path = ("ObjectLockConfiguration", "Rule", "DefaultRetention", "Years")
            yield bucket.find(Code.EXPIRES, path, found, "remove one of the two")
        cycle = mapping(bucket.properties.get("LifecycleConfiguration")) or {}
        for index, value in enumerate(items(cycle.get("Rules")) or []):
            rule = mapping(value) or {}
            single = is_absent(bucket.properties.get("VersioningConfiguration"))
            if single and any(is_given(rule.get(key)) for key in _OF_VERSIONS):
                found = "a rule for former versions, of which a bucket without versioning has none"
                place = ("LifecycleConfiguration", "Rules", index)
                remedy = "add VersioningConfiguration with Status Enabled, or remove the rule"
                yield bucket.find(Code.EXPIRES, place, found, remedy, Level.WARNING)
            if truth(rule.get("Status") == "Disabled") is not True:
                yield from _moves(bucket, ("LifecycleConfiguration", "Rules", index), rule)


def _moves(bucket: Resource, path: Path, rule: "dict[str, Json]") -> Iterator[Finding]:
    expires = number(rule.get("ExpirationInDays"))
    for index, value in enumerate(items(rule.get("Transitions")) or []):
        body = mapping(value) or {}
        days, where = number(body.get("TransitionInDays")), (*path, "Transitions", index)
        if days is not None and expires is not None and days >= expires:
            found = f"moved after {days} days, and deleted after {expires}: S3 refuses the rule"
            yield bucket.find(Code.EXPIRES, where, found, "move objects before they expire")
        early = days is not None and days < _FEWEST_DAYS_OF_IA
        if early and text(body.get("StorageClass")) in _INFREQUENT:
            found = f"{body['StorageClass']} after {days} days: S3 refuses the rule"
            yield bucket.find(Code.EXPIRES, where, found, f"use {_FEWEST_DAYS_OF_IA} or more")
