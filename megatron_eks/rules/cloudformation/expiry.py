"""Rules over what expires by itself: objects of buckets, and images of repositories."""

import json
import re
from collections.abc import Iterator
from typing import Any

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.json_texts import json_fault
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    number,
    shown,
    text,
    written,
)

_NARROW = ("Filter", "ObjectSizeGreaterThan", "ObjectSizeLessThan", "Prefix", "TagFilters")
_DAYS = ("ExpirationInDays", "ExpirationDate")
# A push of one more image, or of a cache, expires what the last jobs name.
_FEW_IMAGES = 2
_COUNTS = ("imageCountMoreThan", "sinceImagePulled", "sinceImagePushed", "sinceImageTransitioned")
_LINKED = re.compile(r"s3://\$\{(?P<name>[A-Za-z0-9]+)\}")
_ACTIONS = ("expire", "transition")
_OF_RULES = ("action", "description", "rulePriority", "selection")
_TAGS = ("tagPatternList", "tagPrefixList")
_OF_SELECTIONS = ("countNumber", "countType", "countUnit", "storageClass", *_TAGS, "tagStatus")
_STATES = ("any", "tagged", "untagged")


def objects(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a kept bucket whose lifecycle deletes every object.

    S3 User Guide, "Expiring objects": a rule without a filter covers data and checkpoints alike.
    What a file system of FSx is linked to is data as well.
    """
    linked = {
        templates.target({"Ref": match["name"]}, link.file)
        for link in templates.resources("AWS::FSx::DataRepositoryAssociation")
        if (match := _LINKED.match(written(link.properties.get("DataRepositoryPath")) or ""))
    }
    logs = {
        templates.target(inner.get("DestinationBucketName"), bucket.file)
        for bucket in templates.resources("AWS::S3::Bucket")
        if (inner := mapping(bucket.properties.get("LoggingConfiguration")) or {})
    }
    for bucket in templates.resources("AWS::S3::Bucket"):
        versions = mapping(bucket.properties.get("VersioningConfiguration")) or {}
        # A bucket whose versions are suspended loses the objects for good.
        versioned = text(versions.get("Status")) in {"Enabled", "Suspended"}
        kept = bucket.body.get("DeletionPolicy") == "Retain" and versioned
        kept = kept or bucket in linked
        if bucket in logs or not kept or text(bucket.properties.get("AccessControl")):
            continue
        lifecycle = mapping(bucket.properties.get("LifecycleConfiguration")) or {}
        for index, value in enumerate(items(lifecycle.get("Rules")) or []):
            rule = mapping(value) or {}
            key = next((each for each in _DAYS if not is_absent(rule.get(each))), None)
            narrow = any(rule.get(each) not in (None, "") for each in _NARROW)
            if key and rule.get("Status") == "Enabled" and not narrow:
                found = f"{key} {shown(rule[key])} deletes every object, also what jobs still read"
                path = ("LifecycleConfiguration", "Rules", index, key)
                remedy = "give the rule a Prefix, or expire noncurrent versions only"
                yield bucket.find(Code.EXPIRES, path, found, remedy, Level.WARNING)


def images(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a repository's lifecycle what ECR reads, and warn where it deletes by age alone.

    ECR User Guide, "Lifecycle policy properties": tagged images go too, and jobs still name them.
    """
    for repository in templates.resources("AWS::ECR::Repository"):
        policy = mapping(repository.properties.get("LifecyclePolicy")) or {}
        policy_text = text(policy.get("LifecyclePolicyText"))
        if policy_text is None or is_placeholder(policy_text):
            continue
        try:
            body: Any = json.loads(policy_text)
        except json.JSONDecodeError as wrong:
            found, remedy = json_fault(policy_text, wrong)
            yield _wrong(repository, f"the policy is {found}", remedy)
            continue
        rules = body.get("rules") if isinstance(body, dict) else None
        if not isinstance(rules, list) or not all(isinstance(each, dict) for each in rules):
            yield _wrong(repository, "no rules", 'write {"rules": [...]}')
            continue
        for rule in rules:
            yield from _rule(repository, rule)
            yield from _parts(repository, rule)
        yield from _order(repository, rules)
        numbers = [rule.get("rulePriority") for rule in rules]
        if len({json.dumps(each) for each in numbers}) < len(numbers):
            yield _wrong(repository, "two rules of one rulePriority", "give each its own")


def _rule(repository: Resource, rule: dict[str, Any]) -> Iterator[Finding]:
    given = rule.get("selection")
    selection = given if isinstance(given, dict) else {}
    state, count = selection.get("tagStatus"), selection.get("countType")
    if state not in _STATES or count not in _COUNTS or "rulePriority" not in rule:
        found = "a rule without rulePriority, or without a tagStatus and countType that ECR knows"
        remedy = f"known: {', '.join(_STATES)}; {', '.join(_COUNTS)}"
        yield _wrong(repository, found, remedy)
    elif state == "tagged" and not any(
        selection.get(key) for key in ("tagPatternList", "tagPrefixList")
    ):
        yield _wrong(repository, "tagged without tagPrefixList", "list the prefixes of the tags")
    elif count != "imageCountMoreThan" and selection.get("countUnit") != "days":
        yield _wrong(repository, f"{count} without countUnit", 'add "countUnit": "days"')
    elif state == "any" and count == "sinceImagePushed":
        days = selection.get("countNumber")
        found = f"every image goes after {shown(days)} days, also one that a job still names"
        remedy = "select untagged images, or keep a number by imageCountMoreThan"
        yield _wrong(repository, found, remedy, Level.WARNING)
    elif state == "any" and count == "imageCountMoreThan":
        most = number(selection.get("countNumber"))
        if most is not None and 0 < most <= _FEW_IMAGES:
            found = f"no more than {most} of all images stay: a push deletes one that a job still "
            found += "names, and its pods do not start again"
            remedy = "keep more, such as 50, or select untagged images"
            yield _wrong(repository, found, remedy, Level.WARNING)


def _parts(repository: Resource, rule: dict[str, Any]) -> Iterator[Finding]:
    """Check what ECR's grammar says of the parts of a rule."""
    chosen, action = rule.get("selection"), rule.get("action")
    selection = chosen if isinstance(chosen, dict) else {}
    state, unit = selection.get("tagStatus"), selection.get("countUnit")
    for where, part, known in (
        ("a rule", rule, _OF_RULES),
        ("a selection", selection, _OF_SELECTIONS),
    ):
        for key in sorted(part.keys() - known):
            yield _wrong(repository, f"{where} has no {shown(key)}", f"known: {', '.join(known)}")
    for name, value in (
        ("rulePriority", rule.get("rulePriority")),
        ("countNumber", selection.get("countNumber")),
    ):
        whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if not whole and not (name == "rulePriority" and value is None):
            found = f"{name} is {shown(value)}" if name in {**rule, **selection} else f"no {name}"
            yield _wrong(repository, found, "write a whole number of 1 or more")
    if selection.get("countType") == "imageCountMoreThan" and unit is not None:
        yield _wrong(repository, "countUnit beside imageCountMoreThan", "remove countUnit")
    lists = [key for key in _TAGS if selection.get(key)]
    if state == "tagged" and len(lists) == len(_TAGS):
        yield _wrong(repository, f"{' beside '.join(_TAGS)}", "keep one of the two")
    elif state in {"any", "untagged"} and lists:
        found = f"{lists[0]} with tagStatus {state}"
        yield _wrong(repository, found, "select tagged images, or remove it")
    kind = action.get("type") if isinstance(action, dict) else None
    if kind not in _ACTIONS:
        given = kind if isinstance(action, dict) else action
        found = "a rule without an action" if given is None else f"the action is {shown(given)}"
        yield _wrong(repository, found, 'write "action": {"type": "expire"}')


def _order(repository: Resource, rules: list[dict[str, Any]]) -> Iterator[Finding]:
    """Require that the rule for all images comes last: it takes what others are written for.

    ECR User Guide, "Lifecycle policy properties", tagStatus: `any` has the highest rulePriority.
    """
    numbers: list[tuple[int, dict[str, Any]]] = []
    for rule in rules:
        number, selection = rule.get("rulePriority"), rule.get("selection")
        if not isinstance(number, int) or not isinstance(selection, dict):
            return
        numbers.append((number, selection))
    # Rules for archived images are in an order of their own.
    numbers = [each for each in numbers if each[1].get("storageClass") in (None, "standard")]
    whole = [number for number, selection in numbers if selection.get("tagStatus") == "any"]
    if whole and min(whole) < max(number for number, _ in numbers):
        found = f"the rule for any image has rulePriority {min(whole)}, before another: ECR refuses"
        yield _wrong(repository, f"{found} the policy", "give it the highest rulePriority")


def _wrong(repository: Resource, found: str, remedy: str, level: Level = Level.ERROR) -> Finding:
    path = ("LifecyclePolicy", "LifecyclePolicyText")
    return repository.find(Code.EXPIRES, path, found, remedy, level)
