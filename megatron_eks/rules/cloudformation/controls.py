"""Rules over the security controls that a template shows: access, logs, encryption, builds."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path, choices
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.security_groups import ALL, GROUP, protocol_of
from megatron_eks.rules.policies import HOLDERS, granted, of_pods, words
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, number, shown, text, truth

# CodeBuild API, ProjectEnvironment.computeType, read 2026-11.
_COMPUTE = (
    *("ATTRIBUTE_BASED_COMPUTE", "CUSTOM_INSTANCE_TYPE", "BUILD_GENERAL1_SMALL"),
    *("BUILD_GENERAL1_MEDIUM", "BUILD_GENERAL1_LARGE", "BUILD_GENERAL1_XLARGE"),
    *("BUILD_GENERAL1_2XLARGE", "BUILD_LAMBDA_1GB", "BUILD_LAMBDA_2GB", "BUILD_LAMBDA_4GB"),
    *("BUILD_LAMBDA_8GB", "BUILD_LAMBDA_10GB"),
)
_ANYWHERE = frozenset({"0.0.0.0/0", "::/0"})
_SSH = 22
# What a person logs in by, or changes files by; a web server's ports are its own affair.
_LATE_PORTS = (_SSH, 988, 2049, 6443, 10250)


def build_compute(templates: TemplateSet) -> Iterator[Finding]:
    """Require a size of CodeBuild's own, which no schema lists.

    CodeBuild API, ProjectEnvironment.computeType.
    """
    for project in templates.resources("AWS::CodeBuild::Project"):
        environment = mapping(project.properties.get("Environment")) or {}
        name = text(environment.get("ComputeType"))
        if name is not None and name not in _COMPUTE:
            found = f"{shown(name)} is unknown to CodeBuild"
            path = ("Environment", "ComputeType")
            yield project.find(Code.BUILD_COMPUTE, path, found, choices(name, _COMPUTE))


def cluster_controls(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a cluster without audit log, with rights in a ConfigMap, or that nobody can reach.

    EKS Best Practices, "Detective controls" and "Identity and access management"; CIS EKS
    Benchmark 2.1.1 and 4.1.7; EKS API, VpcConfigRequest.
    """
    for cluster in templates.resources("AWS::EKS::Cluster"):
        yield from _audit_log(cluster)
        access = mapping(cluster.properties.get("AccessConfig"))
        if access is not None and (
            is_absent(access.get("AuthenticationMode"))
            or text(access.get("AuthenticationMode")) == "CONFIG_MAP"
        ):
            found = "rights in the ConfigMap aws-auth alone, which one mistake locks everybody out"
            path: Path = ("AccessConfig", "AuthenticationMode")
            yield cluster.find(
                Code.CLUSTER_CONTROL,
                path,
                found,
                "set it to API, and add access entries",
                Level.WARNING,
            )
        config = mapping(cluster.properties.get("ResourcesVpcConfig")) or {}
        public = config.get("EndpointPublicAccess")
        private = config.get("EndpointPrivateAccess")
        if truth(public) is False and (is_absent(private) or truth(private) is False):
            found = "neither public nor private access: EKS refuses the cluster"
            path = ("ResourcesVpcConfig", "EndpointPrivateAccess")
            yield cluster.find(Code.CLUSTER_CONTROL, path, found, "set it to true")


def _audit_log(cluster: Resource) -> Iterator[Finding]:
    logging = mapping(cluster.properties.get("Logging"))
    inner = mapping((logging or {}).get("ClusterLogging"))
    types = items((inner or {}).get("EnabledTypes"))
    if logging is None or inner is None or types is None:
        return
    names = {text((mapping(each) or {}).get("Type")) for each in types}
    if "audit" not in names and None not in names:
        found = "no audit log, so nobody can tell afterwards who did what"
        path = ("Logging", "ClusterLogging", "EnabledTypes")
        yield cluster.find(Code.CLUSTER_CONTROL, path, found, "add Type: audit", Level.WARNING)


