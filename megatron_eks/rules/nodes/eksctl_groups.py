"""Rules over groups of eksctl's files: fields that exclude each other, scripts, zones, the API."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.node_configs import read_config
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_MANAGED = "managedNodeGroups"
_TARGET = "capacityReservationTarget"
_AL2023 = "AmazonLinux2023"
_OVERRIDE = "overrideBootstrapCommand"
_SCRIPT = re.compile(r"/etc/eks/bootstrap\.sh")
_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9][a-z]")
_OF_AWS = re.compile(r"arn:aws[a-z-]*:iam::aws:policy/.+")
_WORKER = "AmazonEKSWorkerNode"
_NAME = re.compile(r"[a-zA-Z][-a-zA-Z0-9]*")
_AGENT = "eks-pod-identity-agent"
_ALL_ADDONS = "autoApplyPodIdentityAssociations"
_ANYWHERE = "0.0.0.0/0"
# eksctl, pkg/apis/eksctl.io/v1alpha5/validation.go, ValidateManagedNodeGroup.
_OF_TEMPLATES = (
    *("ami", "disablePodIMDS", "instanceName", "instancePrefix", "instanceType", "maxPodsPerNode"),
    *("overrideBootstrapCommand", "placement", "preBootstrapCommands", "volumeSize"),
)


def groups(manifest: Manifest) -> Iterator[Finding]:
    """Refuse in groups what excludes each other, zones without subnets, and a script that is not.

    eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/validation.go, and pkg/vpc/vpc.go,
    SelectNodeGroupSubnets; EKS User Guide, "Upgrade from Amazon Linux 2 to Amazon Linux 2023".
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    private = (mapping(manifest.body.get("privateCluster")) or {}).get("enabled")
    for key in (_MANAGED, "nodeGroups"):
        for index, value in enumerate(items(manifest.body.get(key)) or []):
            group, path = mapping(value) or {}, (key, index)
            if key == _MANAGED:
                yield from _excluded(manifest, path, group)
            yield from _policies(manifest, path, group)
            if private is True and group.get("privateNetworking") is not True:
                found = "nodes in public subnets of a private cluster: eksctl refuses the file"
                place = (*path, "privateNetworking")
                yield _found(manifest, place, found, "write privateNetworking: true")
            yield from _placed(manifest, path, group)
            yield from _scripts(manifest, path, group)
            yield from _zones(manifest, path, group)


def _found(
    manifest: Manifest, path: Path, found: str, remedy: str, level: Level = Level.ERROR
) -> Finding:
    return manifest.find(Code.EKSCTL, path, found, remedy, level)


