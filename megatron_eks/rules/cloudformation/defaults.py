"""Rules over what a template leaves unsaid, where what AWS does then is not what people mean."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.security_groups import GROUP
from megatron_eks.rules.launch_templates import LaunchTemplate, launch_templates
from megatron_eks.rules.lustre import file_systems
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, text, truth

_ANYWHERE = frozenset({"0.0.0.0/0", "::/0"})


def nodes_shut_out(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a public endpoint for some addresses that nodes have to use as well.

    EKS User Guide, "Cluster API server endpoint": without private access the nodes' requests leave
    the VPC, so the ranges must hold the addresses of its NAT gateways.
    """
    for cluster in templates.resources("AWS::EKS::Cluster"):
        config = mapping(cluster.properties.get("ResourcesVpcConfig")) or {}
        private, cidrs = config.get("EndpointPrivateAccess"), _ranges(cluster, config, templates)
        public = truth(config.get("EndpointPublicAccess")) is not False
        shut = public and (is_absent(private) or truth(private) is False)
        if shut and cidrs and not {*cidrs} & {*_ANYWHERE, None}:
            found = "no private access, and nodes are not in the ranges of the public one"
            path = ("ResourcesVpcConfig", "EndpointPrivateAccess")
            yield _warn(cluster, Code.CLUSTER_CONTROL, path, found, "set it to true")


def _ranges(
    cluster: Resource, config: "dict[str, Json]", templates: TemplateSet
) -> list[str | None]:
    """Return the ranges that a public endpoint answers, by their defaults where they have some."""
    given = templates.default(config.get("PublicAccessCidrs"), cluster.file)
    listed: list[Json] = [*given.split(",")] if isinstance(given, str) else items(given) or []
    known = [text(templates.default(each, cluster.file)) for each in listed]
    # Without a value of its own it is what people are asked for, and that may be everything.
    return [each.strip() if each and each.strip() else None for each in known]


