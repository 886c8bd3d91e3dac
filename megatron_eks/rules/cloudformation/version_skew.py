"""Rules over versions of a cluster's parts that must fit the cluster's own."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.own_nodes import scaled
from megatron_eks.rules.clusters import OLDEST_MINOR
from megatron_eks.rules.launch_templates import launch_template_of
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_placeholder, mapping, shown, text, written

_MINOR = re.compile(r"v?1\.([0-9]{1,2})(?:[.-].*)?")
_RELEASE = re.compile(r"1\.[0-9]{2}\.[0-9]{1,2}-20[0-9]{6}")
_OF_AMAZON_LINUX = ("AL2_", "AL2023_")
_OLDER = 3
_MOVING = ("$Default", "$Latest")
_OF_MANAGED: Path = ("LaunchTemplate", "Version")
_OF_SCALED: tuple[Path, ...] = (
    ("LaunchTemplate", "Version"),
    ("MixedInstancesPolicy", "LaunchTemplate", "LaunchTemplateSpecification", "Version"),
)


def versions(templates: TemplateSet) -> Iterator[Finding]:
    """Require kube-proxy and nodes no newer than their cluster, and at most three minors older.

    Kubernetes, "Version Skew Policy"; EKS API, CreateNodegroup.version and releaseVersion, whose
    first three parts are those of one Kubernetes version.
    """
    for addon in templates.resources("AWS::EKS::Addon"):
        if addon.properties.get("AddonName") == "kube-proxy":
            yield from _fits(templates, addon, "AddonVersion", "kube-proxy")
    for group in templates.resources("AWS::EKS::Nodegroup"):
        own = _minor(templates.default(group.properties.get("Version"), group.file))
        yield from _fits(templates, group, "Version", "nodes")
        of_its_own = (text(group.properties.get("AmiType")) or "").startswith("BOTTLEROCKET_")
        # Bottlerocket counts its releases by itself: 1.48.0-1c0ba4e2.
        release = None if of_its_own else _minor(group.properties.get("ReleaseVersion"))
        yield from _form(group)
        if release is not None and own is not None and release != own:
            found = f"{shown(group.properties['ReleaseVersion'])}, and Version is 1.{own}"
            remedy = f"name a release of 1.{own}, or none"
            yield group.find(Code.VERSION_SKEW, ("ReleaseVersion",), found, remedy)
        elif own is None and release is not None:
            yield from _fits(templates, group, "ReleaseVersion", "nodes")
            yield from _release(templates, group, release)


def unpinned(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a cluster without a version whose nodes have one.

    EKS API, CreateCluster.version: without it the cluster has EKS's default of that day.
    """
    for group in templates.resources("AWS::EKS::Nodegroup"):
        cluster = templates.target(group.properties.get("ClusterName"), group.file)
        own = _minor(group.properties.get("Version"))
        if own is not None and cluster is not None and is_absent(cluster.properties.get("Version")):
            found = f"no version, so EKS's default of that day, and {group.id} has nodes of 1.{own}"
            remedy = f'write Version: "1.{own}"'
            yield cluster.find(Code.VERSION_SKEW, ("Version",), found, remedy, Level.WARNING)
            return


def _form(group: Resource) -> Iterator[Finding]:
    """Refuse a release that is not written as those of the group's AMI are.

    EKS User Guide, "Retrieve Amazon Linux AMI version information": 1.35.8-20260930.
    """
    given = text(group.properties.get("ReleaseVersion"))
    amazon = (text(group.properties.get("AmiType")) or "").startswith(_OF_AMAZON_LINUX)
    if given and amazon and not is_placeholder(given) and not _RELEASE.fullmatch(given):
        found = f"{shown(given)} is no release of an Amazon Linux AMI: EKS refuses the node group"
        remedy = "write it as VERSION-DATE, such as 1.35.8-20260930, or leave it out"
        yield group.find(Code.VERSION_SKEW, ("ReleaseVersion",), found, remedy)


