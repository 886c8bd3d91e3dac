"""Rules over a Job's policies of failure and success, and over work that is shared by index."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_PARTS = re.compile(r"--?(num[-_]|total[-_]|n[-_]?)?(shards|partitions|chunks)|--shard[-_]count")
_PART_OF_MANY = re.compile(
    r"--?(shard|partition|chunk|rank)([-_]?(id|index|idx))?|(SHARD|PARTITION|CHUNK)(_ID|_INDEX)"
)
_PARTS_SET = re.compile(r"((NUM|TOTAL)_)?(SHARDS|PARTITIONS|CHUNKS)")


def policies(manifest: Manifest) -> Iterator[Finding]:
    """Require of a Job's policies what the API server demands of them.

    Kubernetes, pkg/apis/batch/validation: podFailurePolicy needs restartPolicy Never and one
    requirement a rule, and backoffLimitPerIndex that policy of pods too;
    successPolicy, backoffLimitPerIndex and FailIndex need Indexed.
    """
    if (manifest.group, manifest.kind) != ("batch", "Job"):
        return
    spec, indexed = manifest.spec, manifest.spec.get("completionMode") == "Indexed"

    def wrong(path: Path, found: str, remedy: str) -> Finding:
        return manifest.find(Code.JOB_FIELDS, ("spec", *path), found, remedy)

    policy = mapping(spec.get("podFailurePolicy")) or {}
    per_index = not is_absent(spec.get("backoffLimitPerIndex"))
    once = "a podFailurePolicy" if policy else "backoffLimitPerIndex" if per_index else None
    for pod in manifest.pods:
        if once and pod.spec.get("restartPolicy") == "OnFailure":
            found = f"OnFailure beside {once}: the API server refuses the Job"
            yield wrong((*pod.path[2:], "restartPolicy"), found, "use Never")
    for key in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if not is_absent(spec.get(key)) and not indexed:
            found = f"{key} without completionMode Indexed: the API server refuses the Job"
            yield wrong((key,), found, "set completionMode: Indexed, or remove it")
    if not is_absent(spec.get("maxFailedIndexes")) and not per_index:
        found = "maxFailedIndexes without backoffLimitPerIndex: the API server refuses the Job"
        yield wrong(("maxFailedIndexes",), found, "add backoffLimitPerIndex, or remove it")
    if policy and spec.get("podReplacementPolicy") == "TerminatingOrFailed":
        found = "TerminatingOrFailed beside a podFailurePolicy: the API server refuses the Job"
        yield wrong(("podReplacementPolicy",), found, "use Failed")
    for where, found, remedy in _rules(manifest, items(policy.get("rules")) or []):
        yield wrong(where, f"{found}: the API server refuses the Job", remedy)


def selector(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a Job's own selector, unless it says that it means it.

    Kubernetes, pkg/apis/batch/validation, ValidateGeneratedSelector: without manualSelector it must
    be the one with the Job's uid, which the API server writes.
    """
    if (manifest.group, manifest.kind) != ("batch", "Job"):
        return
    if mapping(manifest.spec.get("selector")) and manifest.spec.get("manualSelector") is not True:
        found = "each Job gets a selector with its uid, and the API server refuses another"
        yield manifest.find(Code.JOB_FIELDS, ("spec", "selector"), found, "remove it")


def _rules(manifest: Manifest, listed: "list[Json]") -> "Iterator[tuple[Path, str, str]]":
    per_index = not is_absent(manifest.spec.get("backoffLimitPerIndex"))
    for index, value in enumerate(listed):
        for where, found, remedy in _rule(mapping(value) or {}, manifest, per_index=per_index):
            yield ("podFailurePolicy", "rules", index, *where), found, remedy


def _rule(
    rule: "dict[str, Json]", manifest: Manifest, *, per_index: bool
) -> "Iterator[tuple[Path, str, str]]":
    action = rule.get("action")
    codes = mapping(rule.get("onExitCodes")) or {}
    conditions = items(rule.get("onPodConditions")) or []
    if isinstance(action, str) and action not in _ACTIONS:
        yield ("action",), f"no action {shown(action)}", f"use {', '.join(_ACTIONS)}"
    if action == "FailIndex" and not per_index:
        yield ("action",), "FailIndex without backoffLimitPerIndex", "add it, or use FailJob"
    if bool(codes) == bool(conditions):
        both = "both" if codes else "neither"
        yield (), f"{both} of onExitCodes and onPodConditions", "give one of them a rule"
    values = items(codes.get("values")) or []
    if codes.get("operator") == "In" and 0 in values:
        yield ("onExitCodes", "values"), "exit code 0 under In", "name codes of failures"
    name = text(codes.get("containerName"))
    names = {each.name for pod in manifest.pods for each in pod.containers}
    if name is not None and names and name not in names:
        there = ", ".join(sorted(filter(None, names)))
        yield ("onExitCodes", "containerName"), f"no container {shown(name)}", f"there: {there}"


def shares(manifest: Manifest) -> Iterator[Finding]:
    """Require as many pods of an Indexed Job as the work is divided into.

    Kubernetes, "Indexed Job for Parallel Processing with Static Work Assignment": each index does
    its own part, and parts beyond the last index are never done.
    """
    total = number(manifest.spec.get("completions"))
    indexed = manifest.kind == "Job" and manifest.spec.get("completionMode") == "Indexed"
    for pod in manifest.pods if indexed and total is not None else ():
        for container in pod.containers:
            # Who names its own part by hand does not take it from the index.
            if container.is_init or any(_PART_OF_MANY.fullmatch(w) for _, w in container.words):
                continue
            words = container.words
            given = [
                (path, word.partition("=")[0], word.partition("=")[2] or after)
                for (path, word), (_, after) in zip(words, [*words[1:], ((), "")], strict=False)
                if _PARTS.fullmatch(word.partition("=")[0])
            ]
            given += [
                ((*container.path, "env", each.index), each.name, each.value or "")
                for each in container.variables
                if _PARTS_SET.fullmatch(each.name)
            ]
            for path, name, value in given:
                parts = number(value)
                if parts is not None and total is not None and parts != total and parts > 0:
                    more = parts > total
                    found = f"{name} {parts}, and the Job has {total} indices: "
                    found += "the other parts are never done" if more else "some have no part"
                    remedy = f"write {total} here, or completions: {parts}"
                    level = Level.ERROR if more else Level.WARNING
                    yield Finding(Code.JOB_FIELDS, path, found, remedy, level)
