"""One mistake in a job each: the guards say what is wrong before GPUs wait for nothing."""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from megatron_eks.guards.check import check_manifests
from megatron_eks.kubernetes.client import Object
from tests.annex import jobs

MISTAKES = yaml.safe_load(Path(__file__).with_name("job_mistakes.yaml").read_text(encoding="utf-8"))


def wrong_job(mistake: dict[str, Any]) -> Object:
    """Return the shipped job with one mistake."""
    job: Object = deepcopy(jobs.training_job(mistake["name"]))
    for path, value in (mistake.get("set") or {}).items():
        for parent, last in _nodes(job, path):
            parent.append(value) if last == len(parent) else parent.__setitem__(last, value)
    # From the end, so that the places of a list's earlier elements stay right.
    for path in sorted(mistake.get("drop") or [], reverse=True):
        for parent, last in _nodes(job, path):
            del parent[last]
    return job


def _nodes(job: Object, path: str) -> Iterator[tuple[Any, Any]]:
    """Return the parents of what a path names, each with the last key; `pods` are both replicas."""
    name, _, rest = path.partition(".")
    replicas = {"pods": ("Master", "Worker"), "Master": ("Master",), "Worker": ("Worker",)}
    start = "spec.pytorchReplicaSpecs.{}.template.spec." + rest
    for each in [start.format(one) for one in replicas.get(name, ())] or [path]:
        *parents, last = [part.strip("[]") for part in re.findall(r"\[[^\]]*\]|[^.\[\]]+", each)]
        node: Any = job
        for key in parents:
            node = node[int(key) if isinstance(node, list) else key]
        yield node, int(last) if isinstance(node, list) else last


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["name"] for each in MISTAKES])
def test_what_the_guards_find(mistake):
    """Exactly these, and nothing in what only a cluster can know."""
    # The job stands alone here; the policy for its ranks, which it lacks, is in its rendered file.
    right = {finding.code for finding in check_manifests([jobs.training_job(mistake["name"])])}
    codes = {finding.code for finding in check_manifests([wrong_job(mistake)])}
    assert {str(code) for code in codes - right} == set(mistake["check"])
