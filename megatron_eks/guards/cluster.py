"""Guards of the cluster: endpoint, settings, add-ons and their order, and IAM roles."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import product

from megatron_eks.catalog.pins import ADDONS, EFS_ADDON
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.network import HTTPS, is_wide, rules
from megatron_eks.guards.statements import Need, allows, is_everybody, needs, statements, texts
from megatron_eks.guards.storage import data_buckets, key_of
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Found, Row, Value, report

_LOGS = "a log of api, audit, authenticator, controllerManager or scheduler is missing"
_MUST: tuple[Row, ...] = (
    ("ResourcesVpcConfig EndpointPrivateAccess", (YES,), "nodes do not reach it, and never join"),
    ("AccessConfig AuthenticationMode", ("API", "API_AND_CONFIG_MAP"), "nobody gets in"),
    ("ResourcesVpcConfig SubnetIds 1", (), "EKS refuses subnets of one zone"),
)
_CREATOR = "AccessConfig BootstrapClusterCreatorAdminPermissions"
_SHOULD: tuple[Row, ...] = (
    (_CREATOR, (NO,), "whoever creates the cluster stays its administrator, unlisted"),
    ("KubeApiServerConfig EventTtl", (), "what a pod waited for is forgotten within the hour"),
    ("DeletionProtection", (YES,), "one wrong command deletes the cluster under its jobs"),
    ("UpgradePolicy SupportType", ("STANDARD",), "extended support costs six times as much"),
    ("Logging ClusterLogging EnabledTypes 4 Type", (), _LOGS),
    ("EncryptionConfig 0 Provider KeyArn", (), "Secrets have no key of this account"),
    ("EncryptionConfig 0 Resources 0", ("secrets",), "Secrets have no key of this account"),
)
_RANGES = "list the ranges of an office or a VPN"
_SHUT = "only nodes reach the private endpoint: its group admits nobody else"
_ADMIT = "admit tcp 443 from the VPC to ClusterSecurityGroupId, or set EndpointPublicAccess"
_KNOWN = {each.name: each for each in (*ADDONS, EFS_ADDON)}
_SETTINGS, _BEFORE_NODES = Rule.ADDON_SETTINGS, ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
_REPLACED: Row = ("ResolveConflicts", ("OVERWRITE", "PRESERVE"), "EKS's own default is refused")
_POLICIES: Row = ("enableNetworkPolicy", ("true",), "every pod reaches every other")
_LINKS = "PodIdentityAssociations"
# EKS User Guide, "Limit Pod traffic with Kubernetes network policies".
_LEAST = {"vpc-cni": (1, 14)}
_MISSED = "nodes stay NotReady or broken, or pods lack DNS, credentials or volumes"
_UNBOUND = "bound to no service account: its pods get no credentials"
_PODS, _BUILD = "pods.eks.amazonaws.com", "codebuild.amazonaws.com"
_OF_PODS = (_PODS, "ec2.amazonaws.com")
_FLOWS = "vpc-flow-logs.amazonaws.com"
_TRUST, _ARNS, _AWS = "AssumeRolePolicyDocument", "ManagedPolicyArns", "arn:${AWS::Partition}:"
_JOIN = "AmazonEKSWorkerNodePolicy|AmazonEKSWorkerNodeMinimalPolicy "
_JOIN += "AmazonEC2ContainerRegistryPullOnly|AmazonEC2ContainerRegistryReadOnly"
# Which property of a user names its role, and which service takes it.
_USERS = {
    "AWS::EKS::Cluster": ("RoleArn", "eks.amazonaws.com"),
    "AWS::EKS::Nodegroup": ("NodeRole", "ec2.amazonaws.com"),
    "AWS::EKS::PodIdentityAssociation": ("RoleArn", _PODS),
    "AWS::EKS::Addon": ("PodIdentityAssociations", _PODS),
    "AWS::IAM::InstanceProfile": ("Roles", "ec2.amazonaws.com"),
    "AWS::CodeBuild::Project": ("ServiceRole", _BUILD),
    "AWS::EC2::FlowLog": ("DeliverLogsPermissionArn", _FLOWS),
}
# The policies of AWS that each needs; `a|b` is either.
_MANAGED = {e.name: f"{e.policy}|{e.policy.removesuffix('V2')}" for e in ADDONS if e.policy}
_MANAGED |= {"AWS::EKS::Cluster": "AmazonEKSClusterPolicy", "AWS::EKS::Nodegroup": _JOIN}
# What those who make images or write logs with a role must be allowed.
_LAYERS = "BatchCheckLayerAvailability InitiateLayerUpload UploadLayerPart CompleteLayerUpload"
_PUSH = f"GetAuthorizationToken {_LAYERS} PutImage".split()
_WRITE = ("logs:CreateLogStream", "logs:PutLogEvents")
_WORK = {_FLOWS: _WRITE, _BUILD: (*_WRITE, *(f"ecr:{each}" for each in _PUSH))}
_SIZE = ("eks:DescribeNodegroup", "eks:UpdateNodegroupConfig")
_WORK["pool-scaler"] = (*_SIZE, "autoscaling:TerminateInstanceInAutoScalingGroup")
_TEAM_GROUP, _ADMIN = "megatron-eks:", "AmazonEKSClusterAdminPolicy"
_TAGS = {
    "aws:RequestTag/eks-cluster-name": "ClusterName",
    "aws:RequestTag/kubernetes-namespace": "Namespace",
    "aws:RequestTag/kubernetes-service-account": "ServiceAccount",
}
_need = partial(Need, Rule.POLICY)


@template_guard
def control(templates: Templates) -> Found:
    """Nodes and people reach it, and nobody else (EKS best practices, "Cluster access")."""
    clusters = templates.of("EKS::Cluster")
    newest = max([_version(each["Version"]) for each in clusters], default=())
    for version in [each["Version"] for each in templates.of("EKS::Nodegroup")]:
        found, ahead = "newer than the control plane: EKS refuses it", _version(version) > newest
        row = (newest and ahead, version, found, "write the cluster's, or none")
        yield from report(Rule.MANAGED_NODES, *row)
    yield from constants(clusters, Rule.CLUSTER_CONTROL, *_MUST)
    yield from constants(clusters, Rule.CLUSTER_CONTROL, *_SHOULD, warns=True)
    for cluster in clusters:
        logs = f"/aws/eks/{cluster['Name'].text}/cluster"
        for name in (each["LogGroupName"] for each in templates.of("Logs::LogGroup")):
            apart = cluster["Name"].text and "/aws/eks/" in name.text and name.text != logs
            found = "EKS writes to another group, with no key, and for ever"
            remedy = f"set it to {logs!r}, in its key's policy too"
            yield from report(Rule.CLUSTER_CONTROL, apart, name, found, remedy, warns=True)
        access, into = cluster["ResourcesVpcConfig"], (cluster.name, "Ingress")
        cidrs, public = access["PublicAccessCidrs"], access["EndpointPublicAccess"].raw is not False
        near = [each for each in rules(templates) if each.way[:2] == into]
        shut = not public and not any(HTTPS in each.ports for each in near)
        yield from report(Rule.CLUSTER_CONTROL, shut, access, _SHUT, _ADMIT)
        for cidr in list(cidrs) or [cidrs]:
            everybody = is_wide(cidr) or (public and not cidrs.texts)
            found = f"{cidr.text or 'no range'}: the whole internet reaches the API server"
            yield from report(Rule.ENDPOINT_OPEN, everybody, cidr, found, _RANGES)


@template_guard
def addons(templates: Templates) -> Found:
    """All add-ons, in versions tried together and in order (terraform-aws-eks issue 3446)."""
    listed = {each["AddonName"].text: each for each in templates.of("EKS::Addon")}
    groups = {each.name for each in templates.of("EKS::Nodegroup")}
    minor = max([_version(each["Version"]) for each in templates.of("EKS::Cluster")], default=())
    yield from constants([*listed.values()], _SETTINGS, _REPLACED, warns=True)
    for name, addon in listed.items():
        known, links, values = _KNOWN.get(name), addon[_LINKS], addon["ConfigurationValues"].parsed
        written, version = addon["ConfigurationValues"], addon["AddonVersion"]
        broken, found = written.text and not values, "no JSON: EKS refuses it"
        yield from report(_SETTINGS, broken, written, found, "correct the brackets and quotes")
        policies = [_POLICIES] * (name == "vpc-cni" and not broken)
        yield from values.must_hold(_SETTINGS, *policies)
        own = [*_version(version), 0, 0]
        apart = name == "kube-proxy" and minor and not minor[1] - 3 <= own[1] <= minor[1]
        wrong = version and (apart or _version(version) < _LEAST.get(name, ()))
        found = "newer than the control plane, or more than three releases older"
        found = found if apart else "it applies no network policy"
        remedy = "take EKS's own version for this cluster"
        yield from report(_SETTINGS, wrong, version, found, remedy)
        waits, early = addon.body["DependsOn"], groups and name not in _BEFORE_NODES
        found = f"{name} does not wait for nodes: EKS finds it degraded, and the stack fails"
        early = early and not groups & {*waits.texts}
        yield from report(Rule.START_ORDER, early, waits, found, "add the system's node group")
        account = known.service_account if known else None
        none = account and account not in [each["ServiceAccount"].text for each in links]
        found = f"no role for {account}: AWS refuses what {name} asks for"
        yield from report(_SETTINGS, none, links, found, "add it with the ARN of its role")
    first = {listed[name].name: name for name in _BEFORE_NODES if name in listed}
    for depends in (each.body["DependsOn"] for each in templates.of("EKS::Nodegroup")):
        for name in sorted(first.keys() - set(depends.texts)):
            found = f"nodes do not wait for {first[name]}: they stay NotReady, and the stack fails"
            yield depends.finding(Rule.START_ORDER, found, f"add {name!r}")
    for cluster in templates.of("EKS::Cluster"):
        for name in (each.name for each in ADDONS if each.name not in listed):
            found, remedy = f"no add-on {name}: {_MISSED}", f"add an AWS::EKS::Addon {name}"
            yield cluster.properties.finding(_SETTINGS, found, remedy)


def _version(value: Value) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", value.text)[:2]))


@template_guard
def people(templates: Templates) -> Found:
    """Let administrators in, and teams no further than their namespaces (EKS, "Access entries")."""
    admitted, groups = set(), set()
    for entry in templates.of("EKS::AccessEntry"):
        who, given, own = entry["PrincipalArn"], entry["AccessPolicies"], entry["KubernetesGroups"]
        groups |= {*own.texts}
        whole = [e["PolicyArn"] for e in given if e["AccessScope"]["Type"].text == "cluster"]
        admitted |= {_ADMIN for each in whole if templates.text(each).endswith(f"/{_ADMIN}")}
        wrong, found = who.text.endswith(":root"), "EKS takes no whole account"
        yield from report(Rule.CLUSTER_CONTROL, wrong, who, found, "name a role of it")
        wide = given and any(each.startswith(_TEAM_GROUP) for each in own.texts)
        found = "a team's people get it beside the rights of their group"
        yield from report(Rule.TEAM_RIGHTS, wide, given, found, f"remove {given.name}")
    for cluster in templates.of("EKS::Cluster"):
        alone = cluster["AccessConfig"]["AuthenticationMode"].raw == "API"  # no ConfigMap admits
        shut = not admitted and alone and cluster.properties.at(_CREATOR).raw is False
        found = f"no access entry has {_ADMIN} in the whole cluster: nobody administers it"
        remedy = "add an AWS::EKS::AccessEntry for a role of yours"
        yield from report(Rule.CLUSTER_CONTROL, shut, cluster.properties, found, remedy)
        for team in filter(None, map(team_of, templates.of("IAM::Role"))):
            group = f"{_TEAM_GROUP}{team}"
            found = f"no access entry is in {group}: none of that team's people get in"
            row = (group not in groups, cluster.properties, found, "add it to their entries")
            yield from report(Rule.TEAM_RIGHTS, *row)


def team_of(role: Resource) -> str:
    """Return the team whose jobs take a role, which is called after it (config/outputs.py)."""
    part = role.name.removeprefix("JobRole")
    return "" if part == role.name else part.replace("X", "-")


def _uses(templates: Templates) -> Iterator[tuple[Resource, str, Resource]]:
    """Return the roles that something uses: the role, the service that takes it, the user."""
    for user in (each for each in templates.resources if each.type in _USERS):
        name, service = _USERS[user.type]
        addon = [each["RoleArn"] for each in user[name] if user.type == "AWS::EKS::Addon"]
        for value in addon or [user[name]]:
            yield from ((r, service, user) for r in templates.targets(value) if "Role" in r.type)
    for role in (e for e in templates.of("IAM::Role") if "aws:RequestTag/" in str(e[_TRUST].raw)):
        yield role, _PODS, role


def _policies(role: Resource, templates: Templates) -> list[Value]:
    beside = templates.of("IAM::Policy", "IAM::ManagedPolicy")
    attached = [e["PolicyDocument"] for e in beside if role in templates.targets(e["Roles"])]
    return [*(each["PolicyDocument"] for each in role["Policies"]), *attached]


@template_guard
def role_trust(templates: Templates) -> Found:
    """Let a service or pods take a role, and nobody else (IAM, "The confused deputy problem")."""
    code, found = Rule.ROLE_TRUST, "everybody may take the role"
    for each in statements(*(role[_TRUST] for role in templates.of("IAM::Role"))):
        open_to_all = each["Effect"].text == "Allow" and is_everybody(each["Principal"])
        yield from report(code, open_to_all, each["Principal"], found, "name the service alone")
    at_hand = templates.of("IAM::Role") if templates.of("EKS::Cluster") else []
    for role in [each for each in at_hand if _PODS in str(each[_TRUST].raw)]:
        if not any("::EKS::" in user.type for user in templates.users(role)):
            remedy = "add an AWS::EKS::PodIdentityAssociation, or name it in its add-on"
            yield role.properties.finding(code, _UNBOUND, remedy)
    for role, service, user in _uses(templates):
        written, why = str(role[_TRUST].raw), "what uses the role gets no permissions"
        actions = ("sts:AssumeRole", "sts:TagSession")[: 1 + (service == _PODS)]
        need = partial(Need, code, actions=actions, who=service)
        wanted = [need(why)]
        if service in {_BUILD, _FLOWS} and "aws:SourceArn" not in written:
            own = (("StringEquals", "aws:SourceAccount", "${AWS::AccountId}"),)
            wanted.append(need("others may use it", when=own, warns=True))
        own_rights = _policies(role, templates) and service == _PODS and user != role
        for tag, name in _TAGS.items() if own_rights else ():
            why = f"it gets no permissions, or other pods do, unless {user.name}'s {name} is wrong"
            cluster = templates.target(user[name])
            test = ("StringEquals", tag, templates.text(cluster["Name"] if cluster else user[name]))
            wanted.append(need(why, when=(test,), warns=tag not in written))
        broken = [*needs(templates, [role[_TRUST]], wanted[0])]
        yield from broken or needs(templates, [role[_TRUST]], *wanted[1:])


@template_guard
def rights(templates: Templates) -> Found:
    """Let jobs read and replace their data, and AWS's parts work (EKS, "... node IAM role")."""
    for role, service, user in _uses(templates):
        own = _policies(role, templates)
        managed = _MANAGED.get(user["AddonName"].text, _MANAGED.get(user.type, ""))
        arns = [e.partition(":iam::aws:policy/")[2] for e in texts(templates, role[_ARNS])]
        for choice in managed.split():
            first, missing = choice.split("|")[0], not {*arns} & {*choice.split("|")}
            found = f"no {first}: {user.name} does not work without it"
            row = (missing, role[_ARNS], found, f"add {_AWS}iam::aws:policy/{first}")
            yield from report(Rule.NODE_ROLE, *row, warns=own)
        for arn in role[_ARNS].listed:
            named = re.search(r"/(Administrator|PowerUser|\w+Full)Access$", templates.text(arn))
            policy = named and named[0].strip("/")
            found = f"{policy}: whoever gets into a pod or a build has far more than it needs"
            remedy = "remove it, and allow what is needed where it is needed"
            yield from report(Rule.POLICY, named, arn, found, remedy)
        nothing = service == _PODS and not (own or role[_ARNS])
        found, remedy = "no policy: pods take the role, and may do nothing", "add its policy"
        yield from report(Rule.POLICY, nothing, role.properties, found, remedy)
        for each in statements(*own) if service in _OF_PODS else ():
            every = [e for e in each["Action"].listed if re.fullmatch(r"\*|[\w-]+:\*", e.text)]
            for action in every if "*" in each["Resource"].texts else ():
                found = f"{action.text} on everything: whoever gets into a pod has it all"
                wide, remedy = each["Effect"].text == "Allow", "name what pods need, and where"
                yield from report(Rule.POLICY, wide, action, found, remedy)
        policies = own or [role["Policies"]]
        others = list(_elsewhere(templates, role, policies)) if service == _PODS else []
        for each in others:
            found = f"team {team_of(role)} reaches what belongs to others"
            remedy = f"end it in /teams/{team_of(role)}/*"
            yield each.finding(Rule.TEAM_RIGHTS, found, remedy)
        wanted = [] if others or service != _PODS else [*_of_jobs(templates, policies)]
        why = f"{user.name} fails with AccessDenied"
        by = user["ServiceAccount"].text or service
        wanted += [_need(why, (each,)) for each in _WORK.get(by, ())]
        for bucket in data_buckets(templates) if user == role else ():
            why, key = "jobs cannot read what was pushed", texts(templates, key_of(bucket))
            folder = f"teams/{team_of(role)}" if team_of(role) else "data"
            on = [("s3:GetObject", f"${{{bucket.name}.Arn}}/{folder}/*")]
            on += product(("kms:Decrypt", "kms:GenerateDataKey"), key)
            wanted += [_need(why, (e,), (arn,)) for e, arn in on if bucket.file == role.file]
        yield from needs(templates, policies, *wanted)


def _elsewhere(templates: Templates, role: Resource, policies: list[Value]) -> Iterator[Value]:
    """Yield the resources of a team's role that are objects of others."""
    for each in [e for one in statements(*policies) for e in one["Resource"].listed]:
        _, slash, path = "".join(texts(templates, each)).partition("/")
        if slash and team_of(role) and not path.startswith(f"teams/{team_of(role)}/"):
            yield each


def _of_jobs(templates: Templates, policies: list[Value]) -> Iterator[Need]:
    for each, action in product(statements(*policies), ("s3:GetObject", "s3:PutObject")):
        arns = texts(templates, each["Resource"]) if allows(each, action) else []
        for arn in (each for each in arns if "/" in each):
            bucket, _, path = arn.partition("/")
            why, test = f"jobs stop with AccessDenied at {path}", ("StringLike", "s3:prefix", path)
            yield _need(why, ("s3:ListBucket",), (bucket,), when=(test,))
            # Who may write alone leaves results there that nothing of a job reads.
            beside = ("s3:GetObject", "s3:DeleteObject") * (action == "s3:PutObject")
            beside = beside if any(allows(each, e) for e in beside) else ()
            yield from (_need("jobs cannot resume, or keep saves", (e,), (arn,)) for e in beside)
