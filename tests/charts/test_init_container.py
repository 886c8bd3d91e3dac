"""The container that waits for the master: what the operator makes of it, and what it does."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from megatron_eks.catalog import pins
from megatron_eks.charts.platform.init_container import MAX_TRIES, init_container_template
from megatron_eks.guards.check import check_manifests
from megatron_eks.guards.codes import Rule
from tests.charts.validation import assert_valid
from tests.upstream.modules import run_go

_USER = 4711
_VALUES = {
    "MasterAddr": "job-master-0",
    "InitContainerImage": pins.BUSYBOX_IMAGE,
    "MaxTries": MAX_TRIES,
}


@pytest.fixture
def container() -> dict[str, Any]:
    """Return the container after the substitution that the operator makes."""
    text = init_container_template(_USER)
    for name, value in _VALUES.items():
        assert f"{{{{.{name}}}}}" in text
        text = text.replace(f"{{{{.{name}}}}}", str(value))
    return _parse(text)


def _parse(text: str) -> dict[str, Any]:
    """Read a rendered template as the operator does: a list of containers, here of one."""
    (container,) = yaml.safe_load(text)
    assert isinstance(container, dict)
    return container


def _object(kind: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def test_the_container_is_valid_and_restricted(container: dict[str, Any]):
    """A namespace that enforces Pod Security restricted admits the workers that carry it."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = _object("Namespace", {"name": "jobs", "labels": labels})
    worker = _object("Pod", {"name": "job-worker-0", "namespace": "jobs"})
    worker["spec"] = {"initContainers": [container], "containers": []}
    assert_valid(worker)
    found = {each.code for each in check_manifests([namespace, worker])}
    assert Rule.POD_ABOVE_NAMESPACE not in found
    del container["securityContext"]["allowPrivilegeEscalation"]
    found = {each.code for each in check_manifests([namespace, worker])}
    assert Rule.POD_ABOVE_NAMESPACE in found
    assert container["image"] == pins.BUSYBOX_IMAGE
    assert container["securityContext"]["runAsUser"] == _USER
    assert set(container["resources"]) == {"requests", "limits"}


def test_it_waits_longer_than_the_largest_image_needs():
    """Two seconds a try make two hours; upstream's 200 s end before 20 GB are pulled."""
    assert MAX_TRIES * 2 >= 7200


@pytest.mark.oracle
def test_gos_template_engine_changes_nothing(container: dict[str, Any]):
    """Go's HTML escaping, which the operator applies, leaves every value as it is."""
    request = json.dumps({"Template": init_container_template(_USER), "Values": _VALUES})
    assert _parse(run_go("run", "render.go", text=request)) == container


@pytest.mark.parametrize(("resolves_at", "tries", "status"), [(1, 5, 0), (3, 5, 0), (6, 5, 1)])
def test_the_script_waits_for_the_full_name(
    container: dict[str, Any], tmp_path: Path, resolves_at: int, tries: int, status: int
):
    """It asks until the master's full name resolves, and fails after the last try."""
    asked = tmp_path / "asked"
    _program(
        tmp_path / "nslookup",
        f'echo "$@" >> {asked}; [ "$(wc -l < {asked})" -ge {resolves_at} ]',
    )
    _program(tmp_path / "sleep", "true")
    variables = {"MASTER": "job-master-0", "POD_NAMESPACE": "jobs", "TRIES": str(tries)}
    named = {variable["name"] for variable in container["env"]}
    assert named == set(variables)
    search_path = f"{tmp_path}:{os.environ['PATH']}"
    result = subprocess.run(  # noqa: S603 -- the script under test
        container["command"],
        env={"PATH": search_path, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert result.returncode == status
    questions = asked.read_text().splitlines()
    assert questions == ["-type=a job-master-0.jobs.svc.cluster.local."] * min(resolves_at, tries)
    assert ("does not resolve" in result.stderr) == bool(status)


def _program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
