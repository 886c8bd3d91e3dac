"""Guards of the control plane: its endpoint, access, version and logs, and the bastion."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Network

from megatron_eks.catalog.pins import KUBERNETES_STANDARD_SUPPORT_ENDS as SUPPORTED
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.network import covers, is_wide, range_of
from megatron_eks.guards.templates import Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES

_CONTROL = Code.CLUSTER_CONTROL
_INSIDE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
_LOGS = {"api", "audit", "authenticator", "controllerManager", "scheduler"}
_ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
_POLICY = re.compile(r"arn:[^/]+:eks::aws:cluster-access-policy/AmazonEKS\w+Policy")
_PRINCIPAL = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/.+|.*[$].*|")
_MUST = (
    ("ResourcesVpcConfig EndpointPrivateAccess", (YES,), "nodes do not reach it, and never join"),
    ("AccessConfig AuthenticationMode", ("API", "API_AND_CONFIG_MAP"), "nobody gets in"),
)
_VERSION = (("Version", tuple(SUPPORTED), "EKS refuses it, or no add-on is pinned for it"),)
_CREATOR = "AccessConfig BootstrapClusterCreatorAdminPermissions"
_SHOULD = (
    ("Name", (), "its log group, its roles' conditions and the manifests are for another name"),
    (_CREATOR, (NO,), "whoever creates the cluster stays its administrator, unseen"),
    ("BootstrapSelfManagedAddons", (NO,), "EKS installs networking of its own versions first"),
    ("DeletionProtection", (YES,), "one wrong command deletes the cluster under its jobs"),
    ("UpgradePolicy SupportType", ("STANDARD",), "extended support costs six times as much"),
)
_LOG_GROUP = (("RetentionInDays", (), "logs are kept, and paid, for ever"),)
_BASTION = (
    ("IamInstanceProfile", (), "Session Manager does not reach the bastion"),
    ("LaunchTemplate", (), "nothing requires tokens of its metadata service"),
    ("KeyName", (None,), "a key pair opens the bastion beside IAM"),
)


@template_guard
def endpoint(templates: Templates) -> Iterator[Finding]:
    """Nodes reach the endpoint in the VPC, people from named ranges (EKS API, VpcConfigRequest)."""
    for cluster in templates.of("EKS::Cluster"):
        access, remedy = cluster["ResourcesVpcConfig"], "list the ranges of an office or a VPN"
        cidrs, public = access["PublicAccessCidrs"], access["EndpointPublicAccess"].raw is not False
        if public and not cidrs.texts:
            found = "a public endpoint without PublicAccessCidrs answers the whole internet"
            yield cidrs.finding(Code.ENDPOINT_OPEN, found, remedy)
        for cidr in cidrs:
            given, found = range_of(cidr), f"{cidr.text} is no public range: nobody gets in"
            if is_wide(cidr):
                found = f"{cidr.text} lets the whole internet reach the API server"
                yield cidr.finding(Code.ENDPOINT_OPEN, found, remedy)
            elif cidr.text and (not given or any(given.subnet_of(each) for each in _INSIDE)):
                yield cidr.finding(Code.RANGE, found, remedy)
        rules = [e for e in templates.users(cluster) if e.type == "AWS::EC2::SecurityGroupIngress"]
        if not public and not any(covers(each.properties) for each in rules):
            found = "only nodes reach the private endpoint: its group admits nobody else"
            remedy = (
                "admit tcp 443 from the VPC to ClusterSecurityGroupId, or set EndpointPublicAccess"
            )
            yield access.finding(_CONTROL, found, remedy, Level.WARNING)


@template_guard
def control(templates: Templates) -> Iterator[Finding]:
    """Nobody is locked out, and nothing is lost unseen (EKS best practices, "Cluster access")."""
    clusters, groups = templates.of("EKS::Cluster"), templates.of("Logs::LogGroup")
    yield from constants(clusters, _CONTROL, _MUST)
    yield from constants(clusters, Code.CLUSTER_VERSION, _VERSION)
    yield from constants(clusters, _CONTROL, _SHOULD, Level.WARNING)
    yield from constants(groups, _CONTROL, _LOG_GROUP, Level.WARNING)
    for cluster in clusters:
        keys, types = (
            cluster["EncryptionConfig"],
            cluster["Logging"]["ClusterLogging"]["EnabledTypes"],
        )
        if not any(e["Provider"]["KeyArn"] and "secrets" in e["Resources"].texts for e in keys):
            found = "Secrets are not encrypted with a key of this account"
            remedy = "add an entry with Resources ['secrets'] and Provider.KeyArn"
            yield keys.finding(Code.ENCRYPTION, found, remedy, Level.WARNING)
        if missing := ", ".join(sorted(_LOGS - {each["Type"].text for each in types})):
            found = f"no log of {missing}: nobody sees who did what"
            yield types.finding(_CONTROL, found, f"add {missing}", Level.WARNING)
        depends, name = cluster.body["DependsOn"], f"/aws/eks/{cluster['Name'].text}/cluster"
        for group in (e for e in groups if e["LogGroupName"].text == name):
            if group.name not in depends.texts:
                found = f"EKS makes {name} before {group.name} does, and the stack fails"
                yield depends.finding(Code.START_ORDER, found, f"set it to [{group.name!r}]")


@template_guard
def versions_and_ranges(templates: Templates) -> Iterator[Finding]:
    """Nodes have the cluster's version, Services their own range (Kubernetes, "Version Skew")."""
    pools, addons = templates.of("EKS::Nodegroup"), templates.of("EKS::Addon")
    beside = [each[key] for each in pools for key in ("Version", "ReleaseVersion")]
    beside += [each["AddonVersion"] for each in addons if each["AddonName"].text == "kube-proxy"]
    vpcs = [range_of(each["CidrBlock"]) for each in templates.of("EC2::VPC")]
    for cluster in templates.of("EKS::Cluster"):
        version, subnets = cluster["Version"].text, cluster["ResourcesVpcConfig"]["SubnetIds"]
        for value in beside if version in SUPPORTED else ():
            if value.text and not f"{value.text}.".lstrip("v").startswith(f"{version}."):
                found = f"{value.text} beside a control plane of {version}: EKS refuses it"
                yield value.finding(Code.VERSION_SKEW, found, f"use one of {version}")
        zones = {str(each["AvailabilityZone"].raw) for each in templates.targets(subnets)}
        if len(list(subnets)) == 1 or len(zones) == 1:
            found = "subnets of one zone: EKS refuses the cluster"
            yield subnets.finding(Code.SUBNETS, found, "name private subnets of two zones or more")
        services = cluster["KubernetesNetworkConfig"]["ServiceIpv4Cidr"]
        given = range_of(services)
        if not given or any(each and each.overlaps(given) for each in vpcs):
            found = f"{services.text or 'no range'} for Services: it overlaps the VPC, or network "
            found += "policies do not admit what EKS takes instead"
            yield services.finding(Code.RANGE, found, "take one outside of it: 172.20.0.0/16")


