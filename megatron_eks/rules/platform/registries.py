"""Rule over images in Amazon ECR: regions that are none, and accounts that nearly are EKS's own."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.regions import PARTITIONS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.values import shown, text
from megatron_eks.rules.workloads import Manifest

_HOST = re.compile(
    r"(?P<account>[0-9]{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com/(?P<path>.+)"
)
# EKS User Guide, "View Amazon container image registries for Amazon EKS add-ons".
_ACCOUNTS = (
    *("602401143452", "800184023465", "877085696533", "558608220178", "590381155156"),
    *("296578399912", "491585149902", "151742754352", "013241004608", "066635153087"),
    *("900612956339", "759879836304", "762633924376", "785737495101", "894974449325"),
)
_OF_EKS = "eks/"
_FEW = 2
_CLOSE = 0.85


def names(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a registry in no region of AWS, and of an add-on's image in nearly EKS's account.

    Amazon ECR User Guide, "Private registries": ACCOUNT.dkr.ecr.REGION.amazonaws.com; of another
    registry the kubelet gets no image, and the pod stays in ImagePullBackOff.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            image = text(container.body.get("image")) or ""
            met = _HOST.fullmatch(image)
            if met is None:
                continue
            path = (*container.path[1:], "image")
            region, account = met["region"], met["account"]
            close = get_close_matches(region, PARTITIONS, 1, _CLOSE)
            if region not in PARTITIONS and close:
                found = f"no region {shown(region)}: the image is not found"
                remedy = f"did you mean {close[0]}?"
                yield manifest.find(Code.MANIFEST_VALUE, path, found, remedy, Level.WARNING)
            nearly = [each for each in _ACCOUNTS if 0 < _differ(each, account) <= _FEW]
            if met["path"].startswith(_OF_EKS) and account not in _ACCOUNTS and nearly:
                found = f"account {account}, and EKS has its add-ons in {nearly[0]}: the pull is "
                found += "denied"
                yield manifest.find(
                    Code.MANIFEST_VALUE, path, found, f"write {nearly[0]}", Level.WARNING
                )


def _differ(one: str, other: str) -> int:
    return sum(first != second for first, second in zip(one, other, strict=True))
