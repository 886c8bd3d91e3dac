"""Rule over the cluster autoscaler's own arguments."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.values import number, shown
from megatron_eks.rules.workloads import Manifest

_IMAGE = re.compile(r"(^|/)cluster-autoscaler([:@]|$)")
_LEFT = re.compile(r"<[^>]*>|YOUR[ _-]CLUSTER", re.IGNORECASE)
_GROUP = re.compile(r"--nodes=([0-9]+):([0-9]+):(.+)")
_TAGS = re.compile(r"asg:tag=.+")
_DISCOVERY = "--node-group-auto-discovery="


def arguments(manifest: Manifest) -> Iterator[Finding]:
    """Require of the autoscaler the groups of nodes that it looks after.

    Cluster autoscaler, cloudprovider/aws/README.md: it finds groups by the tags of this cluster's
    name, or is given MIN:MAX:NAME; its example has a name to replace.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if not _IMAGE.search(str(container.body.get("image"))):
                continue
            for path, word in container.words:
                wrong = _wrong(word)
                if wrong is not None:
                    yield manifest.find(Code.MANIFEST_VALUE, path[1:], *wrong)


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
