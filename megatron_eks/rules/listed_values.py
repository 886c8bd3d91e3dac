"""Rules over values that a service lists, and over combinations that it refuses."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, choices
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text

_ANY = "*"
# SNS API, Subscribe, Protocol.
_PROTOCOLS = (
    *("application", "email", "email-json", "firehose", "http", "https", "lambda", "sms", "sqs"),
)


class _Listed(NamedTuple):
    type: str
    path: tuple[str, ...]
    """From the properties; `*` is every element of a list."""
    values: tuple[str, ...]


# CodeBuild API, ProjectEnvironment, CloudWatchLogsConfig, S3LogsConfig, ProjectCache, ProjectSource
# and WebhookFilter; read 2026-11.
_OF_BUILDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("Environment", "Type"),
        (
            *("ARM_CONTAINER", "ARM_EC2", "ARM_LAMBDA_CONTAINER", "LINUX_CONTAINER", "LINUX_EC2"),
            *("LINUX_GPU_CONTAINER", "LINUX_LAMBDA_CONTAINER", "MAC_ARM", "WINDOWS_CONTAINER"),
            *("WINDOWS_EC2", "WINDOWS_SERVER_2019_CONTAINER", "WINDOWS_SERVER_2022_CONTAINER"),
        ),
    ),
    (("LogsConfig", "CloudWatchLogs", "Status"), ("DISABLED", "ENABLED")),
    (("LogsConfig", "S3Logs", "Status"), ("DISABLED", "ENABLED")),
    (("Cache", "Type"), ("LOCAL", "NO_CACHE", "S3")),
    (
        ("Cache", "Modes", _ANY),
        ("LOCAL_CUSTOM_CACHE", "LOCAL_DOCKER_LAYER_CACHE", "LOCAL_SOURCE_CACHE"),
    ),
    (
        ("Source", "Type"),
        (
            *("BITBUCKET", "CODECOMMIT", "CODEPIPELINE", "GITHUB", "GITHUB_ENTERPRISE", "GITLAB"),
            *("GITLAB_SELF_MANAGED", "NO_SOURCE", "S3"),
        ),
    ),
    (
        ("Triggers", "FilterGroups", _ANY, _ANY, "Type"),
        (
            *("ACTOR_ACCOUNT_ID", "BASE_REF", "COMMIT_MESSAGE", "EVENT", "FILE_PATH", "HEAD_REF"),
            *("ORGANIZATION_NAME", "RELEASE_NAME", "REPOSITORY_NAME", "TAG_NAME", "WORKFLOW_NAME"),
        ),
    ),
)
# EKS API and User Guide; FSx API, CreateFileSystem; ECR API, CreateRepository; EC2 API,
# CreatePlacementGroup and CreateVpcEndpoint; read 2026-11.
_TABLE = (
    _Listed("AWS::EKS::Nodegroup", ("CapacityType",), ("CAPACITY_BLOCK", "ON_DEMAND", "SPOT")),
    _Listed(
        "AWS::EKS::Nodegroup",
        ("Taints", _ANY, "Effect"),
        ("NO_EXECUTE", "NO_SCHEDULE", "PREFER_NO_SCHEDULE"),
    ),
    _Listed(
        "AWS::EKS::Cluster",
        ("Logging", "ClusterLogging", "EnabledTypes", _ANY, "Type"),
        ("api", "audit", "authenticator", "controllerManager", "scheduler"),
    ),
    _Listed("AWS::EKS::Cluster", ("EncryptionConfig", _ANY, "Resources", _ANY), ("secrets",)),
    _Listed(
        "AWS::EKS::Cluster",
        ("AccessConfig", "AuthenticationMode"),
        ("API", "API_AND_CONFIG_MAP", "CONFIG_MAP"),
    ),
    _Listed("AWS::EKS::Addon", ("ResolveConflicts",), ("NONE", "OVERWRITE", "PRESERVE")),
    _Listed(
        "AWS::EKS::AccessEntry",
        ("Type",),
        (
            *("EC2", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "HYBRID_LINUX"),
            *("HYPERPOD_LINUX", "STANDARD"),
        ),
    ),
    _Listed(
        "AWS::EKS::AccessEntry",
        ("AccessPolicies", _ANY, "AccessScope", "Type"),
        ("cluster", "namespace"),
    ),
    _Listed("AWS::FSx::FileSystem", ("FileSystemType",), ("LUSTRE", "ONTAP", "OPENZFS", "WINDOWS")),
    _Listed(
        "AWS::ECR::Repository",
        ("ImageTagMutability",),
        ("IMMUTABLE", "IMMUTABLE_WITH_EXCLUSION", "MUTABLE", "MUTABLE_WITH_EXCLUSION"),
    ),
    _Listed("AWS::SNS::Subscription", ("Protocol",), _PROTOCOLS),
    _Listed("AWS::SNS::Topic", ("Subscription", _ANY, "Protocol"), _PROTOCOLS),
    _Listed(
        "AWS::Budgets::Budget",
        ("Budget", "TimeUnit"),
        ("ANNUALLY", "CUSTOM", "DAILY", "MONTHLY", "QUARTERLY"),
    ),
    _Listed(
        "AWS::Budgets::Budget",
        ("NotificationsWithSubscribers", _ANY, "Notification", "NotificationType"),
        ("ACTUAL", "FORECASTED"),
    ),
    _Listed(
        "AWS::Budgets::Budget",
        ("NotificationsWithSubscribers", _ANY, "Notification", "ComparisonOperator"),
        ("EQUAL_TO", "GREATER_THAN", "LESS_THAN"),
    ),
    _Listed(
        "AWS::CodeBuild::Project",
        ("Environment", "EnvironmentVariables", _ANY, "Type"),
        ("PARAMETER_STORE", "PLAINTEXT", "SECRETS_MANAGER"),
    ),
    *(_Listed("AWS::CodeBuild::Project", path, values) for path, values in _OF_BUILDS),
    _Listed("AWS::EC2::EIP", ("Domain",), ("standard", "vpc")),
    _Listed(
        "AWS::CloudWatch::Alarm",
        ("TreatMissingData",),
        ("breaching", "ignore", "missing", "notBreaching"),
    ),
    _Listed(
        "AWS::CloudWatch::Alarm",
        ("Statistic",),
        ("Average", "Maximum", "Minimum", "SampleCount", "Sum"),
    ),
    _Listed("AWS::EC2::PlacementGroup", ("Strategy",), ("cluster", "partition", "spread")),
    _Listed(
        "AWS::EC2::VPCEndpoint",
        ("VpcEndpointType",),
        ("Gateway", "GatewayLoadBalancer", "Interface", "Resource", "ServiceNetwork"),
    ),
)
_TARGETS = (
    *("GatewayId", "NatGatewayId", "TransitGatewayId", "VpcPeeringConnectionId"),
    *("NetworkInterfaceId", "VpcEndpointId", "EgressOnlyInternetGatewayId"),
)
# Two properties of which a resource takes one.
_EITHER: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("AWS::EKS::Nodegroup", ("UpdateConfig",), ("MaxUnavailable", "MaxUnavailablePercentage")),
    ("AWS::EKS::Nodegroup", ("LaunchTemplate",), ("Id", "Name")),
    (
        "AWS::EKS::Nodegroup",
        ("NodeRepairConfig",),
        ("MaxUnhealthyNodeThresholdCount", "MaxUnhealthyNodeThresholdPercentage"),
    ),
    (
        "AWS::EKS::Nodegroup",
        ("NodeRepairConfig",),
        ("MaxParallelNodesRepairedCount", "MaxParallelNodesRepairedPercentage"),
    ),
    # EC2 API, CreateRoute, CreateSubnet and CapacityReservationTarget.
    *(("AWS::EC2::Route", (), pair) for pair in combinations(_TARGETS, 2)),
    ("AWS::EC2::Subnet", (), ("AvailabilityZone", "AvailabilityZoneId")),
    (
        "AWS::EC2::LaunchTemplate",
        (
            *("LaunchTemplateData", "CapacityReservationSpecification"),
            "CapacityReservationTarget",
        ),
        ("CapacityReservationId", "CapacityReservationResourceGroupArn"),
    ),
)
# EKS API, CreateNodegroup: keys with these are refused; values as Kubernetes has them.
_RESERVED_LABEL = re.compile(r"(^|\.)(kubernetes\.io|k8s\.io|eks\.amazonaws\.com)/")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_LABEL_FORM = "use up to 63 letters, digits, '-', '_' and '.'"


def listed(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a value that the service does not list, with the one that was meant.

    EKS, FSx, ECR and EC2 API references, as cited at the table.
    """
    for entry in _TABLE:
        for resource in templates.resources(entry.type):
            for path, value in _at(dict(resource.properties), entry.path, ()):
                name = text(value)
                if name is not None and name not in entry.values:
                    found = f"{shown(name)} is unknown to {entry.type.split('::')[1]}"
                    remedy = choices(name, entry.values)
                    yield resource.find(Code.UNKNOWN_VALUE, path, found, remedy)


