"""Guards of the control plane and its add-ons: endpoint, settings, logs, who gets in, order."""

import json
from collections.abc import Iterator
from ipaddress import IPv4Network

from megatron_eks.catalog.pins import ADDONS, EFS_ADDON
from megatron_eks.catalog.pins import KUBERNETES_STANDARD_SUPPORT_ENDS as SUPPORTED
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.network import covers, is_wide, range_of
from megatron_eks.guards.templates import Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Row, Value, report

_INSIDE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
_LOGS = "a log of api, audit, authenticator, controllerManager or scheduler is missing"
_ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
_MUST: tuple[Row, ...] = (
    ("ResourcesVpcConfig EndpointPrivateAccess", (YES,), "nodes do not reach it, and never join"),
    ("AccessConfig AuthenticationMode", ("API", "API_AND_CONFIG_MAP"), "nobody gets in"),
    ("ResourcesVpcConfig SubnetIds 1", (), "EKS refuses subnets of one zone"),
)
_VERSION: Row = ("Version", tuple(SUPPORTED), "EKS refuses it, or no add-on is pinned for it")
_CREATOR = "AccessConfig BootstrapClusterCreatorAdminPermissions"
_SHOULD: tuple[Row, ...] = (
    ("Name", (), "its log group, its roles' conditions and the manifests are for another name"),
    (_CREATOR, (NO,), "whoever creates the cluster stays its administrator, unseen"),
    ("BootstrapSelfManagedAddons", (NO,), "EKS installs networking of its own versions first"),
    ("DeletionProtection", (YES,), "one wrong command deletes the cluster under its jobs"),
    ("UpgradePolicy SupportType", ("STANDARD",), "extended support costs six times as much"),
    ("Logging ClusterLogging EnabledTypes 4 Type", (), _LOGS),
    ("EncryptionConfig 0 Provider KeyArn", (), "Secrets have no key of this account"),
    ("EncryptionConfig 0 Resources 0", ("secrets",), "Secrets have no key of this account"),
)
_RETENTION: Row = ("RetentionInDays", (), "logs are kept, and paid, for ever")
_RANGES = "list the ranges of an office or a VPN"
_SHUT = "only nodes reach the private endpoint: its group admits nobody else"
_NOBODY = "no access entry of an administrator: nobody is one"
_ADMIT = "admit tcp 443 from the VPC to ClusterSecurityGroupId, or set EndpointPublicAccess"
_SETTINGS = Code.ADDON_SETTINGS
_KNOWN = {each.name: each for each in (*ADDONS, EFS_ADDON)}
_BEFORE_NODES = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
_REPLACED: Row = ("ResolveConflicts", ("OVERWRITE", "PRESERVE"), "EKS's own default is refused")
_POLICIES: Row = ("enableNetworkPolicy", ("true",), "every pod reaches every other")
_LINKS = "PodIdentityAssociations"
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
def control(templates: Templates) -> Iterator[Finding]:
    """Nobody is locked out, nodes and people reach it (EKS best practices, "Cluster access")."""
    clusters, groups = templates.of("EKS::Cluster"), templates.of("Logs::LogGroup")
    yield from constants(clusters, Code.CLUSTER_CONTROL, _MUST)
    yield from constants(clusters, Code.CLUSTER_VERSION, [_VERSION])
    yield from constants(clusters, Code.CLUSTER_CONTROL, _SHOULD, Level.WARNING)
    yield from constants(groups, Code.CLUSTER_CONTROL, [_RETENTION], Level.WARNING)
    entries = templates.of("EKS::AccessEntry")
    arns = [policy["PolicyArn"] for each in entries for policy in each["AccessPolicies"]]
    none = not any("AdminPolicy" in templates.text(arn) for arn in arns)
    for cluster in clusters:
        yield from report(Code.ACCESS_ENTRY, (none, cluster.properties, _NOBODY, f"add {_ADMIN}"))
        name, depends = f"/aws/eks/{cluster['Name'].text}/cluster", cluster.body["DependsOn"]
        own = [each.name for each in groups if each["LogGroupName"].text == name]
        late, found = not {*own} <= {*depends.texts}, f"EKS makes {name} first, and the stack fails"
        yield from report(Code.START_ORDER, (late, depends, found, f"set it to {own}"))
        access, users = cluster["ResourcesVpcConfig"], templates.users(cluster)
        cidrs, public = access["PublicAccessCidrs"], access["EndpointPublicAccess"].raw is not False
        rules = [each for each in users if each.type == "AWS::EC2::SecurityGroupIngress"]
        shut = not public and not any(covers(each.properties) for each in rules)
        yield from report(Code.CLUSTER_CONTROL, (shut, access, _SHUT, _ADMIT))
        for cidr in list(cidrs) or [cidrs]:
            given, everybody = range_of(cidr), is_wide(cidr) or (public and not cidrs.texts)
            inside = cidr.text and (not given or any(given.subnet_of(each) for each in _INSIDE))
            open_to = f"{cidr.text or 'no range'}: the whole internet reaches the API server"
            yield from report(Code.ENDPOINT_OPEN, (everybody, cidr, open_to, _RANGES))
            nobody = f"{cidr.text} is no public range: nobody gets in"
            yield from report(Code.RANGE, (inside, cidr, nobody, _RANGES))


@template_guard
def addons(templates: Templates) -> Iterator[Finding]:
    """All add-ons, in versions tried together and in order (terraform-aws-eks issue 3446)."""
    listed = {each["AddonName"].text: each for each in templates.of("EKS::Addon")}
    yield from constants([*listed.values()], _SETTINGS, [_REPLACED], Level.WARNING)
    for name, addon in listed.items():
        known, links, config = _KNOWN.get(name), addon[_LINKS], addon["ConfigurationValues"]
        values = Value(json_of(config), config.place, config.path)
        yield from values.must_hold(_SETTINGS, [_POLICIES] if name == "vpc-cni" else [])
        if not known:
            continue
        version, account = addon["AddonVersion"], known.service_account
        # Without one EKS takes its default.
        pinned = [*known.versions.values(), None] if known.versions else [version.raw]
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


def json_of(value: Value) -> Json:
    """Return what a text of JSON holds; nothing for a text that is none."""
    try:
        read: Json = json.loads(value.text)
    except ValueError:
        return None
    return read