def _release(templates: TemplateSet, group: Resource, release: int | None) -> Iterator[Finding]:
    """Warn of a release of an older version, where a new group has the version of its cluster."""
    cluster = templates.target(group.properties.get("ClusterName"), group.file)
    given = cluster.properties.get("Version") if cluster is not None else None
    its = _minor(templates.default(given, group.file if cluster is None else cluster.file))
    own = is_absent(group.properties.get("Version"))
    if own and release is not None and its is not None and its - _OLDER <= release < its:
        found = f"{shown(group.properties['ReleaseVersion'])}, and without Version a new group has "
        found += f"the cluster's 1.{its}: EKS has no such release of it"
        remedy = f'name a release of 1.{its}, or write Version: "1.{release}"'
        yield group.find(Code.VERSION_SKEW, ("ReleaseVersion",), found, remedy, Level.WARNING)


def _fits(templates: TemplateSet, part: Resource, key: str, what: str) -> Iterator[Finding]:
    cluster = templates.target(part.properties.get("ClusterName"), part.file)
    mine = _minor(templates.default(part.properties.get(key), part.file))
    of_cluster = cluster.properties.get("Version") if cluster is not None else None
    its = _minor(templates.default(of_cluster, cluster.file)) if cluster is not None else None
    # What EKS runs no more, or was never a version, is a finding of its own.
    refused = (key == "Version" and mine is not None and mine < OLDEST_MINOR) or (
        its is not None and its < OLDEST_MINOR
    )
    if mine is None or its is None or refused or its - _OLDER <= mine <= its:
        return
    how = "newer" if mine > its else f"more than {_OLDER} versions older"
    found = f"{what} of 1.{mine}, {how} than the cluster's 1.{its}"
    yield part.find(Code.VERSION_SKEW, (key,), found, f"use 1.{its}")


def _minor(value: Json) -> int | None:
    # YAML makes a number of 1.34 without quotes.
    number = isinstance(value, float) and not isinstance(value, bool)
    match = _MINOR.fullmatch(str(value) if number else text(value) or "")
    return int(match[1]) if match else None


def followed(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of nodes that do not follow the launch template beside them.

    EKS API, LaunchTemplateSpecification: without a version it is the default one, which stays the
    first, since CloudFormation makes new versions and no other default; it updates a node group
    only when the version's text changes. AWS::AutoScaling::AutoScalingGroup, Version: "$Latest" and
    "$Default" are not supported.
    """
    for group in templates.resources("AWS::EKS::Nodegroup"):
        used = mapping(group.properties.get("LaunchTemplate")) or {}
        target = launch_template_of(group, templates)
        version = used.get("Version")
        given = "no version" if is_absent(version) else _said(version)
        if target is not None and given is not None:
            yield _left_behind(group, target, _OF_MANAGED, given)
    for nodes in scaled(templates):
        for path in _OF_SCALED:
            value: Json = dict(nodes.group.properties)
            for key in path:
                value = (mapping(value) or {}).get(str(key))
            given = _said(value)
            if given is not None:
                yield _left_behind(nodes.group, nodes.template, path, given)


def _said(version: Json) -> str | None:
    """Return a version that does not change with its template; None for all others."""
    attribute = written(version) if isinstance(version, dict) else None
    if attribute is not None and attribute.endswith(".DefaultVersionNumber}"):
        return "DefaultVersionNumber, which stays 1"
    return shown(version) if version in _MOVING else None


def _left_behind(group: Resource, template: Resource, path: Path, given: str) -> Finding:
    found = f"{given}: a change of {template.id} reaches no node of this group"
    if given == shown("$Latest") and group.type != "AWS::EKS::Nodegroup":
        # New instances do take it; the running ones are not replaced, whatever UpdatePolicy says.
        found = f"{given}, which CloudFormation does not support here: no update replaces nodes"
    remedy = f"write Fn::GetAtt [{template.id}, LatestVersionNumber]"
    return group.find(Code.MANAGED_NODES, path, found, remedy, Level.WARNING)
