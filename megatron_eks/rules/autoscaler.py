"""Rules over the cluster autoscaler's own arguments, and the cluster that they name."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.device_plugins import is_near
from megatron_eks.rules.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_IMAGE = re.compile(r"(^|/)cluster-autoscaler([:@]|$)")
_LEFT = re.compile(r"<[^>]*>|YOUR[ _-]CLUSTER", re.IGNORECASE)
_GROUP = re.compile(r"--nodes=([0-9]+):([0-9]+):(.+)")
_TAGS = re.compile(r"asg:tag=.+")
_OF_A_CLUSTER = re.compile(r"(?:[=,]|^)k8s\.io/cluster-autoscaler/([A-Za-z0-9][\w-]*)(?=[,=]|$)")
_NO_NAMES = ("enabled", "disabled", "node-template")
_DISCOVERY = "--node-group-auto-discovery="


def arguments(manifest: Manifest) -> Iterator[Finding]:
    """Require of the autoscaler the groups of nodes that it looks after.

    Cluster autoscaler, cloudprovider/aws/README.md: it finds groups by the tags of this cluster's
    name, or is given MIN:MAX:NAME; its example has a name to replace.
    """
    for container in _autoscalers(manifest):
        for path, word in container.words:
            wrong = _wrong(word)
            if wrong is not None:
                yield manifest.find(Code.MANIFEST_VALUE, path[1:], *wrong)


def _autoscalers(manifest: Manifest) -> Iterator[Container]:
    for pod in manifest.pods:
        for container in pod.containers:
            if _IMAGE.search(str(container.body.get("image"))):
                yield container


def clusters(together: ManifestSet) -> Iterator[Found]:
    """Warn of an autoscaler that looks for another cluster than the one that stands beside it.

    Cluster autoscaler, cloudprovider/aws/README.md, auto-discovery: groups have a tag with their
    cluster's name, and AWS_REGION says where it looks; else it scales nothing.
    """
    for manifest in together.objects:
        beside = [each for each in together.of("ClusterConfig") if is_near(manifest, each)]
        metadata = [mapping(each.body.get("metadata")) or {} for each in beside]
        names = [text(each.get("name")) for each in metadata]
        places = [text(each.get("region")) for each in metadata]
        for container in _autoscalers(manifest) if names else ():
            for path, word in container.words:
                asked = _OF_A_CLUSTER.findall(word.partition("=")[2])
                known = [each for each in asked if each not in _NO_NAMES]
                if word.startswith(_DISCOVERY) and known and not {*known} & {*names}:
                    found = f"{shown(known[0])}, and the cluster beside it is {shown(names[0])}: "
                    found += "it finds no group, and scales nothing"
                    yield _beside(manifest, path[1:], found, f"write {names[0]}")
            for each in container.variables:
                region = each.value or ""
                if each.name == "AWS_REGION" and region and region not in places:
                    if is_placeholder(region) or None in places:
                        continue
                    found = f"{shown(region)}, and the cluster beside it is in {places[0]}"
                    path = (*container.path[1:], "env", each.index)
                    yield _beside(manifest, path, found, f"write {places[0]}")


def _beside(manifest: Manifest, path: Path, found: str, remedy: str) -> Found:
    return manifest, manifest.find(Code.PLATFORM_PART, path, found, remedy, Level.WARNING)


def _wrong(word: str) -> tuple[str, str] | None:
    value = word.partition("=")[2]
    if word.startswith(_DISCOVERY):
        left = _LEFT.search(value)
        if left is not None:
            return (
                f"{shown(left[0])} is to be replaced: it finds no group",
                "write the cluster's name",
            )
        if not _TAGS.fullmatch(value) and value.startswith("asg"):
            return f"{shown(value)} is no way to find groups on AWS", "write asg:tag=KEY,KEY"
    group = _GROUP.fullmatch(word)
    if group and (number(group[1]) or 0) > (number(group[2]) or 0):
        return f"at least {group[1]} and at most {group[2]} nodes", "write MIN:MAX:NAME"
    return None
