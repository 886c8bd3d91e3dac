"""Rules over smaller settings of networks, builds, keys, repositories and file systems."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.role_needs import may_push
from megatron_eks.rules.secret_words import holds_secret
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    shown,
    text,
    truth,
    written,
)

_CLOSE = 0.8
# What nodes, pods and CodeBuild of a training cluster call (EKS User Guide, "Deploy private
# clusters with limited internet access").
_SERVICES = (
    *("autoscaling", "bedrock", "codebuild", "ec2", "ec2messages", "ecr.api", "ecr.dkr", "eks"),
    *("eks-auth", "elasticfilesystem", "elasticloadbalancing", "fsx", "kms", "logs"),
    *("monitoring", "s3", "sagemaker.api", "secretsmanager", "sqs", "ssm", "ssmmessages", "sts"),
    *("xray", "dynamodb", "sns", "s3express", "aps-workspaces", "codecommit", "git-codecommit"),
)
_SERVICE_NAME = re.compile(
    r"com\.amazonaws\.(\$\{[A-Za-z0-9:]+\}|[a-z0-9-]+)\.(?P<service>[a-z0-9.-]+)"
)
_DOCKER = re.compile(r"\b(docker|buildx|dockerd|podman|kaniko)\s+(build|push|run|buildx|login)\b")
_WITHOUT_DOCKER = re.compile(r"\b(buildah|buildpacks|crane|jib|kaniko|ko|oras|pack|skopeo)\b")
_WINDOW = re.compile(r"[1-7]:([01][0-9]|2[0-3]):[0-5][0-9]")
_ADDON_VERSION = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.-]+)*-eksbuild\.[0-9]+")
# AWS's own, whose versions are those of EKS's builds (EKS User Guide, "AWS add-ons", and
# metrics-server of "Community add-ons").
_ADDONS = frozenset(
    {
        *("aws-ebs-csi-driver", "aws-efs-csi-driver", "aws-fsx-csi-driver", "coredns"),
        *("aws-mountpoint-s3-csi-driver", "eks-node-monitoring-agent", "eks-pod-identity-agent"),
        *("kube-proxy", "metrics-server", "vpc-cni"),
    }
)


# Names that people make up after the service's own, and what it is called here.
_MADE_UP = {
    "cloudwatch": "monitoring",
    "cloudwatch-logs": "logs",
    "ecr": "ecr.api and ecr.dkr",
    "efs": "elasticfilesystem",
    "eks-pod-identity": "eks-auth",
    "elb": "elasticloadbalancing",
    "fsx-lustre": "fsx",
    "s3-gateway": "s3",
}


def endpoints(templates: TemplateSet) -> Iterator[Finding]:
    """Require endpoints of services that exist, and that names lead to.

    AWS PrivateLink, "AWS services that integrate"; EKS User Guide, "Deploy private clusters".
    """
    for endpoint in templates.resources("AWS::EC2::VPCEndpoint"):
        match = _SERVICE_NAME.fullmatch(written(endpoint.properties.get("ServiceName")) or "")
        name = match["service"] if match else None
        close = get_close_matches(name, _SERVICES, 1, _CLOSE) if name else []
        made_up = name in _MADE_UP
        if (
            name is not None
            and close
            and name not in _SERVICES
            and not _known(name)
            and not made_up
        ):
            path, found = ("ServiceName",), f"no service {shown(name)} that this resembles"
            remedy = f"did you mean {close[0]}?"
            yield endpoint.find(Code.ENDPOINT_NAME, path, found, remedy, Level.WARNING)
        elif made_up and name is not None:
            found, remedy = f"no service {shown(name)}: EC2 refuses it", f"write {_MADE_UP[name]}"
            yield endpoint.find(Code.ENDPOINT_NAME, ("ServiceName",), found, remedy)
        kind = text(endpoint.properties.get("VpcEndpointType"))
        # A service of somebody else's has a name that is made for the endpoint alone.
        of_others = ".vpce-svc-" in (written(endpoint.properties.get("ServiceName")) or "")
        named = of_others or truth(endpoint.properties.get("PrivateDnsEnabled")) is not False
        if kind == "Interface" and not named:
            found = "the service's usual name does not lead here, so nothing uses the endpoint"
            path = ("PrivateDnsEnabled",)
            yield endpoint.find(Code.ENDPOINT_NAME, path, found, "set it to true", Level.WARNING)


def _known(name: str) -> bool:
    """Tell a longer name of a family, such as `ecs-agent` or `s3-outposts`."""
    return any(name.startswith((f"{each}-", f"{each}.")) for each in _SERVICES)


def builds(templates: TemplateSet) -> Iterator[Finding]:
    """Require privileges of builds that call docker, and secrets that are not written out.

    CodeBuild User Guide, "Docker sample" and "Environment variables in build environments".
    """
    for project in templates.resources("AWS::CodeBuild::Project"):
        environment = mapping(project.properties.get("Environment")) or {}
        script = text((mapping(project.properties.get("Source")) or {}).get("BuildSpec")) or ""
        privileged = environment.get("PrivilegedMode")
        off = is_absent(privileged) or truth(privileged) is False
        calls = _DOCKER.search(script) is not None
        if off and (calls or _pushes(project, environment, script, templates)):
            found = "the build calls docker, whose daemon does not start without privileges"
            if not calls:
                found = "the build pushes an image, and docker's daemon needs privileges to make it"
            path = ("Environment", "PrivilegedMode")
            yield project.find(Code.BUILD_COMPUTE, path, found, "set it to true")
        yield from _build_source(project, environment)
        for index, value in enumerate(items(environment.get("EnvironmentVariables")) or []):
            variable = mapping(value) or {}
            name, content = text(variable.get("Name")) or "", text(variable.get("Value"))
            plain = variable.get("Type") in (None, "PLAINTEXT")
            if plain and content is not None and holds_secret(name, content):
                places = ("Environment", "EnvironmentVariables", index, "Value")
                yield _secret(project, places, f"{shown(name)} holds a secret")
    for secret in templates.resources("AWS::SecretsManager::Secret"):
        written = text(secret.properties.get("SecretString"))
        if written and not is_placeholder(written):
            yield _secret(secret, ("SecretString",), "a secret in plain words")


def _pushes(
    project: Resource, environment: "dict[str, Json]", script: str, templates: TemplateSet
) -> bool:
    """Tell a build in an image of CodeBuild's, which holds Docker alone, that pushes an image."""
    role = templates.target(project.properties.get("ServiceRole"), project.file)
    image = text(environment.get("Image")) or ""
    without = _WITHOUT_DOCKER.search(script) is not None
    own = image.startswith("aws/codebuild/") and bool(script)
    return role is not None and own and not without and may_push(role, templates)


