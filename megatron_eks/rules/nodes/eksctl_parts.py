"""Rules over parts of eksctl's groups and accounts: disks, subnets, names and policies."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import policy_name, unknown_policy
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

_API = "eksctl.io/v1alpha5"
_MANAGED = "managedNodeGroups"
_GROUPS = (_MANAGED, "nodeGroups")
_NAME = re.compile(r"[a-zA-Z0-9-]+")
# eksctl, pkg/apis/eksctl.io/v1alpha5/validation.go, validateVolumeOpts.
_IOPS = {"gp3": (3000, 16000), "io1": (100, 64000), "io2": (100, 256000)}
_RATE = (125, 1000)
# The same file, ValidateClusterConfig: one of these gives an account's role its rights.
_RIGHTS = ("attachPolicy", "attachPolicyARNs", "attachRoleARN", "roleARN", "wellKnownPolicies")
# EC2 User Guide, "Elastic Fabric Adapter", supported instance types: no size of these families.
_WITHOUT_EFA = re.compile(
    r"(a1|t[234][ag]?|m4|m5(a|d|ad)?|m6gd?|c4|c5(a|d|ad)?|c6gd?|r4|r5(a|b|d|ad)?|r6gd?|i3|p2|g3s?)"
    r"\.[0-9a-z-]+"
)


def versions(manifest: Manifest) -> Iterator[Finding]:
    """Require the one version of its API that eksctl reads.

    eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/register.go.
    """
    said = text(manifest.body.get("apiVersion")) or ""
    if _is_file(manifest) and said != _API and not is_placeholder(said):
        found = f"eksctl reads no {shown(said)}: it refuses the file"
        yield _found(manifest, ("apiVersion",), found, f"write apiVersion: {_API}")


def parts(manifest: Manifest) -> Iterator[Finding]:
    """Require of groups and service accounts what eksctl checks before it makes anything.

    eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/validation.go: validateNodeGroupBase,
    validateVolumeOpts, validateNodeGroupName and ValidateClusterConfig; on types without EFA
    pkg/cfn/builder/network_interfaces.go.
    """
    if not _is_file(manifest):
        return
    for key in _GROUPS:
        for index, value in enumerate(items(manifest.body.get(key)) or []):
            group, path = mapping(value) or {}, (key, index)
            yield from _disks(manifest, path, group)
            yield from _places(manifest, path, group)
            yield from _named(manifest, path, group)
            yield from _policies(
                manifest, (*path, "iam", "attachPolicyARNs"), mapping(group.get("iam")) or {}
            )
    iam = mapping(manifest.body.get("iam")) or {}
    for index, value in enumerate(items(iam.get("serviceAccounts")) or []):
        account, place = mapping(value) or {}, ("iam", "serviceAccounts", index)
        yield from _policies(manifest, (*place, "attachPolicyARNs"), account)
        rights = [account.get(key) for key in _RIGHTS]
        if account and not any(rights):
            found = "an account without a policy or a role: eksctl refuses the file"
            yield _found(manifest, place, found, "add attachPolicyARNs, or attachRoleARN")


def _is_file(manifest: Manifest) -> bool:
    return (manifest.group, manifest.kind) == ("eksctl.io", "ClusterConfig")


def _found(manifest: Manifest, path: Path, found: str, remedy: str) -> Finding:
    return manifest.find(Code.EKSCTL, path, found, remedy)


def _disks(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    given = group.get("volumeType")
    kind = "gp3" if is_absent(given) else text(given) or ""
    if is_placeholder(kind):
        return
    iops, rate = number(group.get("volumeIOPS")), number(group.get("volumeThroughput"))
    refused = "eksctl refuses the file"
    if iops is not None and kind not in _IOPS:
        found = f"volumeIOPS of {kind}, which has none to choose: {refused}"
        yield _found(manifest, (*path, "volumeIOPS"), found, "write volumeType: gp3, or remove it")
    elif iops is not None and not _IOPS[kind][0] <= iops <= _IOPS[kind][1]:
        least, most = _IOPS[kind]
        found = f"{iops} of {kind}: {refused}"
        yield _found(manifest, (*path, "volumeIOPS"), found, f"write {least} to {most}")
    if rate is not None and kind != "gp3":
        place, found = (*path, "volumeThroughput"), f"volumeThroughput of {kind}: {refused}"
        yield _found(manifest, place, found, "write volumeType: gp3, or remove it")
    elif rate is not None and not _RATE[0] <= rate <= _RATE[1]:
        found = f"{rate} MiB/s: {refused}"
        remedy = f"write {_RATE[0]} to {_RATE[1]}"
        yield _found(manifest, (*path, "volumeThroughput"), found, remedy)
    encrypted = group.get("volumeEncrypted") is True
    if not is_absent(group.get("volumeKmsKeyID")) and not encrypted:
        found = f"volumeKmsKeyID without volumeEncrypted: {refused}"
        yield _found(manifest, (*path, "volumeKmsKeyID"), found, "write volumeEncrypted: true")


def _places(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    """Find zones beside subnets, and types without EFA; others are judged by the catalog."""
    if items(group.get("availabilityZones")) and items(group.get("subnets")):
        found = "availabilityZones and subnets: eksctl takes one of the two"
        remedy = "remove it: the subnet has its zone"
        yield _found(manifest, (*path, "availabilityZones"), found, remedy)
    types = [group.get("instanceType"), *(items(group.get("instanceTypes")) or [])]
    if group.get("efaEnabled") is True:
        for name in filter(None, map(text, types)):
            if _WITHOUT_EFA.fullmatch(name):
                found = f"efaEnabled, and {name} has no EFA: eksctl refuses it"
                yield _found(manifest, (*path, "efaEnabled"), found, "take another type, or false")
    vpc = mapping(manifest.body.get("vpc")) or {}
    given = vpc.get("subnets")
    there = mapping(given) or {}
    asked = group.get("privateNetworking") is True
    which = "private" if asked else "public"
    private = mapping(there.get("private")) or {}
    named = {*private, *(text((mapping(each) or {}).get("id")) for each in private.values())}
    for index, value in enumerate(items(group.get("subnets")) or []):
        if not asked and text(value) in named - {None}:
            # pkg/vpc/vpc.go, selectNodeGroupSubnetsFromIDs.
            found = f"{shown(value)} is private, and the group has no privateNetworking: eksctl "
            found += "refuses the file"
            place = (*path, "subnets", index)
            yield _found(manifest, place, found, "write privateNetworking: true")
    own = is_absent(group.get("subnets")) and is_absent(group.get("launchTemplate"))
    lacking = is_absent(there.get(which)) or there.get(which) == {}
    if there and own and lacking and (asked or there.get("private")):
        said = "privateNetworking: true" if asked else "no privateNetworking"
        found = f"{said}, and vpc.subnets has no {which} ones: eksctl refuses the file"
        remedy = "write them under vpc.subnets.private" if asked else "write it as true"
        yield _found(manifest, (*path, "privateNetworking"), found, remedy)


def _named(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    name = text(group.get("name"))
    if name and not _NAME.fullmatch(name) and not is_placeholder(name):
        found = f"{shown(name)} cannot be part of a stack's name: eksctl refuses the file"
        yield _found(manifest, (*path, "name"), found, "use letters, digits and hyphens")


def _policies(manifest: Manifest, path: Path, body: dict[str, Json]) -> Iterator[Finding]:
    for index, value in enumerate(items(body.get("attachPolicyARNs")) or []):
        name = policy_name(value) if ":aws:policy/" in (text(value) or "") else None
        wrong = unknown_policy(name) if name else None
        if wrong is not None:
            yield _found(manifest, (*path, index), *wrong)
