"""Rules over EKS clusters and their add-ons."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.pins import ADDONS, KUBERNETES_STANDARD_SUPPORT_ENDS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, shown, text, truth

_ANYWHERE = frozenset({"0.0.0.0/0", "::/0"})
_VERSION = re.compile(r"1\.([0-9]{1,2})")

# EKS User Guide, "Kubernetes release calendar": extended support of 1.30 ended in July 2026.
OLDEST_MINOR = 31
# The same page: standard support of 1.33 ended on 2026-07-29.
_OLDEST_STANDARD = 34
_CLUSTER = "AWS::EKS::Cluster"

# EKS User Guide, "Available Amazon EKS add-ons from AWS", beside those that this project installs.
_ADDON_NAMES = frozenset(addon.name for addon in ADDONS) | {
    "adot",
    "amazon-cloudwatch-observability",
    "aws-efs-csi-driver",
    "aws-guardduty-agent",
    "aws-mountpoint-s3-csi-driver",
    "aws-network-flow-monitoring-agent",
    "aws-secrets-store-csi-driver-provider",
    "cert-manager",
    "external-dns",
    "fluent-bit",
    "kube-state-metrics",
    "prometheus-node-exporter",
    "snapshot-controller",
}
# What is installed by a chart or by manifests, and people look for among the add-ons, as
# aws/karpenter-provider-aws issues 7387 and 8830 do; a warning, since one may come any day.
_CHARTS = frozenset(
    {
        *("aws-efa-k8s-device-plugin", "aws-load-balancer-controller", "cluster-autoscaler"),
        *("aws-node-termination-handler", "dcgm-exporter", "efa-device-plugin", "gpu-operator"),
        *("ingress-nginx", "karpenter", "kubeflow", "kueue", "mpi-operator", "nvidia"),
        *("nvidia-device-plugin", "nvidia-gpu-operator", "nvidia-k8s-device-plugin", "volcano"),
        *("prometheus", "training-operator"),
    }
)
_SURELY_MEANT = 0.85
# What charts, images and guides put around the name of an add-on, and AWS does not.
_AROUND = re.compile(r"^(amazon-|aws-|eks-|k8s-)+|(-addon|-add-on|-driver|-k8s|-plugin)+$")


def endpoint(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse an API endpoint that answers the whole internet, which is EKS's default.

    EKS API, VpcConfigRequest.publicAccessCidrs.
    """
    for cluster in templates.resources("AWS::EKS::Cluster"):
        config = mapping(cluster.properties.get("ResourcesVpcConfig"))
        if config is None:
            continue
        public = config.get("EndpointPublicAccess")
        cidrs = items(config.get("PublicAccessCidrs"))
        if cidrs is None or not (is_absent(public) or truth(public)):
            continue
        open_to = next((cidr for cidr in cidrs if text(cidr) in _ANYWHERE), None)
        if not cidrs or open_to is not None:
            found = (
                f"the API endpoint answers {shown(open_to)}"
                if cidrs
                else "the API endpoint is public and answers every address"
            )
            path = ("ResourcesVpcConfig", "PublicAccessCidrs")
            remedy = "list your own address ranges, or set EndpointPublicAccess to false"
            yield cluster.find(Code.ENDPOINT_OPEN, path, found, remedy)


def versions(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse Kubernetes versions that EKS no longer creates.

    EKS User Guide, "Kubernetes release calendar".
    """
    for cluster in templates.resources("AWS::EKS::Cluster", "AWS::EKS::Nodegroup"):
        given = templates.default(cluster.properties.get("Version"), cluster.file)
        # YAML makes 1.3 of 1.30 without quotes.
        number_ = isinstance(given, int | float) and not isinstance(given, bool)
        value = str(given) if number_ else text(given)
        match = _VERSION.fullmatch(value) if value is not None else None
        if value is not None and match is None:
            found = f"{shown(value)} is no Kubernetes version of EKS"
            yield cluster.find(Code.CLUSTER_VERSION, ("Version",), found, 'write it like "1.35"')
        elif match and int(match[1]) < OLDEST_MINOR:
            found = f"EKS no longer runs Kubernetes {value}"
            remedy = f"use 1.{OLDEST_MINOR} or later"
            if number_ and len(match[1]) == 1:
                found = f"the number {value}: without quotes YAML drops the last 0 of 1.{match[1]}0"
                remedy = f'write a version of 1.{OLDEST_MINOR} or later in quotes, like "1.35"'
            yield cluster.find(Code.CLUSTER_VERSION, ("Version",), found, remedy)
        elif value is not None and cluster.type == _CLUSTER and (late := past_support(value)):
            yield cluster.find(Code.CLUSTER_VERSION, ("Version",), *late, Level.WARNING)


def past_support(version: str) -> tuple[str, str] | None:
    """Say what is wrong with a version that EKS runs for an extra price alone, and what to do.

    EKS User Guide, "Kubernetes release calendar"; EKS pricing: 0.60 USD an hour instead of 0.10.
    Which are past it is as of this release, so that the same file is judged the same on every day.
    """
    match = _VERSION.fullmatch(version)
    if match is None or not OLDEST_MINOR <= int(match[1]) < _OLDEST_STANDARD:
        return None
    found = f"standard support of Kubernetes {version} is over: the control plane costs six times "
    found += "as much, and EKS refuses a new one with SupportType STANDARD"
    known = (int(each.partition(".")[2]) for each in KUBERNETES_STANDARD_SUPPORT_ENDS)
    offered = [f"1.{each}" for each in known if each > _OLDEST_STANDARD]
    return found, f"use {' or '.join(offered)}"


def addon_names(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse an add-on whose name differs by a letter or two from one that AWS offers.

    EKS User Guide, "Available Amazon EKS add-ons from AWS"; names of the Marketplace are others.
    """
    for addon in templates.resources("AWS::EKS::Addon"):
        wrong = unknown_addon(text(addon.properties.get("AddonName")))
        if wrong is not None:
            yield addon.find(Code.ADDON_NAME, ("AddonName",), *wrong)


def unknown_addon(name: str | None) -> tuple[str, str, Level] | None:
    """Say what is wrong with an add-on's name, and what to do; None where nothing surely is."""
    if name is None or name in _ADDON_NAMES or "_" in name:
        return None
    if name in _CHARTS:
        found = f"{shown(name)} is none of EKS's add-ons: it is not made"
        return found, "remove it, and install its chart or manifests", Level.WARNING
    cut = [each for each in sorted(_ADDON_NAMES) if each.startswith(f"{name}-")]
    same = [each for each in sorted(_ADDON_NAMES) if _core(each) == _core(name)]
    close = cut or get_close_matches(name, sorted(_ADDON_NAMES), n=1, cutoff=_SURELY_MEANT)
    close = same or close
    if close:
        return f"unknown add-on {shown(name)}", f"did you mean {close[0]!r}?", Level.ERROR
    return None


def _core(name: str) -> str:
    """Return what is left of a name without what is around it, and without its hyphens."""
    return _AROUND.sub("", name).replace("-", "").replace("lustre", "")