def _build_source(project: Resource, environment: "dict[str, Json]") -> Iterator[Finding]:
    """Judge a build's processor, and where it finds source and steps."""
    kind, image = text(environment.get("Type")) or "", text(environment.get("Image")) or ""
    arm = kind.startswith("ARM_")
    # CodeBuild's own images are of x86_64 where their names do not say aarch64.
    other = ("x86_64" in image) if arm else ("aarch64" in image)
    other |= arm and image.startswith("aws/codebuild/") and "aarch64" not in image
    if kind and other:
        found = f"{shown(image)} does not run in {kind}"
        remedy = "use an image of aarch64" if arm else "use an image of x86_64, or ARM_CONTAINER"
        yield project.find(Code.BUILD_COMPUTE, ("Environment", "Image"), found, remedy)
    source = mapping(project.properties.get("Source")) or {}
    place, steps = written(source.get("Location")) or "", text(source.get("BuildSpec")) or ""
    if source.get("Type") == "S3" and place.startswith("s3:"):
        found = f"{shown(place)} as a source: CodeBuild refuses it"
        path = ("Source", "Location")
        yield project.find(Code.BUILD_COMPUTE, path, found, "write BUCKET/KEY, without s3://")
    if source.get("Type") == "GITHUB" and place and not place.startswith(("https://", "$", "CODE")):
        found = f"{shown(place)} as a source: CodeBuild refuses it"
        path = ("Source", "Location")
        yield project.find(Code.BUILD_COMPUTE, path, found, "write https://github.com/OWNER/NAME")
    if source.get("Type") == "NO_SOURCE" and is_absent(source.get("BuildSpec")):
        found, path = "no source and no steps: CodeBuild refuses it", ("Source", "BuildSpec")
        yield project.find(
            Code.BUILD_COMPUTE, path, found, "write the steps here, or name a source"
        )
    if "phases:" in steps and not re.search(r"^version:", steps, re.MULTILINE):
        found, path = "steps without a version: every build fails", ("Source", "BuildSpec")
        yield project.find(Code.BUILD_COMPUTE, path, found, "begin with version: 0.2")