def _excluded(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    if not is_absent(group.get("instanceType")) and items(group.get("instanceTypes")):
        found = "instanceType and instanceTypes: eksctl takes one of the two"
        yield _found(manifest, (*path, "instanceTypes"), found, "remove instanceType")
    if is_absent(group.get("launchTemplate")):
        return
    for key in _OF_TEMPLATES:
        if not is_absent(group.get(key)):
            found = f"{key} beside launchTemplate: eksctl refuses the file"
            yield _found(manifest, (*path, key), found, "move it into the launch template")


def _policies(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    """Find policies that take the place of those that nodes join with.

    eksctl, "IAM policies", and pkg/cfn/builder/iam_helper.go, makeManagedPolicies.
    """
    iam = mapping(group.get("iam")) or {}
    listed = [text(each) or "" for each in items(iam.get("attachPolicyARNs")) or []]
    # What is in a policy of one's own nobody knows; nor in a role that exists.
    of_aws = all(_OF_AWS.fullmatch(each) for each in listed)
    if listed and of_aws and not any(_WORKER in each for each in listed):
        found = "attachPolicyARNs takes the place of eksctl's own policies, and has no "
        found += f"{_WORKER}Policy: no node joins"
        remedy = "add arn:aws:iam::aws:policy/ with AmazonEKSWorkerNodePolicy, "
        remedy += "AmazonEKS_CNI_Policy and AmazonEC2ContainerRegistryPullOnly"
        yield _found(manifest, (*path, "iam", "attachPolicyARNs"), found, remedy)


def _placed(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    """Find a placement group beside a reservation.

    EC2 User Guide, "Work with Capacity Reservations in cluster placement groups", and
    eksctl-io/eksctl, issue 7949: with one made outside the group, 11 of 16 nodes came up.
    """
    target = mapping((mapping(group.get("capacityReservation")) or {}).get(_TARGET)) or {}
    placement = mapping(group.get("placement")) or {}
    if any(not is_absent(each) for each in target.values()) and not is_absent(
        placement.get("groupName")
    ):
        found = "a placement group with a reservation that may have been made outside it"
        remedy = "remove it, unless the reservation was made in this group"
        yield _found(manifest, (*path, "placement"), found, remedy, Level.WARNING)


def _scripts(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    """Find Amazon Linux 2's script in a group of Amazon Linux 2023.

    eksctl-io/eksctl, pkg/nodebootstrap/al2023.go, stringToNodeConfig: overrideBootstrapCommand is
    read as a NodeConfig, whatever the AMI is, and a text that is no mapping ends the command.
    """
    if group.get("amiFamily") != _AL2023:
        return
    own = not is_absent(group.get("ami"))
    for key in ("overrideBootstrapCommand", "preBootstrapCommands"):
        value = group.get(key)
        lines = [text(each) or "" for each in (value if isinstance(value, list) else [value])]
        # Of an AMI of one's own nobody knows what is on it.
        if key == _OVERRIDE and own and any(_SCRIPT.search(line) for line in lines):
            if read_config(lines[0]) is None:
                found = "a script, and for AmazonLinux2023, which has no /etc/eks/bootstrap.sh, "
                found += "eksctl reads a NodeConfig here: it refuses the file"
                remedy = "remove it: eksctl writes the NodeConfig; or write what to add to that one"
                yield _found(manifest, (*path, key), found, remedy)
        elif not own and any(_SCRIPT.search(line) for line in lines):
            found = f"/etc/eks/bootstrap.sh, which {_AL2023} does not have: no node joins"
            remedy = "remove it: eksctl writes the NodeConfig that nodes join with"
            yield _found(manifest, (*path, key), found, remedy)


def _zones(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    """Find a zone in which the cluster, as far as the file says, has no subnet."""
    there = _zones_of(manifest, private=group.get("privateNetworking") is True)
    for index, value in enumerate(items(group.get("availabilityZones")) or []):
        zone = text(value) or ""
        # One of another region is said already.
        same = any(each[:-1] == zone[:-1] for each in there)
        if there and same and zone not in there:
            found = (
                f"{shown(zone)}, where the cluster of this file has no subnet: eksctl refuses it"
            )
            remedy = f"write one of {', '.join(there)}, or add the zone to the cluster"
            yield _found(manifest, (*path, "availabilityZones", index), found, remedy)


def _zones_of(manifest: Manifest, *, private: bool) -> list[str]:
    """Return the zones with subnets; none where one of them is not written out."""
    subnets = (mapping(manifest.body.get("vpc")) or {}).get("subnets")
    if is_absent(subnets):
        listed = items(manifest.body.get("availabilityZones")) or []
        zones = [text(each) or "" for each in listed]
    else:
        kind = (mapping(subnets) or {}).get("private" if private else "public")
        given = kind.items() if isinstance(kind, dict) else ()
        zones = [text((mapping(each) or {}).get("az")) or key for key, each in given]
    return zones if all(_ZONE.fullmatch(each) for each in zones) else []


def clusters(manifest: Manifest) -> Iterator[Finding]:
    """Require a name that a stack can have, and zones for the control plane.

    eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5: the name is part of the stacks' names; EKS User
    Guide, "VPC and subnet requirements": subnets in two zones.
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    name = text((mapping(manifest.body.get("metadata")) or {}).get("name"))
    if name is not None and not _NAME.fullmatch(name) and not is_placeholder(name):
        found = f"{shown(name)} cannot be part of a stack's name: eksctl refuses the file"
        remedy = "use letters, digits and hyphens, after a letter"
        yield _found(manifest, ("metadata", "name"), found, remedy)
    yield from _agent(manifest)
    listed = items(manifest.body.get("availabilityZones")) or []
    if len(listed) == 1 and not is_placeholder(text(listed[0]) or ""):
        found = "one zone, and the control plane needs subnets in two: eksctl refuses the file"
        remedy = "name a second zone here, and the nodes' own one in their group"
        yield _found(manifest, ("availabilityZones",), found, remedy)


def _agent(manifest: Manifest) -> Iterator[Finding]:
    """Find pod identities without the add-on that hands them out; Auto Mode brings it along."""
    iam = mapping(manifest.body.get("iam")) or {}
    listed = items(manifest.body.get("addons"))
    names = {text((mapping(each) or {}).get("name")) for each in listed or []}
    automatic = (mapping(manifest.body.get("autoModeConfig")) or {}).get("enabled")
    known = listed is not None and None not in names and is_absent(automatic)
    if items(iam.get("podIdentityAssociations")) and known and _AGENT not in names:
        found = f"no add-on {_AGENT}: eksctl makes no association without it"
        place = ("iam", "podIdentityAssociations")
        yield _found(manifest, place, found, f"add name: {_AGENT} to addons")
    config = mapping(manifest.body.get("addonsConfig")) or {}
    if config.get(_ALL_ADDONS) is True and listed and known and _AGENT not in names:
        # eksctl, pkg/ctl/cmdutils/configfile.go, shallCreatePodIdentityAssociations.
        found = f"no add-on {_AGENT}, and every add-on is to get its role by it: eksctl refuses "
        found += "the file"
        path: Path = ("addonsConfig", _ALL_ADDONS)
        yield _found(manifest, path, found, f"add name: {_AGENT} to addons")
        return
    for index, value in enumerate(listed or []):
        own = (mapping(value) or {}).get("podIdentityAssociations")
        if items(own) and known and _AGENT not in names:
            # eksctl, "EKS Add-ons support for Pod Identity Associations": the agent comes first.
            found = f"a pod identity without the add-on {_AGENT}, which hands the role to the pods"
            path = ("addons", index, "podIdentityAssociations")
            remedy = f"add name: {_AGENT} to addons"
            yield _found(manifest, path, found, remedy, Level.WARNING)


def endpoints(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an API that only some addresses reach, among which nodes are hardly.

    EKS User Guide, "Cluster API server endpoint"; eksctl, "Cluster access": privateAccess is false
    by default, and publicAccessCIDRs hold for nodes as well.
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    vpc = mapping(manifest.body.get("vpc")) or {}
    ends = mapping(vpc.get("clusterEndpoints")) or {}
    ranges = [text(each) or "" for each in items(vpc.get("publicAccessCIDRs")) or []]
    known = ranges and _ANYWHERE not in ranges and not any(map(is_placeholder, ranges))
    private = (mapping(manifest.body.get("privateCluster")) or {}).get("enabled")
    off = is_absent(ends.get("privateAccess")) or ends.get("privateAccess") is False
    place: Path = ("vpc", "clusterEndpoints")
    if ends.get("publicAccess") is False and off and private is not True:
        found = "neither public nor private access: nobody reaches the API, and eksctl refuses it"
        yield _found(manifest, place, found, "write privateAccess: true, or publicAccess: true")
    elif known and off and is_absent(private):
        found = "no private access, and nodes are hardly in publicAccessCIDRs: they do not join"
        path: Path = ("vpc", "clusterEndpoints", "privateAccess")
        yield _found(manifest, path, found, "set it to true", Level.WARNING)
