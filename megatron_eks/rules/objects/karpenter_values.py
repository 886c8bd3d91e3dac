"""What the labels of Karpenter's own may be: families, categories, sizes and GPUs."""

import re

from megatron_eks.catalog.instances import INSTANCES

_DOMAINS = ("karpenter.k8s.aws/", "eks.amazonaws.com/")
# EC2 User Guide, "Instance types", accelerated computing with GPUs, beside those of the catalogue.
_OTHERS = "g3 g3s g4ad g4dn g5g g6f gr6 gr6f g7 p2 p3 p3dn p6e-gb200 p6e-gb300"
_FAMILIES = {*_OTHERS.split(), *(name.partition(".")[0] for name in INSTANCES)}
_WITH_GPUS = re.compile(r"(g|gr|p)[0-9].*")
_TYPE = re.compile(r"(?P<family>[a-z0-9-]+)\.(?P<size>[a-z0-9-]+)")
_CATEGORY = re.compile(r"(?P<letters>[a-z]+)[0-9].*")
_MAKERS = ("amd", "habana", "nvidia")
_GPU = re.compile(r"[a-z0-9-]+")
_MAKER = re.compile(r"^(nvidia|tesla)[- ]+")


def wrong(key: str, value: str) -> tuple[str, str] | None:
    """Say what a value of such a label is not, and how it is written; None if nothing is wrong.

    Karpenter, "Scheduling", well-known labels; EKS User Guide, "Create a node pool for EKS Auto
    Mode": a pool that asks for what no type has starts no node, and says so in its log alone.
    """
    name = next((key.removeprefix(each) for each in _DOMAINS if key.startswith(each)), "")
    judge = _JUDGES.get(name)
    return judge(value) if judge else None


def _family(value: str) -> tuple[str, str] | None:
    met = _TYPE.fullmatch(value)
    if met:
        return "an instance type, and no family", f"write {met['family']}"
    meant = sorted(each for each in _FAMILIES if each.startswith(value))
    if value not in _FAMILIES and _WITH_GPUS.fullmatch(value) and meant:
        return "no family of EC2: no type is of it", f"write {' or '.join(meant)}"
    return None


def _category(value: str) -> tuple[str, str] | None:
    met = _CATEGORY.fullmatch(value)
    # High memory has its size in the name.
    if met and met["letters"] != "u":
        return "a family, and no category: no type is of it", f"write {met['letters']}"
    return None


def _size(value: str) -> tuple[str, str] | None:
    met = _TYPE.fullmatch(value)
    return ("an instance type, and no size", f"write {met['size']}") if met else None


def _gpu(value: str) -> tuple[str, str] | None:
    lower = _MAKER.sub("", value.lower()).replace(" ", "-").partition("-sxm")[0]
    if _GPU.fullmatch(value) and lower == value:
        return None
    return "no name of a GPU as Karpenter writes it", f"write {lower}"


def _maker(value: str) -> tuple[str, str] | None:
    if value in _MAKERS:
        return None
    close = value.lower() if value.lower() in _MAKERS else "nvidia"
    return "no maker of GPUs as Karpenter writes it", f"write {close}"


_JUDGES = {
    "instance-family": _family,
    "instance-category": _category,
    "instance-size": _size,
    "instance-gpu-name": _gpu,
    "instance-gpu-manufacturer": _maker,
}
