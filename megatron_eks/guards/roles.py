"""Guards of IAM roles: who takes them, and what they may do."""

from collections.abc import Iterator
from functools import partial
from itertools import product

from megatron_eks.catalog import pins
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.buckets import data_buckets, key_of
from megatron_eks.guards.statements import Need, allows, is_everybody, needs, statements, texts
from megatron_eks.guards.templates import Resource, Templates, template_guard
from megatron_eks.guards.values import Value, report

_UNBOUND = "bound to no service account: its pods get no credentials"
_PODS, _BUILD = "pods.eks.amazonaws.com", "codebuild.amazonaws.com"
_FLOWS, _NODE = "vpc-flow-logs.amazonaws.com", "ec2.amazonaws.com"
_TRUST, _ARNS, _AWS = "AssumeRolePolicyDocument", "ManagedPolicyArns", "arn:${AWS::Partition}:"
_JOIN = "AmazonEKSWorkerNodePolicy|AmazonEKSWorkerNodeMinimalPolicy "
_JOIN += "AmazonEC2ContainerRegistryPullOnly|AmazonEC2ContainerRegistryReadOnly"
# Which property of a user names its role, which service takes it, and AWS's policies it needs.
_USERS = {
    "AWS::EKS::Cluster": ("RoleArn", "eks.amazonaws.com", "AmazonEKSClusterPolicy"),
    "AWS::EKS::Nodegroup": ("NodeRole", _NODE, _JOIN),
    "AWS::EKS::PodIdentityAssociation": ("RoleArn", _PODS, ""),
    "AWS::EKS::Addon": ("PodIdentityAssociations", _PODS, ""),
    "AWS::IAM::InstanceProfile": ("Roles", _NODE, "AmazonSSMManagedInstanceCore"),
    "AWS::CodeBuild::Project": ("ServiceRole", _BUILD, ""),
    "AWS::EC2::FlowLog": ("DeliverLogsPermissionArn", _FLOWS, ""),
}
_PARTS = (*pins.ADDONS, pins.EFS_ADDON)
_OF_ADDONS = {e.name: f"{e.policy}|{e.policy.removesuffix('V2')}" for e in _PARTS if e.policy}
_ADMIN = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess", "AmazonS3FullAccess")
_TAGS = {
    "aws:RequestTag/eks-cluster-name": "ClusterName",
    "aws:RequestTag/kubernetes-namespace": "Namespace",
    "aws:RequestTag/kubernetes-service-account": "ServiceAccount",
}
_CONNECT = ("GetConnection", "GetConnectionToken", "UseConnection")
_need = partial(Need, Code.POLICY)


def _uses(templates: Templates) -> Iterator[tuple[Resource, str, Resource]]:
    """Return the roles that something uses: the role, the service that takes it, the user."""
    for user in (each for each in templates.resources if each.type in _USERS):
        name, service, _ = _USERS[user.type]
        addon = [each["RoleArn"] for each in user[name] if user.type == "AWS::EKS::Addon"]
        for value in addon or [user[name]]:
            yield from ((r, service, user) for r in templates.targets(value) if "Role" in r.type)
    for role in (e for e in templates.of("IAM::Role") if "aws:RequestTag/" in str(e[_TRUST].raw)):
        yield role, _PODS, role


def _policies(role: Resource, templates: Templates) -> list[Value]:
    """Return the policies of a role, also those beside it."""
    beside = templates.of("IAM::Policy", "IAM::ManagedPolicy")
    attached = [e["PolicyDocument"] for e in beside if role in templates.targets(e["Roles"])]
    return [*(each["PolicyDocument"] for each in role["Policies"]), *attached]


