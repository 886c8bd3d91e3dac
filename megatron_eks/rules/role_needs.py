"""Rules over roles whose policies give only a part of what their user needs."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import HOLDERS, ROLE, granted, statements, words
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, shown, text, written

# Sets of which a part is of no use: ECR User Guide, "Amazon ECR private repository policies",
# pushing and pulling an image; VPC User Guide, "IAM role for publishing flow logs".
_PUSH = ("CompleteLayerUpload", "InitiateLayerUpload", "PutImage", "UploadLayerPart")
_IMAGE = "ecr:PutImage"
_LOG_IN = "ecr:GetAuthorizationToken"
_PUSHES = re.compile(r"docker (image )?push|buildx build[^\n]* --push")
_PULL = ("BatchGetImage", "GetDownloadUrlForLayer")
_WHOLE = (
    ("to push an image", tuple(f"ecr:{each}" for each in _PUSH)),
    ("to pull an image", tuple(f"ecr:{each}" for each in _PULL)),
)
_USERS = (
    (
        *("AWS::EC2::FlowLog", "DeliverLogsPermissionArn"),
        ("logs:CreateLogStream", "logs:PutLogEvents"),
    ),
    ("AWS::CodeBuild::Project", "ServiceRole", ("logs:CreateLogStream", "logs:PutLogEvents")),
)
# CodeBuild User Guide, "Allow CodeBuild access to AWS services required to create a VPC network
# interface".
_INSIDE = ("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission")
_READS = {
    "SECRETS_MANAGER": "secretsmanager:GetSecretValue",
    "PARAMETER_STORE": "ssm:GetParameters",
}
_PART = re.compile(r"\$\{(?P<name>[A-Za-z0-9]+)(\.Arn)?\}")
_OBJECTS = ("s3:GetObject", "s3:PutObject")
_RUNS_IMAGES = ("AWS::Batch::", "AWS::ECR::", "AWS::ECS::", "AWS::EKS::", "AWS::SageMaker::")
# What S3 asks KMS for in the name of who reads, and who writes.
_USES = (("s3:GetObject", "kms:Decrypt"), ("s3:PutObject", "kms:GenerateDataKey"))


def parts(templates: TemplateSet) -> Iterator[Finding]:
    """Require all actions of a set of which each needs the others, and those of a role's user.

    Docker's push and pull, and CloudWatch Logs: AccessDenied comes with the first that lacks.
    """
    for holder in templates.resources(*HOLDERS):
        actions = actions_of(holder, templates)
        for what, wanted in _WHOLE if actions is not None else ():
            given = [each for each in wanted if has_action(actions or set(), each)]
            missing = [each for each in wanted if each not in given]
            # One that reads alone needs no more than its own two.
            if given and missing:
                found = f"{', '.join(given)} without {', '.join(missing)}, which it takes {what}"
                remedy = f"add {', '.join(missing)}"
                yield holder.find(Code.POLICY, (), found, remedy)
    for kind, key, wanted in _USERS:
        for user in templates.resources(kind):
            role = templates.target(user.properties.get(key), user.file)
            actions = actions_of(role, templates) if role is not None else None
            inside = not is_absent(user.properties.get("VpcConfig"))
            wanted_here = (*wanted, *_INSIDE) if inside else wanted
            missing = [each for each in wanted_here if not has_action(actions or set(), each)]
            if role is not None and actions is not None and missing:
                found = f"{user.id} takes this role, which may not {', '.join(missing)}"
                yield role.find(Code.POLICY, (), found, f"allow {', '.join(missing)}")


def secrets(templates: TemplateSet) -> Iterator[Finding]:
    """Require of the role of a build the right to read what its variables take from elsewhere.

    CodeBuild User Guide, "Environment variables in build environments": the build ends in
    DOWNLOAD_SOURCE with AccessDeniedException.
    """
    for project in templates.resources("AWS::CodeBuild::Project"):
        environment = mapping(project.properties.get("Environment")) or {}
        role = templates.target(project.properties.get("ServiceRole"), project.file)
        actions = actions_of(role, templates) if role is not None else None
        for index, value in enumerate(items(environment.get("EnvironmentVariables")) or []):
            body = mapping(value) or {}
            action = _READS.get(text(body.get("Type")) or "")
            if action is not None and actions is not None and not has_action(actions, action):
                found = f"{shown(body.get('Name'))} is read with {role.id if role else ''}, which "
                found += f"may not {action}: the build does not start"
                path = ("Environment", "EnvironmentVariables", index)
                yield project.find(Code.POLICY, path, found, f"allow {action} in the role")


def pushes(templates: TemplateSet) -> Iterator[Finding]:
    """Require of the role of a build that pushes an image the right to do so.

    ECR User Guide, "IAM permissions for pushing an image": docker answers "denied: ... is not
    authorized to perform: ecr:InitiateLayerUpload" when the image is built. The token of the
    log-in is the registry's: no policy of a repository gives it, and ecr:PutImage alone does not.
    """
    told: list[Resource] = []
    for project in templates.resources("AWS::CodeBuild::Project"):
        script = text((mapping(project.properties.get("Source")) or {}).get("BuildSpec")) or ""
        role = templates.target(project.properties.get("ServiceRole"), project.file)
        actions = actions_of(role, templates) if role is not None else None
        puts = has_action(actions or set(), _IMAGE) and not has_action(actions or set(), _LOG_IN)
        if role is not None and role not in told and puts:
            told.append(role)
            found = f"{project.id} pushes an image with this role, which may not {_LOG_IN}: the "
            found += "log-in to the registry fails"
            yield role.find(Code.POLICY, (), found, f'allow {_LOG_IN} on Resource: "*"')
        # A repository may let the role in by a policy of its own.
        repositories = templates.resources("AWS::ECR::Repository")
        if any(not is_absent(each.properties.get("RepositoryPolicyText")) for each in repositories):
            continue
        if role is None or actions is None or not (_PUSHES.search(script) and "ecr" in script):
            continue
        missing = [f"ecr:{each}" for each in _PUSH if not has_action(actions, f"ecr:{each}")]
        # A part of them is said by parts.
        if len(missing) == len(_PUSH):
            found = f"{project.id} pushes an image with this role, which may not "
            found += f"{', '.join(missing)}"
            remedy = f"allow {', '.join(missing)} and ecr:BatchCheckLayerAvailability"
            yield role.find(Code.POLICY, (), found, f"{remedy} on the repository")


def actions_of(holder: Resource, templates: TemplateSet) -> set[str] | None:
    """Return what a role or policy allows, in small letters; None where there may be more."""
    if holder.type == ROLE:
        attached = any(
            holder in templates.targets(items(each.properties.get("Roles")) or [], each.file)
            or templates.target(each.properties.get("RoleName"), each.file) is holder
            for each in templates.resources(*HOLDERS)
        )
        if attached or not is_absent(holder.properties.get("ManagedPolicyArns")):
            return None
    return own_actions(holder)


def own_actions(holder: Resource) -> set[str] | None:
    """Return what the documents of a role or policy allow, without what is attached to it."""
    found: set[str] = set()
    for document in _documents(holder):
        listed = statements(document)
        if listed is None:
            return None
        for body in listed:
            given = body.get("Action")
            every = [given] if isinstance(given, str) else items(given)
            if not is_absent(body.get("NotAction")) or every is None:
                return None
            if body.get("Effect") == "Allow":
                found |= {each.lower() for each in words(given)}
    return found


def _documents(holder: Resource) -> list[Json]:
    own = holder.properties.get("PolicyDocument")
    inline = items(holder.properties.get("Policies"))
    if inline is None:
        return [None]
    listed = [(mapping(each) or {}).get("PolicyDocument") for each in inline]
    return listed if is_absent(own) else [own, *listed]


def may_push(role: Resource, templates: TemplateSet) -> bool:
    """Tell whether a role, or a policy attached to it, allows an image to be pushed."""
    for holder in templates.resources(*HOLDERS):
        attached = role in templates.targets(
            [*(items(holder.properties.get("Roles")) or []), holder.properties.get("RoleName")],
            holder.file,
        )
        if holder is role or attached:
            for _, body in granted(holder):
                if has_action({each.lower() for each in words(body.get("Action"))}, _IMAGE):
                    return True
    return False


def has_action(actions: set[str], action: str) -> bool:
    """Tell whether one of the actions, which may be patterns, is this one."""
    return any(fnmatchcase(action.lower(), each) for each in actions)


def bucket_keys(templates: TemplateSet) -> Iterator[Finding]:
    """Require the use of a bucket's key of who reads and writes its objects.

    S3 User Guide, "Using server-side encryption with AWS KMS keys": S3 answers AccessDenied.
    """
    keys = {
        bucket: key
        for bucket in templates.resources("AWS::S3::Bucket")
        if (key := _key_of(bucket, templates)) is not None
    }
    for role in templates.resources(ROLE) if keys else ():
        actions = actions_of(role, templates)
        if actions is None:
            continue
        reached = {each: None for each in _buckets(role, templates) if each in keys}
        for bucket in reached:
            key = keys[bucket]
            needed = [
                use
                for act, use in _USES
                if has_action(actions, act) and not has_action(actions, use)
            ]
            if not needed or _names_others(key):
                continue
            none = not any(each.startswith("kms:") for each in actions)
            said = f"use {key.id}" if none else f"{' or '.join(needed)} on {key.id}"
            found = f"reaches objects of {bucket.id} and may not {said}, which encrypts them"
            wanted = ["kms:Decrypt", "kms:GenerateDataKey"] if none else needed
            remedy = f"allow {' and '.join(wanted)} on {key.id}"
            yield role.find(Code.KEY_POLICY, (), found, remedy)
            break


def _key_of(bucket: Resource, templates: TemplateSet) -> Resource | None:
    encryption = mapping(bucket.properties.get("BucketEncryption")) or {}
    for value in items(encryption.get("ServerSideEncryptionConfiguration")) or []:
        default = mapping((mapping(value) or {}).get("ServerSideEncryptionByDefault")) or {}
        key = templates.target(default.get("KMSMasterKeyID"), bucket.file)
        if key is not None and key.type == "AWS::KMS::Key":
            return key
    return None


def _buckets(role: Resource, templates: TemplateSet) -> list[Resource]:
    """Return the buckets at hand whose objects a role may read or write."""
    found = []
    for document in _documents(role):
        for body in statements(document) or []:
            actions = {each.lower() for each in words(body.get("Action"))}
            if body.get("Effect") != "Allow" or not any(
                has_action(actions, each) for each in _OBJECTS
            ):
                continue
            value = body.get("Resource")
            for each in value if isinstance(value, list) else [value]:
                match = _PART.match(written(each) or "")
                target = templates.target({"Ref": match["name"]}, role.file) if match else None
                if target is not None:
                    found.append(target)
    return found


def _names_others(key: Resource) -> bool:
    """Tell whether a key's policy names somebody else than the account and services of AWS."""
    listed = statements(key.properties.get("KeyPolicy"))
    for body in listed or []:
        principal = mapping(body.get("Principal"))
        aws = (principal or {}).get("AWS")
        every = aws if isinstance(aws, list) else [] if is_absent(aws) else [aws]
        if principal is None or any(not (written(each) or "").endswith(":root") for each in every):
            return True
    return listed is None


