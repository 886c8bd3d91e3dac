"""Guards of IAM roles: who takes them, and what they may do."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from megatron_eks.catalog import pins
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.buckets import data_buckets, key_of
from megatron_eks.guards.statements import Need, allows, is_everybody, needs, statements, texts
from megatron_eks.guards.templates import Resource, Templates, template_guard
from megatron_eks.guards.values import Value

_PODS = "pods.eks.amazonaws.com"
_TRUST, _ARNS = "AssumeRolePolicyDocument", "ManagedPolicyArns"
# Which property of a user names its role, and which service takes it.
_USERS = {
    "AWS::EKS::Cluster": ("RoleArn", "eks.amazonaws.com"),
    "AWS::EKS::Nodegroup": ("NodeRole", "ec2.amazonaws.com"),
    "AWS::EKS::PodIdentityAssociation": ("RoleArn", _PODS),
    "AWS::EKS::Addon": ("PodIdentityAssociations", _PODS),
    "AWS::IAM::InstanceProfile": ("Roles", "ec2.amazonaws.com"),
    "AWS::CodeBuild::Project": ("ServiceRole", "codebuild.amazonaws.com"),
    "AWS::EC2::FlowLog": ("DeliverLogsPermissionArn", "vpc-flow-logs.amazonaws.com"),
}
# Whoever may ask these to act reaches a role that does not name its account.
_ACT_FOR_OTHERS = ("codebuild.amazonaws.com", "vpc-flow-logs.amazonaws.com")
_TAG = "aws:RequestTag/"
_TAGS = {
    f"{_TAG}eks-cluster-name": "ClusterName",
    f"{_TAG}kubernetes-namespace": "Namespace",
    f"{_TAG}kubernetes-service-account": "ServiceAccount",
}
_MANAGED: dict[str, list[tuple[str, ...]]] = {
    "AWS::EKS::Cluster": [("AmazonEKSClusterPolicy",)],
    "AWS::EKS::Nodegroup": [
        ("AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"),
        ("AmazonEC2ContainerRegistryPullOnly", "AmazonEC2ContainerRegistryReadOnly"),
    ],
    "AWS::IAM::InstanceProfile": [("AmazonSSMManagedInstanceCore",)],
}
_OF_ADDONS = {e.name: e.policy for e in (*pins.ADDONS, pins.EFS_ADDON) if e.policy}
_ADMIN = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess", "AmazonS3FullAccess")
# ECR User Guide, "IAM permissions for pushing an image"; CodeBuild User Guide, "Create a service
# role"; VPC User Guide, "IAM role for publishing flow logs to CloudWatch Logs".
_PUSH = "BatchCheckLayerAvailability BatchGetImage CompleteLayerUpload DescribeImages"
_PUSH += " GetDownloadUrlForLayer InitiateLayerUpload PutImage UploadLayerPart"
_NEEDS = (
    ("CodeBuild::Project", "ECR::Repository", "ecr", _PUSH),
    ("CodeBuild::Project", "Logs::LogGroup", "logs", "CreateLogStream PutLogEvents"),
    ("CodeBuild::Project", "KMS::Key", "kms", "Decrypt Encrypt GenerateDataKey"),
    ("CodeBuild::Project", "", "ecr", "GetAuthorizationToken"),
    ("EC2::FlowLog", "Logs::LogGroup", "logs", "CreateLogStream DescribeLogStreams PutLogEvents"),
)


def _uses(templates: Templates) -> Iterator[tuple[Resource, str, Resource]]:
    """Return the roles that something uses: the role, the service that takes it, the user."""
    for user in (each for each in templates.resources if each.type in _USERS):
        name, service = _USERS[user.type]
        addon = [each["RoleArn"] for each in user[name] if user.type == "AWS::EKS::Addon"]
        for value in addon or [user[name]]:
            yield from ((r, service, user) for r in templates.targets(value) if "Role" in r.type)
    for role in (e for e in templates.of("IAM::Role") if _TAG in str(e[_TRUST].raw)):
        yield role, _PODS, role


def _policies(role: Resource, templates: Templates) -> list[Value]:
    """Return the policies of a role, also those beside it."""
    beside = templates.of("IAM::Policy", "IAM::ManagedPolicy")
    attached = [e["PolicyDocument"] for e in beside if role in templates.targets(e["Roles"])]
    return [*(each["PolicyDocument"] for each in role["Policies"]), *attached]


@template_guard
def role_trust(templates: Templates) -> Iterator[Finding]:
    """Let the service or the pods that use a role take it, for this account, and nobody else.

    EKS User Guide, "Create IAM role with trust policy required by EKS Pod Identity", "Grant Pods
    access to AWS resources based on tags"; IAM User Guide, "The confused deputy problem".
    """
    code, lost = Code.ROLE_TRUST, "what uses the role gets no rights"
    for role, service, user in _uses(templates):
        trust, actions = [role[_TRUST]], ("sts:AssumeRole", "sts:TagSession")
        need = Need(code, lost, actions[: 1 + (service == _PODS)], (), service)
        yield from needs(templates, trust, need)
        if service in _ACT_FOR_OTHERS and "aws:SourceArn" not in str(trust[0].raw):
            test = ("StringEquals", "aws:SourceAccount", "${AWS::AccountId}")
            why, level = "other accounts reach it", Level.WARNING
            own = replace(need, why=why, when=(test,), level=level)
            yield from needs(templates, trust, own)
        own_rights = _policies(role, templates) and service == _PODS and user != role
        for tag, name in _TAGS.items() if own_rights else ():
            cluster = templates.target(user[name])
            value = templates.text(cluster["Name"] if cluster else user[name]) or "*"
            level = Level.ERROR if tag in str(trust[0].raw) else Level.WARNING
            why = f"{user.name} gets no rights, or pods of others do"
            own = replace(need, why=why, when=(("StringEquals", tag, value),), level=level)
            yield from needs(templates, trust, own)


@template_guard
def managed_policies(templates: Templates) -> Iterator[Finding]:
    """Attach what AWS's own parts need: nodes do not join or pull images without.

    EKS User Guide, "Amazon EKS node IAM role", "Amazon EKS cluster IAM role", "Amazon EKS add-ons";
    Systems Manager User Guide, "Configure instance permissions".
    """
    for role, _, user in _uses(templates):
        policy = _OF_ADDONS.get(user["AddonName"].text)
        own = [(policy, policy.removesuffix("V2"))] if policy else _MANAGED.get(user.type, [])
        names = [e.partition(":iam::aws:policy/")[2] for e in texts(templates, role[_ARNS])]
        for choice in (each for each in own if not {*names} & {*each}):
            found = f"no {choice[0]}: {user.name} does not work without it"
            remedy = f"add arn:${{AWS::Partition}}:iam::aws:policy/{choice[0]}"
            level = Level.WARNING if _policies(role, templates) else Level.ERROR
            yield role[_ARNS].finding(Code.NODE_ROLE, found, remedy, level)


@template_guard
def too_much(templates: Templates) -> Iterator[Finding]:
    """Allow no role everything, and nobody every role: one stolen token would do it.

    IAM User Guide, "Security best practices in IAM", "Permissions boundaries".
    """
    roles = templates.of("IAM::Role")
    bounded = [each for each in roles if each["PermissionsBoundary"]]
    stolen = "one stolen token reads and deletes what it reaches"
    for role in roles:
        trusts = statements(role[_TRUST])
        open_ = [e["Principal"] for e in trusts if e["Effect"].text == "Allow"]
        for principal in filter(is_everybody, open_):
            found, remedy = "everybody may take the role", "name the service alone"
            yield principal.finding(Code.ROLE_TRUST, found, remedy)
        admin = [e for e in role[_ARNS] if templates.text(e).rpartition("/")[2] in _ADMIN]
        for right in statements(*_policies(role, templates)):
            arns, actions = texts(templates, right["Resource"]), right["Action"].texts
            wide = any(each.endswith("*") for each in actions)
            on_data = any(each.startswith(("s3:", "kms:")) for each in actions)
            everything = "*" in arns or any(each.endswith(":s3:::*") for each in arns)
            if right["Effect"].text == "Allow" and (wide or (everything and on_data)):
                admin.append(right["Action"])
        for value in admin:
            found = f"{(texts(templates, value) or ['it'])[0]} is more than is needed: {stolen}"
            yield value.finding(Code.POD_ROLE, found, "name the actions, and what they are for")
        if bounded and not role["PermissionsBoundary"]:
            found = f"no boundary, and {bounded[0].name} has one: the account may refuse the role"
            yield role["PermissionsBoundary"].finding(Code.POLICY, found, "give it the same one")


@template_guard
def rights(templates: Templates) -> Iterator[Finding]:
    """Let builds push, flow logs be written, and jobs list, read, decrypt and replace their data.

    S3 User Guide, "Required permissions for Amazon S3 API operations", "Using SSE-KMS".
    """
    code = Code.POLICY
    for role, service, user in _uses(templates):
        policies, wanted = _policies(role, templates) or [role["Policies"]], []
        for kind, target, prefix, names in _NEEDS if not role[_ARNS] else ():
            own = [each for each in templates.of(target) if user in templates.users(each)]
            on = (f"${{{own[0].name}.Arn}}*",) if own else ()
            actions = names.split() if user.type == f"AWS::{kind}" else []
            wanted += [(f"{prefix}:{name}", on, f"{user.name} fails") for name in actions]
        for bucket in data_buckets(templates) if user == role else ():
            key, arn = texts(templates, key_of(bucket)[1]), f"${{{bucket.name}.Arn}}"
            why = "jobs cannot read what was pushed" if bucket.file == role.file else ""
            reads = [("s3:GetObject", (f"{arn}/data/*",), why)]
            reads += [(f"kms:{e}", (key[0],), why) for e in ("Decrypt", "GenerateDataKey") if key]
            wanted += reads if why else []
        for each, action in product(statements(*policies), ("s3:GetObject", "s3:PutObject")):
            arns = texts(templates, each["Resource"]) if allows(each, action) else []
            for arn in (e for e in arns if "/" in e and service == _PODS):
                bucket_arn, _, path = arn.partition("/")
                why = f"jobs stop with AccessDenied at {path}"
                test = ("StringLike", "s3:prefix", path)
                need = Need(code, why, ("s3:ListBucket",), (bucket_arn,), "", (test,))
                yield from needs(templates, policies, need)
                beside = ("s3:GetObject", "s3:DeleteObject") if action == "s3:PutObject" else ()
                wanted += [(e, (arn,), "jobs cannot resume, or keep every save") for e in beside]
        for action, on, why in wanted:
            yield from needs(templates, policies, Need(code, why, (action,), on))