@template_guard
def role_trust(templates: Templates) -> Iterator[Finding]:
    """Let a service or pods take a role, and nobody else (IAM, "The confused deputy problem")."""
    code, warning = Code.ROLE_TRUST, Level.WARNING
    for each in statements(*(role[_TRUST] for role in templates.of("IAM::Role"))):
        who, found = each["Principal"], "everybody may take the role"
        if each["Effect"].text == "Allow" and is_everybody(who):
            yield who.finding(code, found, "name the service alone")
    at_hand = templates.of("IAM::Role") if templates.of("EKS::Cluster") else []
    for role in [each for each in at_hand if _PODS in str(each[_TRUST].raw)]:
        if not any("::EKS::" in user.type for user in templates.users(role)):
            remedy = "add an AWS::EKS::PodIdentityAssociation, or name it in its add-on"
            yield role.properties.finding(code, _UNBOUND, remedy)
    for role, service, user in _uses(templates):
        written, why = str(role[_TRUST].raw), "what uses the role gets no rights"
        actions = ("sts:AssumeRole", "sts:TagSession")[: 1 + (service == _PODS)]
        wanted = [Need(code, why, actions, (), service)]
        if service in {_BUILD, _FLOWS} and "aws:SourceArn" not in written:
            own = (("StringEquals", "aws:SourceAccount", "${AWS::AccountId}"),)
            wanted.append(Need(code, "others reach it", actions, (), service, own, level=warning))
        own_rights = _policies(role, templates) and service == _PODS and user != role
        for tag, name in _TAGS.items() if own_rights else ():
            cluster, why = templates.target(user[name]), "it gets no rights, or pods of others do"
            test = ("StringEquals", tag, templates.text(cluster["Name"] if cluster else user[name]))
            level = Level.ERROR if tag in written else warning
            wanted.append(Need(code, why, actions, (), service, (test,), level=level))
        for need in wanted:
            yield from needs(templates, [role[_TRUST]], need)


@template_guard
def rights(templates: Templates) -> Iterator[Finding]:
    """Let jobs read and replace their data, and AWS's parts work (EKS, "... node IAM role")."""
    for role, service, user in _uses(templates):
        addon = _OF_ADDONS.get(user["AddonName"].text, "")
        arns = [e.partition(":iam::aws:policy/")[2] for e in texts(templates, role[_ARNS])]
        for choice in (addon or _USERS.get(user.type, ("", "", ""))[2]).split():
            first, missing = choice.split("|")[0], not {*arns} & {*choice.split("|")}
            found = f"no {first}: {user.name} does not work without it"
            level = Level.WARNING if _policies(role, templates) else Level.ERROR
            row = (missing, role[_ARNS], found, f"add {_AWS}iam::aws:policy/{first}")
            yield from report(Code.NODE_ROLE, row, level=level)
        policies = _policies(role, templates) or [role["Policies"]]
        wanted = [*_of_builds(templates, user)]
        wanted += [*_of_jobs(templates, policies)] if service == _PODS else []
        for bucket in data_buckets(templates) if user == role else ():
            why, key = "jobs cannot read what was pushed", texts(templates, key_of(bucket))
            on = [("s3:GetObject", f"${{{bucket.name}.Arn}}/data/*")]
            on += product(("kms:Decrypt", "kms:GenerateDataKey"), key)
            wanted += [_need(why, (e,), (arn,)) for e, arn in on if bucket.file == role.file]
        for need in wanted:
            yield from needs(templates, policies, need)
    for role in templates.of("IAM::Role"):
        wide = [e for e in role[_ARNS] if templates.text(e).rpartition("/")[2] in _ADMIN]
        given = [e for e in statements(*_policies(role, templates)) if e["Effect"].text == "Allow"]
        wide += [e["Action"] for e in given if any(a.endswith("*") for a in e["Action"].texts)]
        for value in wide:
            found = "more than is needed: one stolen token reads and deletes what it reaches"
            yield value.finding(Code.POD_ROLE, found, "name the actions, and what they are for")


def _of_builds(templates: Templates, user: Resource) -> Iterator[Need]:
    source = user["Source"]
    name = source["Location"].text.removeprefix("https://github.com/").removesuffix(".git")
    for arn in texts(templates, source["Auth"]["Resource"]):
        for kind in ("codeconnections", "codestar-connections"):
            actions = tuple(f"{kind}:{action}" for action in _CONNECT)
            test = ("StringEqualsIfExists", f"{kind}:FullRepositoryId", name)
            yield _need("it gets no source", actions, (arn,), when=(test,))


def _of_jobs(templates: Templates, policies: list[Value]) -> Iterator[Need]:
    """Return what jobs need beside what they may read and write."""
    for each, action in product(statements(*policies), ("s3:GetObject", "s3:PutObject")):
        arns = texts(templates, each["Resource"]) if allows(each, action) else []
        for arn in (each for each in arns if "/" in each):
            bucket, _, path = arn.partition("/")
            why, test = f"jobs stop with AccessDenied at {path}", ("StringLike", "s3:prefix", path)
            yield _need(why, ("s3:ListBucket",), (bucket,), when=(test,))
            beside = ("s3:GetObject", "s3:DeleteObject") if action == "s3:PutObject" else ()
            yield from (_need("jobs cannot resume, or keep saves", (e,), (arn,)) for e in beside)