def registry_layers(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a policy of the S3 endpoint that keeps nodes from the layers of images.

    ECR User Guide, "Amazon ECR interface VPC endpoints", minimum S3 bucket permissions: the layers
    are in prod-REGION-starport-layer-bucket.
    """
    nodes = any(True for _ in templates.resources("AWS::EKS::Nodegroup"))
    if not nodes and not any(_pulls_images(each) for each in templates.everything()):
        return
    for endpoint in templates.resources("AWS::EC2::VPCEndpoint"):
        name = written(endpoint.properties.get("ServiceName")) or ""
        listed = statements(endpoint.properties.get("PolicyDocument"))
        if not name.endswith(".s3") or not listed:
            continue
        resources = [
            written(each)
            for body in listed
            if body.get("Effect") == "Allow"
            for each in _every(body.get("Resource"))
        ]
        known = [each for each in resources if each]
        wide = any(_may_hold_layers(each) for each in known)
        if len(known) == len(resources) and not wide:
            found = "its policy leaves out the bucket of ECR's image layers: no image is pulled"
            remedy = "allow s3:GetObject on arn:aws:s3:::prod-REGION-starport-layer-bucket/*"
            level = Level.ERROR if nodes else Level.WARNING
            path = ("PolicyDocument",)
            yield endpoint.find(Code.ENDPOINT_UNUSED, path, found, remedy, level)


def _pulls_images(resource: Resource) -> bool:
    """Tell what runs containers, or the way to their registry."""
    name = written(resource.properties.get("ServiceName")) or ""
    return resource.type.startswith(_RUNS_IMAGES) or name.endswith((".ecr.api", ".ecr.dkr"))


def _may_hold_layers(resource: str) -> bool:
    name = resource.rpartition(":::")[2]
    return "starport" in name or name.startswith(("*", "${AWS::NoValue}")) or text(name) == ""


def _every(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]
