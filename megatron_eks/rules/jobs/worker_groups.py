"""Rules over LeaderWorkerSets: what their controller tells a pod, and how it divides a group."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.values import mapping, number
from megatron_eks.rules.workloads import Manifest

_GIVEN = ("LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX")
_READ = re.compile(r"\$[({]?(?P<name>LWS_\w+)")


def told(manifest: Manifest) -> Iterator[Finding]:
    """Refuse variables of a LeaderWorkerSet that its controller does not set.

    kubernetes-sigs/lws, api/leaderworkerset/v1: LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and
    LWS_WORKER_INDEX; every other is empty, so that all pods take themselves for one.
    """
    if manifest.kind != "LeaderWorkerSet":
        return
    for pod in manifest.pods:
        for container in pod.containers:
            own = {each.name for each in container.variables}
            for path, word in container.words:
                for match in _READ.finditer(word):
                    name = match["name"]
                    set_here = name in own or f"{name}=" in word or "envFrom" in container.body
                    if name in _GIVEN or set_here:
                        continue
                    found = f"reads {name}, which nobody sets"
                    remedy = f"use {', '.join(_GIVEN[:2])} or {_GIVEN[2]}, or set it"
                    yield Finding(Code.JOB_FIELDS, path, found, remedy)


def divided(manifest: Manifest) -> Iterator[Finding]:
    """Require of a subgroup's size that it divides the group.

    kubernetes-sigs/lws, pkg/webhooks/leaderworkerset_webhook.go: "size or size - 1 must be
    divisible by subGroupSize".
    """
    template = mapping(manifest.spec.get("leaderWorkerTemplate")) or {}
    policy = mapping(template.get("subGroupPolicy")) or {}
    size, part = number(template.get("size")), number(policy.get("subGroupSize"))
    if manifest.kind == "LeaderWorkerSet" and size and part and size % part and (size - 1) % part:
        found = f"subgroups of {part} in a group of {size}: the webhook refuses the set"
        path = ("spec", "leaderWorkerTemplate", "subGroupPolicy", "subGroupSize")
        remedy = f"use a divisor of {size} or of {size - 1}"
        yield manifest.find(Code.MANIFEST_VALUE, path, found, remedy)