@template_guard
def access_entries(templates: Templates) -> Iterator[Finding]:
    """Somebody administers the cluster (EKS, "Associate access policies with access entries")."""
    entries, code = templates.of("EKS::AccessEntry"), Code.ACCESS_ENTRY
    arns = [policy["PolicyArn"] for each in entries for policy in each["AccessPolicies"]]
    admin = [arn for arn in arns if "AdminPolicy" in templates.text(arn)]
    for cluster in templates.of("EKS::Cluster"):
        if not admin and not any(each["KubernetesGroups"] for each in entries):
            found = "no access entry of an administrator: nobody is one"
            yield cluster.properties.finding(code, found, f"add {_ADMIN}")
    for arn in (arn for arn in arns if not _POLICY.fullmatch(templates.text(arn))):
        found = f"{templates.text(arn)} is no access policy: EKS refuses it"
        yield arn.finding(code, found, f"write {_ADMIN}")
    for arn in (each["PrincipalArn"] for each in entries):
        if not _PRINCIPAL.fullmatch(arn.text):
            found = f"{arn.text} is no role or user: EKS refuses it"
            yield arn.finding(code, found, "write arn:aws:iam::ACCOUNT:role/NAME")


@template_guard
def bastion(templates: Templates) -> Iterator[Finding]:
    """Only Session Manager opens the bastion (Systems Manager, "Instance permissions")."""
    yield from constants(templates.of("EC2::Instance"), _CONTROL, _BASTION)
    for each in templates.of("EC2::Instance"):
        disk, why = each["BlockDeviceMappings"][0]["Ebs"], "whoever copies the disk can read it"
        yield from disk["Encrypted"].must_be(Code.ENCRYPTION, YES, why=why)
