"""Guards of the add-ons: which there are, their order, versions, settings and roles."""

import json
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.pins import ADDONS, EFS_ADDON
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.templates import Templates, constants, template_guard
from megatron_eks.guards.values import Value

_SETTINGS = Code.ADDON_SETTINGS
_KNOWN = {each.name: each for each in (*ADDONS, EFS_ADDON)}
_BEFORE_NODES = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
_REPLACED = (("ResolveConflicts", ("OVERWRITE", "PRESERVE"), "EKS's own default is refused"),)
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
    """Nodes and pods have what they need, in versions tried together (EKS, "AWS add-ons")."""
    listed = {each["AddonName"].text: each for each in templates.of("EKS::Addon")}
    yield from constants(templates.of("EKS::Addon"), _SETTINGS, _REPLACED, Level.WARNING)
    for name, addon in listed.items():
        known, links = _KNOWN.get(name), addon["PodIdentityAssociations"]
        if not known:
            for close in get_close_matches(name, _KNOWN, 1, 0.8):
                found, remedy = f"EKS has no add-on {name!r}", f"set it to {close!r}"
                yield addon["AddonName"].finding(Code.ADDON_NAME, found, remedy)
            continue
        version, why = addon["AddonVersion"], "this release was tried with another one"
        refused = version.text and "-eksbuild." not in version.text
        level = Level.ERROR if refused else Level.WARNING
        if pinned := known.versions.values():
            yield from version.must_be(_SETTINGS, *pinned, why=why, level=level)
        account = known.service_account
        if account and account not in [each["ServiceAccount"].text for each in links]:
            found = f"no role for {account}: AWS refuses what {name} asks for"
            remedy = f"add ServiceAccount {account!r} with the ARN of its role"
            yield links.finding(_SETTINGS, found, remedy)
    for cluster in templates.of("EKS::Cluster"):
        for name in (each for each in _NEEDED if each not in listed):
            found, remedy = f"no add-on {name}: {_NEEDED[name]}", f"add an AWS::EKS::Addon {name}"
            yield cluster.properties.finding(_SETTINGS, found, remedy)


@template_guard
def order(templates: Templates) -> Iterator[Finding]:
    """Nodes wait for their network, other add-ons for nodes (terraform-aws-eks issue 3446)."""
    groups, listed = templates.of("EKS::Nodegroup"), templates.of("EKS::Addon")
    first = {e.name: e["AddonName"].text for e in listed if e["AddonName"].text in _BEFORE_NODES}
    for depends in (each.body["DependsOn"] for each in groups):
        for name in sorted(first.keys() - set(depends.texts)):
            found = f"nodes do not wait for {first[name]}: they stay NotReady, and the stack fails"
            yield depends.finding(Code.START_ORDER, found, f"add {name!r}")
    free = [each.name for each in groups if not list(each["Taints"])]
    for addon in listed if free else ():
        depends, name = addon.body["DependsOn"], addon["AddonName"].text
        if addon.name not in first and name in _KNOWN and not set(free) & set(depends.texts):
            found = f"{name} waits for no nodes without taints: it is DEGRADED, the stack fails"
            yield depends.finding(Code.START_ORDER, found, f"set it to [{free[0]!r}]")


@template_guard
def network_plugin(templates: Templates) -> Iterator[Finding]:
    """Network policies hold, and addresses suffice (VPC CNI, README; decision 61)."""
    for addon in (e for e in templates.of("EKS::Addon") if e["AddonName"].text == "vpc-cni"):
        written = addon["ConfigurationValues"]
        values = Value(json_of(written), written.place, written.path)
        policies, why = values["enableNetworkPolicy"], "every pod reaches every other"
        yield from policies.must_be(_SETTINGS, "true", why=why)
        for value in (values["env"]["MINIMUM_IP_TARGET"], values["env"]["WARM_IP_TARGET"]):
            if not value:
                found = f"no {value.name}: nodes keep more addresses than subnets have"
                yield value.finding(_SETTINGS, found, f"add {value.name}: '4'")


@template_guard
def pod_identity(templates: Templates) -> Iterator[Finding]:
    """Roles for pods are bound to an account (EKS, "Assign an IAM role to a service account")."""
    kinds = {"AWS::EKS::PodIdentityAssociation", "AWS::EKS::Addon"}
    for role in templates.of("IAM::Role") if templates.of("EKS::Cluster") else ():
        bound = any(user.type in kinds for user in templates.users(role))
        if "pods.eks.amazonaws.com" in str(role["AssumeRolePolicyDocument"].raw) and not bound:
            found = "bound to no service account: its pods get no credentials"
            remedy = "add an AWS::EKS::PodIdentityAssociation, or name it in its add-on"
            yield role.properties.finding(Code.ROLE_TRUST, found, remedy)


def json_of(value: Value) -> Json:
    """Return what a text of JSON holds; nothing for a text that is none."""
    try:
        read: Json = json.loads(value.text)
    except ValueError:
        return None
    return read
