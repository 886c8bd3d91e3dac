"""Rule over the instance types that a parameter lets be chosen, and what is written for one."""

from collections.abc import Iterator
from dataclasses import replace

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.errors import Finding
from megatron_eks.rules.cloudformation.by_defaults import deciding
from megatron_eks.rules.cloudformation.interfaces import efa_layout
from megatron_eks.rules.launch_templates import DATA, LaunchTemplate, launch_templates
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, text


def layouts(templates: TemplateSet) -> Iterator[Finding]:
    """Require that the interfaces of a launch template fit every type that may be chosen for it.

    CloudFormation User Guide, "Parameters", AllowedValues; EC2 User Guide, "Maximize network
    bandwidth on Amazon EC2 instances with multiple network cards": cards differ from type to type.
    """
    for template in launch_templates(templates):
        name = _chooser(template)
        if name is None or not template.has_efa or [*efa_layout(templates, [template])]:
            continue
        file = template.resource.file
        whole = next(body for each, body in templates.files() if each == file)
        parameter = mapping((templates.part(file, "Parameters") or {}).get(name)) or {}
        # What a condition asks is judged with each of its values.
        if name in deciding(whole):
            continue
        for value in items(parameter.get("AllowedValues")) or []:
            said = text(value) or ""
            if said not in INSTANCES:
                continue
            other = replace(template, data={**template.data, "InstanceType": said})
            wrong = next(efa_layout(templates, [other]), None)
            if wrong is not None:
                found = f"where {name} is {said}: {wrong.found}"
                remedy = f"take {said} out of the AllowedValues of {name}, or choose the "
                remedy += f"interfaces by a condition on it ({wrong.remedy})"
                yield replace(wrong, found=found, remedy=remedy)
                break


def _chooser(template: LaunchTemplate) -> str | None:
    """Return the parameter by which somebody chooses the one type of a launch template."""
    own = (mapping(template.resource.properties.get(DATA)) or {}).get("InstanceType")
    listed = [own]
    if is_absent(own):
        listed = [
            each
            for group in template.node_groups
            for each in items(group.properties.get("InstanceTypes")) or [None]
        ]
    names = {text(each.get("Ref")) if isinstance(each, dict) else None for each in listed}
    return names.pop() if len(names) == 1 else None
