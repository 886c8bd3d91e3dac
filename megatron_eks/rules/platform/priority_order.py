"""Rules over priority classes that are made together: which jobs end which others."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.values import number, text
from megatron_eks.rules.workloads import Manifest

_KIND = "PriorityClass"
# What gives way, and what it gives way to; each scale compares its own words alone.
_SCALES = (
    (
        re.compile(r"validation|checks?|tests?|smoke|debug|experiments?|experimental|scavenger"),
        re.compile(r"training|train|production|prod"),
    ),
    (re.compile(r"low|lowest|preemptible|best-?effort|idle"), re.compile(r"high|highest|critical")),
    (re.compile(r"low|lowest|preemptible|best-?effort|idle"), re.compile(r"medium|normal|default")),
    (re.compile(r"medium|normal|default"), re.compile(r"high|highest|critical")),
)


def order(together: ManifestSet) -> Iterator[Found]:
    """Warn of a class that ends training for a check, or of `low` above `high`.

    Kubernetes, "Pod Priority and Preemption": on full nodes pods of a higher class end those of a
    lower one, unless its preemptionPolicy is Never.
    """
    classes = [each for each in together.of(_KIND) if number(each.body.get("value")) is not None]
    for each in classes:
        for other in classes:
            if each is other or not in_one_folder(each, other) or not _is_wrong(each, other):
                continue
            ends = each.body.get("preemptionPolicy") != "Never"
            found = (
                f"{each.body['value']}, above {other.title} with {other.body['value']}: its pods "
            )
            found += "end those of that class" if ends else "go first"
            remedy = "give it the smaller value"
            finding = each.find(Code.PRIORITY_ORDER, ("value",), found, remedy, Level.WARNING)
            yield each, finding
            break


def _is_wrong(each: Manifest, other: Manifest) -> bool:
    mine, its = (number(one.body.get("value")) or 0 for one in (each, other))
    if mine <= its:
        return False
    names = [re.split(r"[-_.]", (one.name or "").lower()) for one in (each, other)]
    for lower, upper in _SCALES:
        if any(lower.fullmatch(part) for part in names[0]) and any(
            upper.fullmatch(part) for part in names[1]
        ):
            return not any(upper.fullmatch(part) for part in names[0])
    return False


def defaults(together: ManifestSet) -> Iterator[Found]:
    """Refuse two classes that each are the default.

    Kubernetes, "Pod Priority and Preemption", globalDefault: only one class may be it.
    """
    chosen: list[Manifest] = []
    for each in together.of(_KIND):
        if each.body.get("globalDefault") is not True:
            continue
        other = next((one for one in chosen if one.name != each.name), None)
        if other is not None and in_one_folder(each, other):
            found = f"{text(other.body.get('kind'))}/{other.name} is the default already"
            finding = each.find(
                Code.PRIORITY_ORDER,
                ("globalDefault",),
                f"{found}: the API server refuses this one",
                "keep one of them",
            )
            yield each, finding
        chosen.append(each)
