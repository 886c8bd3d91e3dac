"""What nodeadm reads in a NodeConfig, and what it refuses there."""

import re
from collections.abc import Iterator

import yaml

from megatron_eks.config.errors import choices
from megatron_eks.config.load import Json
from megatron_eks.rules.values import items, mapping, shown, text

# amazon-eks-ami, nodeadm/api/v1alpha1: what a NodeConfig has, and what a node cannot join without.
_OF_CONFIG = ("apiVersion", "kind", "metadata", "spec")
_SPEC = ("cluster", "containerd", "featureGates", "instance", "kubelet")
OF_CLUSTER = ("name", "apiServerEndpoint", "certificateAuthority", "cidr")
_DISKS = ("Mount", "RAID0", "RAID10")
_OF_KUBELET = ("config", "flags", "maxPodsExpression")
# What is put in may be several lines where it stands alone on one.
_LONE = re.compile(r"^[ \t]*-?[ \t]*\$\{[^}]*\}[ \t]*$", re.MULTILINE)
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_KIND = "NodeConfig"


def faults_of_head(read: "list[dict[str, Json]]") -> Iterator[tuple[str, str]]:
    """Say what is wrong beside the specs of NodeConfigs."""
    for key in dict.fromkeys(key for each in read for key in each):
        if key not in _OF_CONFIG and "${" not in str(key):
            found = f"a NodeConfig has no {shown(key)}: nodeadm does not read what is in it"
            yield found, choices(str(key), _OF_CONFIG)
    for said in [text(each.get("kind")) for each in read]:
        if said is not None and said != _KIND and "$" not in said:
            yield f"nodeadm knows no kind {shown(said)}: no node joins", f"write kind: {_KIND}"


def read_config(body: str) -> "dict[str, Json] | None":
    """Return a NodeConfig; None where it is no YAML."""
    try:
        value = yaml.safe_load(body)
    except yaml.YAMLError:
        # What CloudFormation puts in may make it right.
        known = _LONE.search(body) is None and _broken(_REFERENCE.sub("x", body))
        return {} if "${" in body and not known else None
    return value if isinstance(value, dict) else None


def _broken(body: str) -> bool:
    try:
        yaml.safe_load(body)
    except yaml.YAMLError:
        return True
    return False


def faults_of_config(spec: "dict[str, Json]") -> Iterator[tuple[str, str]]:
    """Say what nodeadm does not take in the spec of a NodeConfig, each with what to do."""
    for key in spec:
        if key not in _SPEC and "${" not in key:
            found = f"a NodeConfig has no spec.{key}: nodeadm refuses it"
            yield found, choices(key, _SPEC)
    for key in mapping(spec.get("cluster")) or {}:
        known = (*OF_CLUSTER, "enableOutpost", "id")
        if key not in known and "${" not in key:
            found = f"a NodeConfig has no spec.cluster.{key}: nodeadm refuses it"
            yield found, choices(key, known)
    for key in mapping(spec.get("kubelet")) or {}:
        if key not in _OF_KUBELET and "${" not in key:
            found = f"a NodeConfig has no spec.kubelet.{key}: the kubelet never gets it"
            yield found, f"write it as spec.kubelet.config.{key}"
    yield from _of_disks((mapping(spec.get("instance")) or {}).get("localStorage"))
    before = ""
    for flag in items((mapping(spec.get("kubelet")) or {}).get("flags")) or []:
        if isinstance(flag, str) and not flag.startswith(("-", "$")):
            found = f"{shown(flag)} is no flag of the kubelet, which does not start"
            # What a shell splits in two is one word here.
            alone = before.startswith("--") and "=" not in before
            yield found, f"write {before}={flag}" if alone else f"write --{flag}"
        before = str(flag)


def _of_disks(given: Json) -> Iterator[tuple[str, str]]:
    if isinstance(given, str) and "${" not in given:
        found = f"localStorage {shown(given)}, and nodeadm takes a mapping: the node does not start"
        yield found, f"write localStorage: {{strategy: {given}}}"
    storage = mapping(given) or {}
    strategy = text(storage.get("strategy"))
    if strategy is not None and strategy not in _DISKS and "${" not in strategy:
        found = f"localStorage.strategy {shown(strategy)}: nodeadm refuses it"
        yield found, choices(strategy, _DISKS)
