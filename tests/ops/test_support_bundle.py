"""`meks support-bundle` where nothing else works, and where it cannot be written."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests import schemas

ROOT = Path(__file__).parents[2]
# Nobody listens on port 1.
KUBECONFIG = """\
current-context: meks-local
clusters: [{name: meks-local, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: admin, user: {token: t}}]
contexts: [{name: meks-local, context: {cluster: meks-local, user: admin}}]
"""


@pytest.fixture
def folder(tmp_path):
    """Return a project with one job, and a kubeconfig that leads nowhere."""
    shutil.copy(ROOT / "cluster.yaml", tmp_path)
    (tmp_path / "jobs").mkdir()
    shutil.copy(ROOT / "jobs" / "fsdp-llama-2-7b.yaml", tmp_path / "jobs")
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    return tmp_path


def begin(folder, *arguments, **options):
    """Start `meks support-bundle` in a project."""
    return subprocess.Popen(  # noqa: S603 -- our own command
        [sys.executable, "-m", "megatron_eks", "support-bundle", *arguments],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "HOME": str(folder),
            # Python 3.11 would leave half a .pyc where a file may not be larger than that.
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def bundle(folder, *arguments, **options):
    """Run it to its end."""
    process = begin(folder, *arguments, **options)
    out, said = process.communicate(timeout=120)
    return process.returncode, out, said


def read(name):
    """Return the parts of a bundle."""
    with tarfile.open(name) as archive:
        return {
            each.name.removeprefix("support/"): file.read().decode()
            for each in archive
            if (file := archive.extractfile(each)) is not None
        }


def names(folder):
    """Return what lies in a folder besides the project."""
    project = {"cluster.yaml", "jobs", "kubeconfig"}
    return sorted(each.name for each in folder.iterdir() if each.name not in project)


def test_without_a_cluster_there_are_files_and_plan(folder):
    """And it says in the file and on the screen what is missing."""
    code, out, said = bundle(folder, "--output", "b.tar.gz", "-o", "json")
    assert code == 0, said
    told = schemas.read("support-bundle", out)
    found = read(folder / "b.tar.gz")
    inside = json.loads(found["contents.json"])
    schemas.checked("support-bundle", {"file": "b.tar.gz", **inside})
    assert {key: each for key, each in told.items() if key != "file"} == inside
    assert {"versions.json", "files/cluster.yaml", "plan.json", "findings.txt"} < found.keys()
    assert "files/jobs/fsdp-llama-2-7b.yaml" in found
    (away,) = [each["why"] for each in inside["missing"]]
    assert away.startswith("the API server gave no answer: https://127.0.0.1:1: Connection refused")
    assert "warning MEKS-0868 kubernetes/version.json" in said
    assert "111122223333" not in "".join(found.values())
    assert names(folder) == ["b.tar.gz"]
    assert (folder / "b.tar.gz").stat().st_mode & 0o777 == 0o600


def test_files_that_are_wrong_are_what_somebody_may_need_help_with(folder):
    """They are in it with their findings; there is no plan of them."""
    text = (folder / "cluster.yaml").read_text().replace("max_nodes: 2", "max_nodes: many")
    (folder / "cluster.yaml").write_text(text + "hf_token: hf_AbCdEfGhIjKlMnOpQrStUv\n")
    code, out, _ = bundle(folder)
    assert code == 0
    (name,) = names(folder)
    found = read(folder / name)
    assert "MEKS-01" in found["findings.txt"]
    assert "hf_token: (redacted)" in found["files/cluster.yaml"]
    assert "plan.json: the files have errors, see findings.txt" in out
    assert f"in {name}; look into it before you pass it on" in out


@pytest.mark.parametrize("name", ["cluster.yaml", "jobs/z.yaml"])
def test_a_link_out_of_the_folder_is_not_followed(folder, name):
    """It is named, on the screen and in the bundle, and the command ends with 4."""
    elsewhere = folder.parent / f"elsewhere-{folder.name}"
    elsewhere.mkdir()
    secret = elsewhere / "secret"
    secret.write_text((ROOT / "cluster.yaml").read_text() + "# nobody may see this\n")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    (folder / "jobs" / "inside.yaml").symlink_to("fsdp-llama-2-7b.yaml")
    code, out, said = bundle(folder, "--output", "b.tar.gz")
    assert code == 4
    found = read(folder / "b.tar.gz")
    assert f"files/{name}" not in found
    assert "files/jobs/inside.yaml" in found
    assert "nobody may see this" not in "".join(found.values())
    why = f"a link out of {folder.name}/"
    missing = {each["name"]: each["why"] for each in json.loads(found["contents.json"])["missing"]}
    assert missing[f"files/{name}"] == why
    assert f"files/{name}: {why}" in out
    assert f"warning MEKS-0868 files/{name}: {why}" in said


def test_a_link_that_leads_nowhere_is_named(folder):
    """It was there once."""
    (folder / "jobs" / "z.yaml").symlink_to("nothing")
    code, out, _ = bundle(folder, "--output", "b.tar.gz")
    assert code == 4
    assert "missing      files/jobs/z.yaml: " in out


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("there.tar.gz", "error: MEKS-0867 there.tar.gz: it exists - name another file"),
        ("no/such/b.tar.gz", "error: MEKS-0867 no/such/b.tar.gz: No such file or directory - name"),
        ("/proc/b.tar.gz", "error: MEKS-0867 /proc/b.tar.gz: "),
    ],
)
def test_a_place_that_cannot_be_written(folder, output, found):
    """Before anything is read."""
    (folder / "there.tar.gz").write_text("mine")
    code, out, said = bundle(folder, "--output", output)
    assert (code, out) == (1, "")
    assert said.startswith(found)
    assert names(folder) == ["there.tar.gz"]
    assert (folder / "there.tar.gz").read_text() == "mine"


def test_a_disk_that_is_full(folder):
    """Nothing is left under the name, and nothing beside it."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    code, out, said = bundle(folder, "--output", "b.tar.gz", preexec_fn=limit)
    assert (code, out) == (1, "")
    assert "error: MEKS-0867 b.tar.gz: File too large" in said
    assert "Traceback" not in said
    assert names(folder) == []


def test_ctrl_c_leaves_nothing(folder):
    """However far it was."""
    process = begin(folder, "--output", "b.tar.gz")
    deadline = time.monotonic() + 60
    while not names(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert names(folder) == []
