"""Rule over GPU nodes that take the pods of everybody."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import has_gpus, type_launched_by
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import items, mapping

_MILD = "PREFER_NO_SCHEDULE"


def taints(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of GPU nodes without a taint, beside nodes that other pods could run on.

    Kubernetes, "Taints and Tolerations", "Example Use Cases", nodes with special hardware; Amazon
    EKS User Guide, "Recipe: Prevent pods from being scheduled on specific nodes".
    """
    groups = [*templates.resources("AWS::EKS::Nodegroup")]
    types = {each: type_launched_by(each, templates) for each in groups}
    plain = [each for each in groups if (name := types[each]) and not has_gpus(name)]
    for group in groups:
        others = [each for each in plain if _of_one_cluster(each, group)]
        listed = items(group.properties.get("Taints"))
        open_to_all = listed is not None and not any(_keeps_off(each) for each in listed)
        if others and open_to_all and has_gpus(types[group] or ""):
            found = f"no taint, so pods without GPUs run here as well as on {others[0].id}: they "
            found += (
                "take the CPUs and memory of jobs, and a node with one of them is not given back"
            )
            remedy = "add {Key: nvidia.com/gpu, Value: 'true', Effect: NO_SCHEDULE} to Taints"
            yield group.find(Code.SHARED_GPU_NODES, ("Taints",), found, remedy, Level.WARNING)


def _keeps_off(taint: Json) -> bool:
    """Tell a taint that keeps pods off, also where only CloudFormation knows it."""
    body = mapping(taint)
    return body is None or body.get("Effect") != _MILD


def _of_one_cluster(one: Resource, other: Resource) -> bool:
    return one.properties.get("ClusterName") == other.properties.get("ClusterName")
