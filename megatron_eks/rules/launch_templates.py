"""Launch templates as the rules see them: interfaces, instance type, node groups that use them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.errors import Path
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, number, text

DATA = "LaunchTemplateData"
INTERFACES = "NetworkInterfaces"
EFA_TYPES = frozenset({"efa", "efa-only"})

# EC2 User Guide, "Accelerated computing instances": every P and G family has NVIDIA GPUs except
# g4ad, whose GPUs are AMD's.
_GPU_FAMILY = re.compile(r"(p[2-9]|gr?[3-9])(?!ad\b)[a-z0-9-]*\.")


@dataclass(frozen=True)
class Interface:
    """One network interface; a number or type that cannot be known is None."""

    index: int
    body: "Mapping[str, Json]"

    @property
    def path(self) -> Path:
        """Where it stands in its launch template."""
        return (DATA, INTERFACES, self.index)

    @property
    def card(self) -> int | None:
        """Its network card; EC2 takes the first where none is named."""
        return (
            0
            if is_absent(self.body.get("NetworkCardIndex"))
            else number(self.body["NetworkCardIndex"])
        )

    @property
    def device(self) -> int | None:
        """Its place on the card."""
        return number(self.body.get("DeviceIndex"))

    @property
    def type(self) -> str | None:
        """`interface` where nothing is said."""
        return (
            "interface"
            if is_absent(self.body.get("InterfaceType"))
            else text(self.body["InterfaceType"])
        )

    @property
    def is_efa(self) -> bool:
        """Tell whether the interface is surely an EFA one."""
        return self.type in EFA_TYPES


@dataclass(frozen=True)
class LaunchTemplate:
    """One launch template whose data can be read."""

    resource: Resource
    data: "Mapping[str, Json]"
    node_groups: Sequence[Resource]
    """The EKS node groups, among the templates at hand, that launch nodes from it."""

    @property
    def interfaces(self) -> list[Interface] | None:
        """Its interfaces; None when they cannot be known."""
        values = items(self.data.get(INTERFACES))
        bodies = [mapping(value) for value in values or []]
        if values is None or None in bodies:
            return None
        return [Interface(index, body or {}) for index, body in enumerate(bodies)]

    @property
    def has_efa(self) -> bool:
        """Tell whether at least one interface is surely an EFA one."""
        return any(interface.is_efa for interface in self.interfaces or [])

    @property
    def instance_type(self) -> str | None:
        """The one type that it launches, by itself or through its node groups."""
        if not is_absent(self.data.get("InstanceType")):
            return text(self.data["InstanceType"])
        types = {instance_type_of(group) for group in self.node_groups}
        return types.pop() if len(types) == 1 else None

    @property
    def instance(self) -> InstanceType | None:
        """What the catalogue knows of the type."""
        return INSTANCES.get(self.instance_type or "")


def launch_templates(templates: TemplateSet) -> Iterator[LaunchTemplate]:
    """Return every launch template whose data is written out."""
    users: dict[Resource, list[Resource]] = {}
    for group in templates.resources("AWS::EKS::Nodegroup"):
        used = launch_template_of(group, templates)
        if used is not None:
            users.setdefault(used, []).append(group)
    for resource in templates.resources("AWS::EC2::LaunchTemplate"):
        data = mapping(resource.properties.get(DATA))
        if data is not None:
            named = data.get("InstanceType")
            if isinstance(named, dict) and not is_absent(named):
                # What is launched where nobody says otherwise is what the template is for.
                data = {**data, "InstanceType": templates.default(named, resource.file)}
            yield LaunchTemplate(resource, data, users.get(resource, []))


def launch_template_of(group: Resource, templates: TemplateSet) -> Resource | None:
    """Return the launch template that a node group names by id or name, if it is at hand."""
    used = mapping(group.properties.get("LaunchTemplate")) or {}
    target = templates.target(used.get("Id"), group.file) or templates.target(
        used.get("Name"), group.file
    )
    if target is not None:
        return target if target.type == "AWS::EC2::LaunchTemplate" else None
    name = text(used.get("Name"))
    named = [
        resource
        for resource in templates.resources("AWS::EC2::LaunchTemplate")
        if name is not None and resource.properties.get("LaunchTemplateName") == name
    ]
    return named[0] if len(named) == 1 else None


def instance_type_of(group: Resource) -> str | None:
    """Return the type that a node group itself names, if it is exactly one."""
    types = items(group.properties.get("InstanceTypes")) or []
    return text(types[0]) if len(types) == 1 else None


def type_launched_by(group: Resource, templates: TemplateSet) -> str | None:
    """Return the one type of a node group's instances, named by itself or by its template."""
    used = launch_template_of(group, templates)
    data = mapping(used.properties.get(DATA)) if used is not None else None
    return instance_type_of(group) or text((data or {}).get("InstanceType"))


def has_gpus(instance_type: str) -> bool:
    """Tell whether instances of a type have NVIDIA GPUs."""
    return instance_type in INSTANCES or _GPU_FAMILY.match(instance_type) is not None
