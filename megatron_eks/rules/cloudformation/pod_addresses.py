"""Rule over how many pods a node takes, and how many its interfaces give an address to."""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import DATA, LaunchTemplate, launch_templates
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_absent, text

_MAX_PODS = re.compile(r"\bmaxPods\"?\s*:\s*\"?([0-9]+)")
# Without a number managed node groups take at most this many (EKS User Guide, "Create a managed
# node group").
_SMALL_VCPUS, _SMALL_CEILING, _CEILING = 30, 110, 250


def max_pods(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of nodes that take more pods than the VPC CNI has addresses for.

    Left alone, nodeadm counts every slot of the first card (amazon-eks-ami, `CalcMaxPods`), also
    one that an EFA-only interface takes: 100 pods on p5.48xlarge, and addresses for 51. Judged
    only beside a VPC CNI whose settings are at hand and ask for no prefixes.
    """
    if not _single_addresses(templates):
        return
    for template in launch_templates(templates):
        addressed = _addressed(template)
        taken = _taken(template) if addressed is not None else None
        if addressed is not None and taken is not None and taken > addressed:
            name = template.instance_type
            found = f"nodes take {taken} pods, and {name} has addresses for {addressed} here"
            remedy = f"set maxPods: {addressed} in NodeConfig's kubelet.config"
            yield template.resource.find(
                Code.MAX_PODS, (DATA, "UserData"), found, remedy, Level.WARNING
            )


def _single_addresses(templates: TemplateSet) -> bool:
    settings = [
        addon.properties.get("ConfigurationValues")
        for addon in templates.resources("AWS::EKS::Addon")
        if text(addon.properties.get("AddonName")) == "vpc-cni"
    ]
    return bool(settings) and all(
        is_absent(value) or (isinstance(value, str) and "PREFIX_DELEGATION" not in value)
        for value in settings
    )


def _addressed(template: LaunchTemplate) -> int | None:
    """Count the pods with an address; None where that cannot be known."""
    instance, interfaces = template.instance, template.interfaces
    if instance is None or not interfaces or not template.has_efa:
        return None
    places = {(nic.card, nic.type) for nic in interfaces}
    ordinary = {card for card, type_ in places if type_ != "efa-only"}
    if ordinary != {0} or any(None in place for place in places):
        return None
    behind = sum(nic.card == 0 and nic.type == "efa-only" for nic in interfaces)
    return instance.primary_card_pods - behind * (instance.ipv4_per_interface - 1)


def _taken(template: LaunchTemplate) -> int | None:
    """Return the kubelet's limit; None where another program than nodeadm may set it."""
    amis = [text(group.properties.get("AmiType")) or "" for group in template.node_groups]
    if not amis or not all(ami.startswith("AL2023") for ami in amis) or template.instance is None:
        return None
    if not is_absent(template.data.get("ImageId")):
        return None
    data = _user_data(template.data)
    if data is None or "maxPodsExpression" in data:
        return None
    given = _MAX_PODS.search(data)
    small = template.instance.vcpus < _SMALL_VCPUS
    ceiling = _SMALL_CEILING if small else _CEILING
    return int(given[1]) if given else min(ceiling, template.instance.primary_card_pods)


def _user_data(data: Mapping[str, Json]) -> str | None:
    value = data.get("UserData")
    if is_absent(value):
        return ""
    return text(value.get("Fn::Base64")) if isinstance(value, dict) else None
