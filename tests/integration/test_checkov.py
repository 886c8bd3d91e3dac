"""checkov over the accepted templates and manifests: what it reports is mended, or answered."""

import json
import os
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SNAPSHOTS = ROOT / "tests" / "snapshots" / "__snapshots__"
CHECKOV = ROOT / ".venv-checkov" / "bin" / "checkov"
ACCEPTED = yaml.safe_load((Path(__file__).parent / "checkov.yaml").read_text())
FOLDERS = {"cloudformation": "test_templates", "kubernetes": "test_manifests"}

pytestmark = pytest.mark.tools


def wrapped(value: Any) -> list[Any]:
    """Return an object, or the pods of a PyTorchJob, which checkov does not know."""
    if value.get("kind") != "PyTorchJob":
        return [value]
    metadata, replicas = value["metadata"], value["spec"]["pytorchReplicaSpecs"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{metadata['name']}-{name}", "namespace": metadata["namespace"]},
            "spec": replica["template"]["spec"],
        }
        for name, replica in replicas.items()
    ]


def reported(framework: str, folder: Path) -> set[tuple[str, str]]:
    """Return what checkov finds below a folder, as (check, resource)."""
    command = [str(CHECKOV), "--directory", str(folder), "--framework", framework]
    done = subprocess.run(  # noqa: S603 -- the program is our own installation
        [*command, "--output", "json", "--compact", "--quiet", "--skip-download"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 100
    return {(each["check_id"], each["resource"]) for each in report["results"]["failed_checks"]}


def is_accepted(check: str, resource: str) -> bool:
    """Tell whether the table answers a finding."""
    return any(
        each["check"] == check and any(fnmatchcase(resource, name) for name in each["for"])
        for each in ACCEPTED
    )


@pytest.mark.parametrize("framework", sorted(FOLDERS))
def test_nothing_is_left_unanswered(framework, tmp_path):
    """Every finding has its reason in the table, and every reason a finding."""
    for path in sorted((SNAPSHOTS / FOLDERS[framework]).iterdir()):
        objects = [each for each in yaml.safe_load_all(path.read_text()) if each]
        parts = [part for each in objects for part in wrapped(each)]
        (tmp_path / path.name).write_text(yaml.safe_dump_all(parts))
    found = reported(framework, tmp_path)
    assert {each for each in found if not is_accepted(*each)} == set()
    start = "CKV_AWS" if framework == "cloudformation" else "CKV_K8S"
    answered = {each["check"] for each in ACCEPTED if each["check"].startswith(start)}
    assert answered == {check for check, _ in found}
