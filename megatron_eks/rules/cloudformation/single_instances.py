"""Rules over single instances, such as the host by which people come in: their image."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import DATA
from megatron_eks.rules.node_groups import is_arm
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, mapping, text, written

# Systems Manager User Guide, "Calling AMI public parameters".
_PUBLIC = re.compile(
    r"/aws/service/ami-amazon-linux-latest/[a-z0-9.-]+-(?P<processor>x86_64|arm64)\b"
)


def images(templates: TemplateSet) -> Iterator[Finding]:
    """Require of an instance an image, of its type's processor.

    EC2 API, RunInstances: MissingParameter without ImageId, here or in the launch template;
    InvalidParameterValue where the architectures of the two do not match.
    """
    for instance in templates.resources("AWS::EC2::Instance"):
        used = mapping(instance.properties.get("LaunchTemplate"))
        data = _data(used or {}, instance, templates)
        # A launch template that is not at hand may say anything.
        if used is None or data is None:
            continue
        image = instance.properties.get("ImageId", data.get("ImageId"))
        names = templates.names(instance.file)
        if is_absent(image) and names is not None and names.whole:
            found = "no image, here or in a launch template: EC2 refuses the instance"
            yield instance.find(Code.AMI_TYPE, ("ImageId",), found, "add ImageId")
        given = templates.default(image, instance.file)
        match = _PUBLIC.search(text(given) or written(given) or "")
        kind = text(instance.properties.get("InstanceType", data.get("InstanceType"))) or ""
        if match and kind and (match["processor"] == "arm64") != is_arm(kind):
            other = "x86_64" if match["processor"] == "arm64" else "arm64"
            found = f"an image for {match['processor']}, and {kind} has another processor"
            path = ("ImageId",)
            yield instance.find(Code.AMI_TYPE, path, found, f"write {other} in its path")


def _data(
    used: dict[str, Json], instance: Resource, templates: TemplateSet
) -> dict[str, Json] | None:
    if not used:
        return {}
    target = templates.target(used.get("LaunchTemplateId"), instance.file)
    data = mapping(target.properties.get(DATA)) if target is not None else None
    return dict(data) if data is not None else None
