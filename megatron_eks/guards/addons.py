"""Guards of the add-ons: which there are, their order, versions, settings and roles."""

import json
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.pins import ADDONS, EFS_ADDON
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.templates import Templates, constants, template_guard
from megatron_eks.guards.values import Row, Value, report

_SETTINGS = Code.ADDON_SETTINGS
_KNOWN = {each.name: each for each in (*ADDONS, EFS_ADDON)}
_BEFORE_NODES = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
_REPLACED: Row = ("ResolveConflicts", ("OVERWRITE", "PRESERVE"), "EKS's own default is refused")
_POLICIES: Row = ("enableNetworkPolicy", ("true",), "every pod reaches every other")
_LINKS = "PodIdentityAssociations"
_UNBOUND = "bound to no service account: its pods get no credentials"
_DEGRADED = "it waits for no nodes without taints: it is DEGRADED, and the stack fails"
_NEEDED = {
    "vpc-cni": "nodes stay NotReady",
    "kube-proxy": "no Service is reached",
    "coredns": "no name is resolved, so no rank finds its master",
    "eks-pod-identity-agent": "pods get no AWS credentials",
    "aws-ebs-csi-driver": "claims of EBS volumes stay Pending",
    "aws-fsx-csi-driver": "pods that mount Lustre stay in ContainerCreating",
    "metrics-server": "`kubectl top` and autoscaling know nothing",
    "eks-node-monitoring-agent": "nodes with a broken GPU are not repaired",
}


@template_guard
def addons(templates: Templates) -> Iterator[Finding]:
    """All add-ons, in versions tried together and in order (terraform-aws-eks issue 3446)."""
    listed = {each["AddonName"].text: each for each in templates.of("EKS::Addon")}
    yield from constants([*listed.values()], _SETTINGS, [_REPLACED], Level.WARNING)
    for name, addon in listed.items():
        known, links, config = _KNOWN.get(name), addon[_LINKS], addon["ConfigurationValues"]
        values = Value(json_of(config), config.place, config.path)
        yield from values.must_hold(_SETTINGS, [_POLICIES] if name == "vpc-cni" else [])
        close = [] if known else get_close_matches(name, _KNOWN, 1, 0.8)
        rows = (close, addon["AddonName"], f"EKS has no add-on {name!r}", f"did you mean {close}?")
        yield from report(Code.ADDON_NAME, rows)
        if not known:
            continue
        version, account = addon["AddonVersion"], known.service_account
        pinned = known.versions.values() or [version.raw]
        yield from version.must_be(_SETTINGS, *pinned, why="this release was tried with another")
        none = account and account not in [each["ServiceAccount"].text for each in links]
        found = f"no role for {account}: AWS refuses what {name} asks for"
        yield from report(_SETTINGS, (none, links, found, "add it with the ARN of its role"))
    first = {listed[name].name: name for name in _BEFORE_NODES if name in listed}
    groups = templates.of("EKS::Nodegroup")
    for depends in (each.body["DependsOn"] for each in groups):
        for name in sorted(first.keys() - set(depends.texts)):
            found = f"nodes do not wait for {first[name]}: they stay NotReady, and the stack fails"
            yield depends.finding(Code.START_ORDER, found, f"add {name!r}")
    free = {each.name for each in groups if not list(each["Taints"])}
    for addon in [each for each in listed.values() if free and each.name not in first]:
        depends, remedy = addon.body["DependsOn"], f"set it to one of {sorted(free)}"
        row = (not free & {*depends.texts}, depends, _DEGRADED, remedy)
        yield from report(Code.START_ORDER, row)
    for cluster in templates.of("EKS::Cluster"):
        for name in (each for each in _NEEDED if each not in listed):
            found, remedy = f"no add-on {name}: {_NEEDED[name]}", f"add an AWS::EKS::Addon {name}"
            yield cluster.properties.finding(_SETTINGS, found, remedy)


@template_guard
def pod_identity(templates: Templates) -> Iterator[Finding]:
    """Roles for pods are bound to an account (EKS, "Assign an IAM role to a service account")."""
    for role in templates.of("IAM::Role") if templates.of("EKS::Cluster") else ():
        for_pods = "pods.eks.amazonaws.com" in str(role["AssumeRolePolicyDocument"].raw)
        free = for_pods and not any("::EKS::" in user.type for user in templates.users(role))
        remedy = "add an AWS::EKS::PodIdentityAssociation, or name it in its add-on"
        yield from report(Code.ROLE_TRUST, (free, role.properties, _UNBOUND, remedy))


def json_of(value: Value) -> Json:
    """Return what a text of JSON holds; nothing for a text that is none."""
    try:
        read: Json = json.loads(value.text)
    except ValueError:
        return None
    return read
