"""Rule over the patterns by which EventBridge chooses events."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text

_CLOSE = 0.85
# EventBridge User Guide, "Amazon EventBridge quotas".
_MOST_TARGETS = 5
# EC2 User Guide, "Monitor Amazon EC2 using EventBridge"; EC2 Auto Scaling, CodeBuild, ECR and AWS
# Health User Guides, the same; karpenter-provider-aws, "CloudFormation", its rules.
_EVENTS: dict[str, tuple[str, ...]] = {
    "aws.autoscaling": (
        *("EC2 Instance Launch Successful", "EC2 Instance Launch Unsuccessful"),
        *("EC2 Instance Terminate Successful", "EC2 Instance Terminate Unsuccessful"),
        *("EC2 Instance-launch Lifecycle Action", "EC2 Instance-terminate Lifecycle Action"),
    ),
    "aws.codebuild": ("CodeBuild Build Phase Change", "CodeBuild Build State Change"),
    "aws.ec2": (
        *("Capacity Block Reservation Delivered", "Capacity Block Reservation Expiration Warning"),
        *("EC2 Capacity Reservation Instance Interruption Warning", "EC2 Fleet Instance Change"),
        *("EC2 Instance Rebalance Recommendation", "EC2 Instance State-change Notification"),
        *("EC2 Spot Instance Interruption Warning", "EC2 Spot Instance Request Fulfillment"),
    ),
    "aws.ecr": ("ECR Image Action", "ECR Image Scan"),
    "aws.health": ("AWS Health Abuse Event", "AWS Health Event"),
}
# What the detail of an event has, letter by letter (the same pages).
_DETAILS: dict[str, dict[str, tuple[str, ...]]] = {
    "CodeBuild Build State Change": {
        "build-status": ("FAILED", "FAULT", "IN_PROGRESS", "STOPPED", "SUCCEEDED", "TIMED_OUT"),
    },
    "EC2 Instance State-change Notification": {
        "state": ("pending", "running", "shutting-down", "stopped", "stopping", "terminated"),
    },
}
_OF = {name: source for source, names in _EVENTS.items() for name in names}


def patterns(templates: TemplateSet) -> Iterator[Finding]:
    """Require events that their source sends, each as an element of a list.

    EventBridge User Guide, "Creating Amazon EventBridge event patterns": matching is exact, letter
    by letter, and a rule that matches nothing says nothing.
    """
    for rule in templates.resources("AWS::Events::Rule"):
        pattern = mapping(rule.properties.get("EventPattern")) or {}
        for key, value in pattern.items():
            if isinstance(value, str | int | float | bool):
                found = f"{shown(value)} is no list: EventBridge refuses the pattern"
                yield _wrong(rule, key, found, f"write [{value}]")
        listed = [mapping(each) or {} for each in items(rule.properties.get("Targets")) or []]
        names = [text(each.get("Id")) for each in listed]
        double = sorted({name for name in names if name and names.count(name) > 1})
        if double:
            found = f"two targets with Id {shown(double[0])}: the second overwrites the first"
            yield rule.find(Code.NOTICE, ("Targets",), found, "give each an Id of its own")
        if len(listed) > _MOST_TARGETS:
            found = f"{len(listed)} targets, and a rule has {_MOST_TARGETS}: EventBridge refuses it"
            yield rule.find(Code.NOTICE, ("Targets",), found, "make a second rule")
        sources = [text(each) for each in _listed(pattern.get("source"))]
        for name in [text(each) for each in _listed(pattern.get("detail-type"))]:
            yield from _event(rule, name, sources)
            yield from _detail(rule, name or "", mapping(pattern.get("detail")) or {})


def _event(rule: Resource, name: str | None, sources: "list[str | None]") -> Iterator[Finding]:
    if name is None:
        return
    close = [name] if name in _OF else get_close_matches(name, _OF, 1, _CLOSE)
    # A name that is close to one of another service's may well be one of this service's own.
    known = [each for each in close if name in _OF or _OF[each] in sources]
    if name not in _OF and known:
        found = f"AWS sends no event {shown(name)}, so the rule never matches"
        yield _wrong(rule, "detail-type", found, f"did you mean {known[0]}?")
    elif name in _OF and sources and None not in sources and _OF[name] not in sources:
        found = f"{shown(sources[0])} sends no event {shown(name)}, so the rule never matches"
        yield _wrong(rule, "source", found, f"write {_OF[name]}")


def _detail(rule: Resource, name: str, detail: "dict[str, Json]") -> Iterator[Finding]:
    for key, known in _DETAILS.get(name, {}).items():
        for value in _listed(detail.get(key)):
            said = text(value)
            alike = {each.lower().replace("_", "-"): each for each in known}
            meant = alike.get((said or "").lower().replace("_", "-"))
            if said is not None and said not in known and not is_placeholder(said):
                found = f"{key} is never {shown(said)}, so the rule does not match it"
                path: Path = ("EventPattern", "detail", key)
                remedy = f"write {meant}" if meant else f"write one of {', '.join(known)}"
                yield rule.find(Code.NOTICE, path, found, remedy)


def _listed(value: Json) -> list[Json]:
    return (items(value) or []) if isinstance(value, list) else []


def _wrong(rule: Resource, key: str, found: str, remedy: str) -> Finding:
    path: Path = ("EventPattern", key)
    return rule.find(Code.NOTICE, path, found, remedy)