def cluster_group(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of nodes with groups of one's own alone, none of which knows the cluster's.

    EKS User Guide, "View Amazon EKS security group requirements for clusters", and "Customize
    managed nodes with launch templates": EKS adds its group only where the template names none.
    """
    clusters = [*templates.resources("AWS::EKS::Cluster")]
    for template in launch_templates(templates) if clusters else ():
        groups = _groups(template)
        carried = [templates.target(each, template.resource.file) for each in groups]
        own = [each for each in carried if each is not None and each.type == GROUP]
        shut = _shut_out(template, groups, templates)
        path: Path = ("LaunchTemplateData",)
        alone = bool(own) and len(own) == len(carried)
        # What is not one of the templates' own groups may be the cluster's.
        if template.node_groups and alone and not any(_admits_others(e, templates) for e in own):
            found = "only groups that do not admit the control plane"
            remedy = (
                "add the cluster's group to each interface (Fn::GetAtt, ClusterSecurityGroupId)"
            )
            yield _warn(template.resource, Code.CLUSTER_GROUP, path, found, remedy)
        elif shut is not None:
            found = f"no interface of these nodes carries the group of {shut.id}, and that group "
            found += "admits nobody else: they do not reach the control plane, and never join"
            remedy = f"add Fn::GetAtt [{shut.id}, ClusterSecurityGroupId] to the groups"
            yield template.resource.find(Code.CLUSTER_GROUP, path, found, remedy)


def _shut_out(
    template: LaunchTemplate, groups: list[Json], templates: TemplateSet
) -> Resource | None:
    """Return the cluster whose group these nodes surely need and do not carry."""
    of_nodes = {
        templates.target(each.properties.get("ClusterName"), each.file)
        for each in template.node_groups
    }
    cluster = of_nodes.pop() if len(of_nodes) == 1 else None
    if cluster is None or cluster.type != "AWS::EKS::Cluster" or not groups:
        return None
    config = mapping(cluster.properties.get("ResourcesVpcConfig")) or {}
    # What is made with the cluster cannot be imported from elsewhere; all else may be its group.
    carried = templates.targets(groups, template.resource.file)
    known = all(
        target.type == GROUP if target is not None else _is_imported(each)
        for each, target in zip(groups, carried, strict=True)
    )
    if not known or items(config.get("SecurityGroupIds")) != []:
        return None
    private = truth(config.get("EndpointPrivateAccess")) is True
    opened = [
        templates.target(each.properties.get("GroupId"), each.file)
        for each in templates.resources(f"{GROUP}Ingress")
    ]
    at_hand = not any(each is cluster or each is None for each in opened)
    return cluster if private and at_hand else None


def _is_imported(value: Json) -> bool:
    return isinstance(value, dict) and "Fn::ImportValue" in value


def _groups(template: LaunchTemplate) -> list[Json]:
    found = items(template.data.get("SecurityGroupIds")) or []
    interfaces = template.interfaces or []
    primary = [each for each in interfaces if (each.card, each.device) == (0, 0)]
    for interface in (primary or interfaces)[:1]:
        found = [*found, *(items(interface.body.get("Groups")) or [])]
    return found


def _admits_others(group: Resource, templates: TemplateSet) -> bool:
    """Tell whether a group may admit the control plane, whose interfaces may carry it, too."""
    separate = [
        each
        for each in templates.resources(f"{GROUP}Ingress")
        if templates.target(each.properties.get("GroupId"), each.file) in {group, None}
    ]
    inline = items(group.properties.get("SecurityGroupIngress"))
    if inline is None:
        return True
    bodies = [(mapping(each) or {}, group.file) for each in inline]
    bodies += [(dict(each.properties), each.file) for each in separate]
    for body, file in bodies:
        source = body.get("SourceSecurityGroupId")
        target = templates.target(source, file)
        # Another group at hand is one of the templates' own, and no part of the control plane.
        if is_absent(source) or target is None or target.type != GROUP:
            return True
    attached = [
        item
        for cluster in templates.resources("AWS::EKS::Cluster")
        for item in items(
            (mapping(cluster.properties.get("ResourcesVpcConfig")) or {}).get("SecurityGroupIds")
        )
        or []
    ]
    return any(templates.target(each, group.file) is group for each in attached)


def left_over(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of interfaces that outlive their instance.

    EC2 API, LaunchTemplateInstanceNetworkInterfaceSpecificationRequest.DeleteOnTermination: they
    keep their addresses, and their groups and subnets cannot be deleted.
    """
    for template in launch_templates(templates):
        for interface in template.interfaces or []:
            if truth(interface.body.get("DeleteOnTermination")) is False:
                path = (*interface.path, "DeleteOnTermination")
                found = "the interface stays when its instance goes"
                yield _warn(template.resource, Code.EFA_INTERFACES, path, found, "set it to true")


def lustre(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a file system with the VPC's default group, or of a kind that nobody chose.

    FSx API, CreateFileSystem.SecurityGroupIds and DeploymentType: the default group does not admit
    Lustre's ports from others, and SCRATCH_1 is neither replicated nor encrypted in transit.
    """
    for system in file_systems(templates):
        groups = system.resource.properties.get("SecurityGroupIds")
        if is_absent(groups) or groups == []:
            found = "no groups, so the VPC's default one, which nodes are not in"
            remedy = "name a group that opens TCP 988 and 1018-1023 to the nodes"
            yield _warn(system.resource, Code.LUSTRE_PORTS, ("SecurityGroupIds",), found, remedy)
        if is_absent(system.settings.get("DeploymentType")):
            path = ("LustreConfiguration", "DeploymentType")
            found = "not given, so SCRATCH_1, whose data are lost with a server"
            remedy = "use PERSISTENT_2, or say SCRATCH_2"
            yield _warn(system.resource, Code.LUSTRE_SETTINGS, path, found, remedy)


def _warn(resource: Resource, code: Code, path: Path, found: str, remedy: str) -> Finding:
    return resource.find(code, path, found, remedy, Level.WARNING)
