"""Guards of the control plane and its add-ons: endpoint, settings, logs, who gets in, order."""

from collections.abc import Iterator

from megatron_eks.catalog.pins import ADDONS, EFS_ADDON
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.network import is_wide, rules
from megatron_eks.guards.templates import Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Row, report

_LOGS = "a log of api, audit, authenticator, controllerManager or scheduler is missing"
_MUST: tuple[Row, ...] = (
    ("ResourcesVpcConfig EndpointPrivateAccess", (YES,), "nodes do not reach it, and never join"),
    ("AccessConfig AuthenticationMode", ("API", "API_AND_CONFIG_MAP"), "nobody gets in"),
    ("ResourcesVpcConfig SubnetIds 1", (), "EKS refuses subnets of one zone"),
)
_CREATOR = "AccessConfig BootstrapClusterCreatorAdminPermissions"
_SHOULD: tuple[Row, ...] = (
    (_CREATOR, (NO,), "whoever creates the cluster stays its administrator, unseen"),
    ("DeletionProtection", (YES,), "one wrong command deletes the cluster under its jobs"),
    ("UpgradePolicy SupportType", ("STANDARD",), "extended support costs six times as much"),
    ("Logging ClusterLogging EnabledTypes 4 Type", (), _LOGS),
    ("EncryptionConfig 0 Provider KeyArn", (), "Secrets have no key of this account"),
    ("EncryptionConfig 0 Resources 0", ("secrets",), "Secrets have no key of this account"),
)
_HTTPS = 443
_RANGES = "list the ranges of an office or a VPN"
_SHUT = "only nodes reach the private endpoint: its group admits nobody else"
_ADMIT = "admit tcp 443 from the VPC to ClusterSecurityGroupId, or set EndpointPublicAccess"
_SETTINGS = Code.ADDON_SETTINGS
_KNOWN = {each.name: each for each in (*ADDONS, EFS_ADDON)}
_BEFORE_NODES = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
_REPLACED: Row = ("ResolveConflicts", ("OVERWRITE", "PRESERVE"), "EKS's own default is refused")
_POLICIES: Row = ("enableNetworkPolicy", ("true",), "every pod reaches every other")
_LINKS = "PodIdentityAssociations"
_DEGRADED = "it waits for no nodes without taints: it is DEGRADED, and the stack fails"
_MISSED = "nodes stay NotReady or broken, or pods lack names, credentials or volumes"


@template_guard
def control(templates: Templates) -> Iterator[Finding]:
    """Nodes and people reach it, and nobody else (EKS best practices, "Cluster access")."""
    clusters = templates.of("EKS::Cluster")
    yield from constants(clusters, Code.CLUSTER_CONTROL, _MUST)
    yield from constants(clusters, Code.CLUSTER_CONTROL, _SHOULD, Level.WARNING)
    for cluster in clusters:
        access, into = cluster["ResourcesVpcConfig"], (cluster.name, "Ingress")
        cidrs, public = access["PublicAccessCidrs"], access["EndpointPublicAccess"].raw is not False
        near = [each for each in rules(templates) if each.way[:2] == into]
        shut = not public and not any(_HTTPS in each.ports for each in near)
        yield from report(Code.CLUSTER_CONTROL, (shut, access, _SHUT, _ADMIT))
        for cidr in list(cidrs) or [cidrs]:
            everybody = is_wide(cidr) or (public and not cidrs.texts)
            found = f"{cidr.text or 'no range'}: the whole internet reaches the API server"
            yield from report(Code.ENDPOINT_OPEN, (everybody, cidr, found, _RANGES))


@template_guard
def addons(templates: Templates) -> Iterator[Finding]:
    """All add-ons, in versions tried together and in order (terraform-aws-eks issue 3446)."""
    listed = {each["AddonName"].text: each for each in templates.of("EKS::Addon")}
    yield from constants([*listed.values()], _SETTINGS, [_REPLACED], Level.WARNING)
    for name, addon in listed.items():
        known, links, values = _KNOWN.get(name), addon[_LINKS], addon["ConfigurationValues"].parsed
        yield from values.must_hold(_SETTINGS, [_POLICIES] if name == "vpc-cni" else [])
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
        for name in (each.name for each in ADDONS if each.name not in listed):
            found, remedy = f"no add-on {name}: {_MISSED}", f"add an AWS::EKS::Addon {name}"
            yield cluster.properties.finding(_SETTINGS, found, remedy)
