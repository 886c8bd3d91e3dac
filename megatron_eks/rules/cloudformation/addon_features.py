"""Rule over add-ons that are too old for what stands beside them."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.launch_templates import launch_templates
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import items, shown, text, truth

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)(-.*)?")
Version = tuple[int, int, int]

# amazon-vpc-cni-k8s, releases: what came with which version.
_EFA_ONLY: Version = (1, 18, 5)
_PREFIXES: Version = (1, 9, 0)
_POLICIES: Version = (1, 14, 0)
# EKS User Guide, "EKS Pod Identity", minimum versions of add-ons that take a role so.
_IDENTITY: dict[str, Version] = {
    "aws-ebs-csi-driver": (1, 26, 0),
    "aws-efs-csi-driver": (2, 0, 0),
    "vpc-cni": (1, 15, 5),
}


def versions(templates: TemplateSet) -> Iterator[Finding]:
    """Require add-ons new enough for what is used with them.

    EKS User Guide, "Run machine learning training on Amazon EKS with Elastic Fabric Adapter": the
    VPC CNI manages efa-only interfaces as its own before 1.18.5; "EKS Pod Identity restrictions".
    """
    efa_only = any(
        interface.type == "efa-only" and template.node_groups
        for template in launch_templates(templates)
        for interface in template.interfaces or []
    )
    for addon in templates.resources("AWS::EKS::Addon"):
        name = text(templates.default(addon.properties.get("AddonName"), addon.file))
        written = templates.default(addon.properties.get("AddonVersion"), addon.file)
        match = _VERSION.fullmatch(text(written) or "")
        if match is None or name is None:
            continue
        version = (int(match[1]), int(match[2]), int(match[3]))
        settings = text(addon.properties.get("ConfigurationValues")) or ""
        needs: list[tuple[bool, Version, str]] = [
            (name == "vpc-cni" and efa_only, _EFA_ONLY, "efa-only interfaces"),
            (
                name == "vpc-cni" and _is_on("ENABLE_PREFIX_DELEGATION", settings),
                _PREFIXES,
                "these settings",
            ),
            (
                name == "vpc-cni" and _is_on("enableNetworkPolicy", settings),
                _POLICIES,
                "these settings",
            ),
            (
                name in _IDENTITY and bool(items(addon.properties.get("PodIdentityAssociations"))),
                _IDENTITY.get(name, (0, 0, 0)),
                "pod identities",
            ),
        ]
        for used, least, what in needs:
            if used and version < least:
                wanted = ".".join(map(str, least))
                found = f"{shown(written)}, and {name} knows {what} from {wanted} on"
                remedy = f"use v{wanted} or newer"
                yield addon.find(Code.VERSION_SKEW, ("AddonVersion",), found, remedy)
                break


def _is_on(key: str, settings: str) -> bool:
    match = re.search(rf"{key}[\"']?\s*:\s*[\"']?(\w+)", settings)
    return match is not None and truth(match[1]) is True