def _at(value: Json, path: tuple[str, ...], so_far: Path) -> Iterator[tuple[Path, Json]]:
    if not path:
        yield so_far, value
    elif path[0] == _ANY:
        for index, each in enumerate(items(value) or []):
            yield from _at(each, path[1:], (*so_far, index))
    elif not is_absent(inner := (mapping(value) or {}).get(path[0])):
        yield from _at(inner, path[1:], (*so_far, path[0]))


def one_of_two(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse two properties of which EKS or EC2 takes one.

    EKS API, NodegroupUpdateConfig and LaunchTemplateSpecification; EC2 API, CreateRoute,
    CreateSubnet and CapacityReservationTarget.
    """
    for kind, path, names in _EITHER:
        for resource in templates.resources(kind):
            for _, value in _at(dict(resource.properties), path, ()):
                body = mapping(value) or {}
                if not any(is_absent(body.get(name)) for name in names):
                    who = "EKS refuses the node group" if "::EKS::" in kind else "EC2 refuses it"
                    found = f"{' and '.join(names)} together: {who}"
                    yield resource.find(Code.UNKNOWN_VALUE, path, found, "keep one of them")


def labels(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse labels and taints of a node group that EKS keeps for itself, or cannot hold.

    EKS User Guide, "Create a managed node group"; Kubernetes, "Labels and Selectors".
    """
    for group in templates.resources("AWS::EKS::Nodegroup"):
        for key, value in (mapping(group.properties.get("Labels")) or {}).items():
            if said := refused_label(key, text(value)):
                yield group.find(Code.UNKNOWN_VALUE, ("Labels", key), *said)
        for index, each in enumerate(items(group.properties.get("Taints")) or []):
            value = text((mapping(each) or {}).get("Value"))
            # EKS API, Taint: unlike a label's the value may be empty.
            if value and not is_placeholder(value) and not _LABEL_VALUE.fullmatch(value):
                found = f"{shown(value)} is no value of a taint"
                path = ("Taints", index, "Value")
                yield group.find(Code.UNKNOWN_VALUE, path, found, _LABEL_FORM)


def refused_label(key: str, value: str | None) -> tuple[str, str] | None:
    """Say what EKS refuses in a label of a node group, and the remedy.

    EKS API Reference, CreateNodegroup: unlike Kubernetes' own a value has one character or more.
    """
    if _RESERVED_LABEL.search(key):
        found = f"label {shown(key)} belongs to Kubernetes or EKS, which refuses it"
        return found, "use a key of your own"
    if value == "":
        return "no value, and EKS refuses the node group", 'give the label one, such as "true"'
    if value is not None and not _LABEL_VALUE.fullmatch(value):
        return f"{shown(value)} is no value of a label", _LABEL_FORM
    return None