def _secret(resource: Resource, path: "tuple[str | int, ...]", found: str) -> Finding:
    remedy = "keep it in Secrets Manager, name it there, and make the value invalid"
    return resource.find(Code.TEMPLATE_SECRET, path, found, remedy)


def keeping(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of keys that stay the same for ever, of tags that move, and of open file systems.

    AWS Foundational Security Best Practices, KMS.4, ECR.2 and EFS.1.
    """
    for key in templates.resources("AWS::KMS::Key"):
        spec = key.properties.get("KeySpec")
        symmetric = is_absent(spec) or spec == "SYMMETRIC_DEFAULT"
        rotates = key.properties.get("EnableKeyRotation")
        if symmetric and (is_absent(rotates) or truth(rotates) is False):
            yield _warn(key, ("EnableKeyRotation",), "a key that is never rotated")
    for repository in templates.resources("AWS::ECR::Repository"):
        mutable = repository.properties.get("ImageTagMutability")
        if is_absent(mutable) or mutable == "MUTABLE":
            found = "a tag can be moved to another image, also while a job restarts"
            remedy = "set it to IMMUTABLE"
            path = ("ImageTagMutability",)
            yield repository.find(Code.ENCRYPTION, path, found, remedy, Level.WARNING)
    for system in templates.resources("AWS::EFS::FileSystem"):
        if truth(system.properties.get("Encrypted")) is False:
            yield _warn(system, ("Encrypted",), "a file system that is not encrypted")


def _warn(resource: Resource, path: "tuple[str, ...]", found: str) -> Finding:
    return resource.find(Code.ENCRYPTION, path, found, "set it to true", Level.WARNING)


def lustre_details(templates: TemplateSet) -> Iterator[Finding]:
    """Require windows and owners in the form that FSx takes.

    FSx API, LustreConfiguration.
    """
    for system in templates.resources("AWS::FSx::FileSystem"):
        config = mapping(system.properties.get("LustreConfiguration")) or {}
        window = text(config.get("WeeklyMaintenanceStartTime"))
        if window is not None and not _WINDOW.fullmatch(window):
            place = ("LustreConfiguration", "WeeklyMaintenanceStartTime")
            found = f"{shown(window)} is no weekly time"
            yield system.find(Code.LUSTRE_SETTINGS, place, found, "write day:hour:minute, 1:05:00")


def addon_versions(templates: TemplateSet) -> Iterator[Finding]:
    """Require add-on versions as EKS writes them.

    EKS API, DescribeAddonVersions: v1.20.4-eksbuild.1.
    """
    for addon in templates.resources("AWS::EKS::Addon"):
        version = text(addon.properties.get("AddonVersion"))
        known = text(addon.properties.get("AddonName")) in _ADDONS
        if version is not None and known and not _ADDON_VERSION.fullmatch(version):
            found = f"EKS has no version {shown(version)}"
            remedy = "write it like v1.20.4-eksbuild.1"
            yield addon.find(Code.ADDON_NAME, ("AddonVersion",), found, remedy)