def encryption(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of disks without encryption, and of buckets that are opened on purpose.

    EKS Best Practices, "Data encryption and secrets management"; AWS Foundational Security Best
    Practices, S3.8.
    """
    for template in templates.resources("AWS::EC2::LaunchTemplate"):
        data = mapping(template.properties.get("LaunchTemplateData")) or {}
        for index, value in enumerate(items(data.get("BlockDeviceMappings")) or []):
            disk = mapping((mapping(value) or {}).get("Ebs")) or {}
            if disk and truth(disk.get("Encrypted")) is False:
                path: Path = ("LaunchTemplateData", "BlockDeviceMappings", index, "Ebs")
                found = "a disk that is not encrypted"
                yield _warn(
                    template, Code.ENCRYPTION, (*path, "Encrypted"), found, "set it to true"
                )
    for bucket in templates.resources("AWS::S3::Bucket"):
        block = mapping(bucket.properties.get("PublicAccessBlockConfiguration")) or {}
        for key, value in block.items():
            if truth(value) is False:
                path = ("PublicAccessBlockConfiguration", key)
                yield _warn(bucket, Code.OPEN_TO_ALL, path, f"{key} is off", "set it to true")
        acl = text(bucket.properties.get("AccessControl")) or ""
        if acl.startswith("Public"):
            found = f"{acl}: everybody reads the bucket"
            yield bucket.find(Code.OPEN_TO_ALL, ("AccessControl",), found, "remove it")


def open_to_all(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse groups that admit the internet to everything, and warn of rights to everything.

    AWS Foundational Security Best Practices, EC2.13 and EC2.19; EKS Best Practices, "Hosts".
    """
    for group in templates.resources(GROUP):
        inline = items(group.properties.get("SecurityGroupIngress")) or []
        for index, value in enumerate(inline):
            yield from _from_anywhere(group, ("SecurityGroupIngress", index), mapping(value) or {})
    for rule in templates.resources(f"{GROUP}Ingress"):
        yield from _from_anywhere(rule, (), rule.properties)
    reported = of_pods(templates)  # by the rule about the roles of pods, as an error
    for holder in templates.resources(*HOLDERS):
        for path, statement in granted(holder) if holder not in reported else ():
            if all("*" in words(statement.get(key)) for key in ("Action", "Resource")):
                found = "every action on every resource of the account"
                remedy = "list the actions and resources"
                yield _warn(holder, Code.OPEN_TO_ALL, path, found, remedy)


def remote_access(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a key for SSH without the groups that it is for.

    EKS API, RemoteAccessConfig: without source security groups port 22 of all nodes is opened to
    the internet.
    """
    for group in templates.resources("AWS::EKS::Nodegroup"):
        access = mapping(group.properties.get("RemoteAccess")) or {}
        if is_absent(access.get("Ec2SshKey")) or not is_absent(
            group.properties.get("LaunchTemplate")
        ):
            continue
        if items(access.get("SourceSecurityGroups")) == []:
            found = "a key and no groups: EKS opens TCP 22 of all nodes to 0.0.0.0/0"
            remedy = "name the bastion's group, or remove RemoteAccess and use Session Manager"
            path = ("RemoteAccess", "SourceSecurityGroups")
            yield _warn(group, Code.OPEN_TO_ALL, path, found, remedy)


def _from_anywhere(resource: Resource, path: Path, rule: "Mapping[str, Json]") -> Iterator[Finding]:
    ranges = {text(rule.get("CidrIp")), text(rule.get("CidrIpv6"))} & _ANYWHERE
    if not ranges:
        return
    protocol, first, last = (
        protocol_of(rule.get("IpProtocol")),
        number(rule.get("FromPort")),
        number(rule.get("ToPort")),
    )
    said = min(each for each in ranges if each)
    remedy = "name your own range, or a security group"
    if protocol == ALL:
        found = f"all traffic from {said}"
        yield resource.find(Code.OPEN_TO_ALL, path, found, remedy)
    elif protocol == "tcp" and first is not None and last is not None:
        port = next((each for each in _LATE_PORTS if first <= each <= last), None)
        if port is not None:
            found = f"TCP {port} from {said}"
            yield _warn(resource, Code.OPEN_TO_ALL, path, found, remedy)


def _warn(resource: Resource, code: Code, path: Path, found: str, remedy: str) -> Finding:
    return resource.find(code, path, found, remedy, Level.WARNING)
