"""Rule over the tags by which the Cluster Autoscaler knows nodes of a group that has none yet."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.cloudformation.own_nodes import scaled
from megatron_eks.rules.launch_templates import launch_templates
from megatron_eks.rules.node_start import user_data_of
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_placeholder, items, mapping, text, written

_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
_TAINT = re.compile(r".*:(NoSchedule|NoExecute|PreferNoSchedule)")
_LABELS = re.compile(r"--node-labels[= ]+[\"']?(?P<labels>[^\s\"'\\]+)")


def templates_of_nodes(templates: TemplateSet) -> Iterator[Finding]:
    """Require tags that say what the group's nodes will be: taints, labels, GPUs and EFA.

    kubernetes/autoscaler, cluster-autoscaler/cloudprovider/aws: README.md, "Auto-Discovery Setup",
    and aws_manager.go, extractTaintsFromAsg, which passes over a value without an effect. From 0
    nodes it decides by these tags alone: it starts nodes on which the pod then finds no place.
    """
    known = {template.resource: template for template in launch_templates(templates)}
    for nodes in scaled(templates):
        template = known.get(nodes.template)
        if template is None:
            continue
        data = user_data_of(template) or ""
        given = ",".join(match["labels"] for match in _LABELS.finditer(data))
        labels = dict(each.partition("=")[::2] for each in given.split(",") if each)
        for index, value in enumerate(items(nodes.group.properties.get("Tags")) or []):
            tag = mapping(value) or {}
            key, said = written(tag.get("Key")) or "", text(tag.get("Value"))
            if not key.startswith(_TEMPLATE) or said is None or is_placeholder(said):
                continue
            kind, _, name = key.removeprefix(_TEMPLATE).partition("/")
            # Labels with what only CloudFormation knows may be any.
            own = None if "$" in given else labels
            wrong = _wrong(kind, name, said, own, template.instance)
            if wrong is not None:
                path = ("Tags", index, "Value")
                yield nodes.group.find(Code.NODE_TAG, path, *wrong, Level.WARNING)


def _wrong(
    kind: str, name: str, said: str, labels: "dict[str, str] | None", instance: InstanceType | None
) -> tuple[str, str] | None:
    """Say what is wrong with the value of a tag, and what to write."""
    if kind == "taint" and not _TAINT.fullmatch(said):
        found = f"the taint {name} as {said!r}, without an effect: the autoscaler passes over it"
        return found, f"write {said or 'true'}:NoSchedule"
    if kind == "label" and labels and labels.get(name, said) != said:
        found = f"label {name} is {said!r} here, and the nodes' own is {labels[name]!r}: pods that "
        return found + "ask for one of them get no node", f"write {labels[name]}"
    devices = {
        "nvidia.com/gpu": instance.gpus if instance else None,
        "vpc.amazonaws.com/efa": instance.efa_interfaces if instance else None,
    }
    has = devices.get(name) if kind == "resources" else None
    if instance is not None and has is not None and said.isdigit() and int(said) > has:
        found = f"{said} of {name}, and {instance.name} has {has}: the autoscaler starts nodes for "
        return found + "pods that find no room on them", f'write "{has}"'
    return None
