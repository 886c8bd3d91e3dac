"""Rules over the custom resources by which the CDK's aws-eks makes clusters and installs charts."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.clusters import OLDEST_MINOR, past_support
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import items, mapping, shown, text, truth

_CLUSTER = "Custom::AWSCDK-EKS-Cluster"
_CHART = "Custom::AWSCDK-EKS-HelmChart"
_VERSION = re.compile(r"1\.([0-9]{1,2})")
_ANYWHERE = frozenset({"0.0.0.0/0", "::/0"})
_SECONDS = re.compile(r"([0-9]+)(s|m|h)")
_UNITS = {"s": 1, "m": 60, "h": 3600}
# AWS Lambda, "Quotas": a function runs for 900 seconds at most, and Helm waits within one.
_LONGEST = 900
_CLOSE = 0.8
# The charts of the repositories that GPU clusters use: aws/eks-charts, stable; NVIDIA's pages.
_CHARTS = {
    "https://aws.github.io/eks-charts": (
        *("aws-cloudwatch-metrics", "aws-efa-k8s-device-plugin", "aws-for-fluent-bit"),
        *("aws-load-balancer-controller", "aws-node-termination-handler", "aws-vpc-cni"),
        *("cni-metrics-helper", "csi-secrets-store-provider-aws"),
    ),
    "https://nvidia.github.io/k8s-device-plugin": (
        *("gpu-feature-discovery", "nvidia-device-plugin"),
    ),
    "https://nvidia.github.io/dcgm-exporter/helm-charts": ("dcgm-exporter",),
}
_PLUGIN = "nvidia-device-plugin"
_WITH_MOFED = re.compile(r"v?0\.19\.[0-2]")


def clusters(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a cluster that the CDK's Lambda makes what EKS takes of others.

    aws-cdk-lib, aws-eks, cluster-resource.ts: `Config` is the request of CreateCluster; EKS User
    Guide, "Kubernetes release calendar" and "Cluster API server endpoint".
    """
    for cluster in templates.resources(_CLUSTER):
        config = mapping(cluster.properties.get("Config")) or {}
        version = text(templates.default(config.get("version"), cluster.file)) or ""
        match = _VERSION.fullmatch(version)
        path: Path = ("Config", "version")
        if match and int(match[1]) < OLDEST_MINOR:
            found, remedy = (
                f"EKS no longer runs Kubernetes {version}",
                f"use 1.{OLDEST_MINOR} or later",
            )
            yield cluster.find(Code.CLUSTER_VERSION, path, found, remedy)
        elif late := past_support(version):
            yield cluster.find(Code.CLUSTER_VERSION, path, *late, Level.WARNING)
        network = mapping(config.get("resourcesVpcConfig")) or {}
        ranges = items(network.get("publicAccessCidrs")) or []
        open_to = next((each for each in ranges if text(each) in _ANYWHERE), None)
        if open_to is not None and truth(network.get("endpointPublicAccess")) is not False:
            path = ("Config", "resourcesVpcConfig", "publicAccessCidrs")
            remedy = "list your own address ranges, by EndpointAccess.only_from"
            found = f"the API endpoint answers {shown(open_to)}"
            yield cluster.find(Code.ENDPOINT_OPEN, path, found, remedy)


def charts(templates: TemplateSet) -> Iterator[Finding]:
    """Require charts that their repositories have, and waits that a Lambda can wait.

    aws-cdk-lib, aws-eks, helm-chart.ts, timeout (aws-cdk issue 22257); NVIDIA/k8s-device-plugin,
    issue 1692: 0.19.0 to 0.19.2 take the devices of the plugin for EFA.
    """
    for chart in templates.resources(_CHART):
        name = text(chart.properties.get("Chart")) or ""
        repository = (text(chart.properties.get("Repository")) or "").rstrip("/")
        known = _CHARTS.get(repository, ())
        close = get_close_matches(name, known, 1, _CLOSE) if name not in known else []
        if close:
            found = f"{repository} has no chart {shown(name)}: Helm ends, and the stack with it"
            yield chart.find(Code.PLATFORM_PART, ("Chart",), found, f"did you mean {close[0]}?")
        yield from _timeout(chart)
        if name == _PLUGIN and _WITH_MOFED.fullmatch(text(chart.properties.get("Version")) or ""):
            values = chart.properties.get("Values")
            if values is None or (isinstance(values, str) and "mofedEnabled" not in values):
                found = "0.19.0 to 0.19.2 have MOFED on, and take the devices of the plugin for EFA"
                remedy = "use 0.19.3 or later, or set mofedEnabled to false in its values"
                path: Path = ("Version",)
                yield chart.find(Code.PLATFORM_PART, path, found, remedy, Level.WARNING)


def _timeout(chart: Resource) -> Iterator[Finding]:
    value: Json = chart.properties.get("Timeout")
    match = _SECONDS.fullmatch(text(value) or "")
    if match and int(match[1]) * _UNITS[match[2]] > _LONGEST:
        found = f"a wait of {match[0]}, and the Lambda that waits runs for {_LONGEST} s at most: "
        found += "it is ended, and the release stays pending"
        yield chart.find(Code.PLATFORM_PART, ("Timeout",), found, "write 900s or less")
