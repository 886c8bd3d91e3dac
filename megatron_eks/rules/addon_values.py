"""Rule over the values in an add-on's settings, which EKS compares with the add-on's schema."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import NamedTuple

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_absent, is_placeholder, number, shown, text

_CLOSE = 0.85
_CNI = "vpc-cni"
_WARM, _LEAST = "WARM_IP_TARGET", "MINIMUM_IP_TARGET"
_PREFIXES, _DELEGATION = "WARM_PREFIX_TARGET", "ENABLE_PREFIX_DELEGATION"
# amazon-vpc-cni-k8s, README, "CNI Configuration Variables".
_VARIABLES = frozenset(
    {
        *("ADDITIONAL_ENI_TAGS", "ANNOTATE_POD_IP", "AWS_EC2_ENDPOINT", "AWS_VPC_ENI_MTU"),
        *("AWS_EXTERNAL_SERVICE_CIDRS", "AWS_MANAGE_ENIS_NON_SCHEDULABLE", "CLUSTER_ENDPOINT"),
        *("AWS_VPC_CNI_NODE_PORT_SUPPORT", "AWS_VPC_K8S_CNI_CONFIGURE_RPFILTER", "CLUSTER_NAME"),
        *("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS"),
        *("AWS_VPC_K8S_CNI_EXTERNALSNAT", "AWS_VPC_K8S_CNI_LOGLEVEL", "AWS_VPC_K8S_CNI_LOG_FILE"),
        *("AWS_VPC_K8S_CNI_RANDOMIZESNAT", "AWS_VPC_K8S_CNI_VETHPREFIX", "DISABLE_METRICS"),
        *("AWS_VPC_K8S_PLUGIN_LOG_FILE", "AWS_VPC_K8S_PLUGIN_LOG_LEVEL", "DISABLE_INTROSPECTION"),
        *("DISABLE_LEAKED_ENI_CLEANUP", "DISABLE_NETWORK_RESOURCE_PROVISIONING", "DISABLE_POD_V6"),
        *("DISABLE_TCP_EARLY_DEMUX", "ENABLE_BANDWIDTH_PLUGIN", "ENABLE_IMDS_ONLY_MODE", "MAX_ENI"),
        *("ENABLE_IPv4", "ENABLE_IPv6", "ENABLE_MULTI_NIC", "ENABLE_NFTABLES", "ENABLE_POD_ENI"),
        *("ENABLE_PREFIX_DELEGATION", "ENABLE_SUBNET_DISCOVERY", "ENABLE_V4_EGRESS", "POD_MTU"),
        *("ENABLE_V6_EGRESS", "ENI_CONFIG_ANNOTATION_DEF", "ENI_CONFIG_LABEL_DEF"),
        *("HOST_CNI_BIN_PATH", "HOST_CNI_CONFDIR_PATH", "INTROSPECTION_BIND_ADDRESS"),
        *("IP_COOLDOWN_PERIOD", "MINIMUM_IP_TARGET", "NETWORK_POLICY_ENFORCING_MODE"),
        *("POD_SECURITY_GROUP_ENFORCING_MODE", "WARM_ENI_TARGET", "WARM_IP_TARGET"),
        "WARM_PREFIX_TARGET",
    }
)
# EKS API, DescribeAddonConfiguration: what the schemas take where; `*` is every key.
# amazon-vpc-cni-k8s issue 3059, terraform-aws-eks issues 2427 and 2785.
_KINDS: dict[str, dict[tuple[str, ...], str]] = {
    _CNI: {("env", "*"): "text", ("init", "env", "*"): "text", ("enableNetworkPolicy",): "text"},
    "coredns": {
        ("replicaCount",): "whole",
        ("corefile",): "text",
        ("autoScaling", "enabled"): "truth",
        ("autoScaling", "minReplicas"): "whole",
        ("autoScaling", "maxReplicas"): "whole",
    },
    "aws-ebs-csi-driver": {
        ("controller", "extraVolumeTags", "*"): "text",
        ("node", "tolerateAllTaints"): "truth",
        ("node", "volumeAttachLimit"): "whole",
    },
    "aws-mountpoint-s3-csi-driver": {("node", "tolerateAllTaints"): "truth"},
}


# The schema's own names for its parts, which people take for keys: issues 2491 of
# amazon-vpc-cni-k8s, 2667 and 2878 of terraform-aws-eks.
_DEFINITIONS = {
    "Env": '{"env": ...}',
    "Init": '{"init": {"env": ...}}',
    "InitEnv": '{"init": {"env": ...}}',
    "VpcCni": 'what is under its properties at the top: {"enableNetworkPolicy": "true"}',
}
_OF_INIT = "DISABLE_TCP_EARLY_DEMUX"
_OTHER_WORDS = frozenset({"enviroment", "environment", "envs", "envvars", "extraenv", "variables"})


class Fault(NamedTuple):
    """What is wrong with the settings of an add-on, and what to write."""

    found: str
    remedy: str
    works: bool = False
    """Whether the add-on is made nevertheless."""


def values(templates: TemplateSet) -> Iterator[Finding]:
    """Require values of the kinds, and variables of the names, that an add-on's schema has.

    EKS API, CreateAddon.configurationValues: "Json schema validation failed", and the stack is
    rolled back.
    """
    path: Path = ("ConfigurationValues",)
    for addon in templates.resources("AWS::EKS::Addon"):
        name = text(templates.default(addon.properties.get("AddonName"), addon.file)) or ""
        for fault in faults(name, text(addon.properties.get("ConfigurationValues"))):
            if fault.works:
                said = (fault.found, fault.remedy, Level.WARNING)
                yield addon.find(Code.PLATFORM_PART, path, *said)
            else:
                yield addon.find(Code.ADDON_SETTINGS, path, fault.found, fault.remedy)


def faults(name: str, configuration: str | None) -> Iterator[Fault]:
    """Return what is wrong with the settings of an add-on, as far as they are written out."""
    settings = _settings(configuration or "")
    for path, kind in _KINDS.get(name, {}).items():
        for place, value in _at(settings, path):
            wrong = _wrong(value, kind)
            if wrong is not None:
                found = f"{'.'.join(place)}: {shown(value)}, and the add-on's schema takes "
                yield Fault(f"{found}{wrong[0]}: EKS refuses it", wrong[1])
    if name == _CNI:
        yield from _keys(settings)
        yield from _variables(settings)


def _keys(settings: "dict[str, Json]") -> Iterator[Fault]:
    for key in settings:
        if key in _VARIABLES:
            yield Fault(f"{key} beside env: EKS refuses it", f'write {{"env": {{"{key}": ...}}}}')
        elif key in _DEFINITIONS:
            found = f"{key}, which is how the schema calls a part and no key: EKS refuses it"
            yield Fault(found, f"write {_DEFINITIONS[key]}")
        elif key.lower() in _OTHER_WORDS:
            found = f"the VPC CNI has no setting {shown(key)}: EKS refuses it"
            yield Fault(found, 'write {"env": ...}')


def _variables(settings: "dict[str, Json]") -> Iterator[Fault]:
    given = {place[-1]: value for place, value in _at(settings, ("env", "*"))}
    for key in given:
        close = get_close_matches(key, _VARIABLES, 1, _CLOSE)
        if key == _OF_INIT:
            found = f"{key} in env, and it is the init container's: EKS refuses it"
            yield Fault(found, f'write {{"init": {{"env": {{"{key}": ...}}}}}}')
        elif close and key not in _VARIABLES:
            found = f"the VPC CNI has no variable {shown(key)}: EKS refuses it"
            yield Fault(found, f"did you mean {close[0]}?")
    least, warm = number(given.get(_LEAST)), given.get(_WARM)
    if least and (is_absent(warm) or number(warm) == 0):
        # aws/amazon-vpc-cni-k8s, README, MINIMUM_IP_TARGET: no more addresses are allocated then.
        found = f"{_LEAST} {least} without {_WARM} above 0: the pod after the first {least} of a "
        found += "node gets no address"
        yield Fault(found, f'add "{_WARM}": "2" to env', works=True)
    if number(given.get(_PREFIXES)) and is_absent(given.get(_DELEGATION)):
        # The same README, WARM_PREFIX_TARGET: it is read with prefix delegation alone.
        found = f"{_PREFIXES} without {_DELEGATION}: nothing reads it, and nodes get single "
        found += "addresses"
        yield Fault(found, f'add "{_DELEGATION}": "true" to env', works=True)


def _settings(written: str) -> "dict[str, Json]":
    """Return an add-on's settings; none where they are not written out."""
    try:
        value = yaml.safe_load(written) if not is_placeholder(written) else None
    except yaml.YAMLError:
        value = None
    return {str(key): each for key, each in value.items()} if isinstance(value, dict) else {}


def _at(value: Json, path: "tuple[str, ...]") -> "Iterator[tuple[tuple[str, ...], Json]]":
    """Return each value that a path leads to, with its own path."""
    if not path:
        yield (), value
    elif isinstance(value, dict):
        for key in [*value] if path[0] == "*" else [path[0]] if path[0] in value else []:
            for rest, each in _at(value[key], path[1:]):
                yield (str(key), *rest), each


def _wrong(value: Json, kind: str) -> tuple[str, str] | None:
    """Say what is taken, and what to write, where a value is of another kind."""
    if kind == "text" and isinstance(value, bool | int | float):
        said = str(value).lower() if isinstance(value, bool) else str(value)
        return "a text", f'write "{said}" in quotes'
    if kind == "whole" and isinstance(value, str):
        return "a number", "write it without quotes"
    if kind == "truth" and not isinstance(value, bool) and value is not None:
        return "true or false", "write true or false without quotes"
    return None
