"""The real command lines, as `make synth` runs them, with network and credentials cut off."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv" / "bin"

# A proxy that nobody listens on: whatever tries to reach the network fails at once.
OFFLINE = dict.fromkeys(
    ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
)


def run(tmp_path: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment with an empty home and no credentials."""
    path = f"{BIN}{os.pathsep}/usr/bin{os.pathsep}/bin"
    base = {"HOME": str(tmp_path), "PATH": path, "CDK_DISABLE_CLI_TELEMETRY": "true", **OFFLINE}
    return subprocess.run(  # noqa: S603 -- the project's own tools
        command, cwd=ROOT, env=base | env, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def by_cdk(tmp_path_factory) -> Path:
    """Return what `cdk synth` writes."""
    out: Path = tmp_path_factory.mktemp("cdk") / "cdk.out"
    done = run(out.parent, "cdk", "synth", "-q", "--output", str(out))
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def by_cdk8s(tmp_path_factory) -> Path:
    """Return what `cdk8s synth` writes where an earlier synthesis left a job."""
    out: Path = tmp_path_factory.mktemp("cdk8s") / "dist"
    (out / "jobs").mkdir(parents=True)
    (out / "jobs" / "old.k8s.yaml").write_text("kind: Old\n")
    done = run(out.parent, "cdk8s", "synth", "--check-upgrade=false", "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert "warning MEKS-0009" in done.stdout + done.stderr
    return out


def test_cdk_synth_needs_neither_network_nor_credentials(by_cdk):
    """Four templates and no context look-up, with AWS's validator on and quiet."""
    manifest = json.loads((by_cdk / "manifest.json").read_text())
    assert manifest.get("missing", []) == []
    assert len(list(by_cdk.glob("*.template.json"))) == 4
    report = json.loads((by_cdk / "validation-report.json").read_text())
    assert [r for r in report.get("pluginReports", []) if r.get("violations")] == []


def test_cdk_synth_stops_at_a_wrong_file(tmp_path):
    """Findings on stderr and a failing command, never a traceback."""
    wrong = tmp_path / "cluster.yaml"
    wrong.write_text((ROOT / "cluster.yaml").read_text().replace("p4d.24xlarge", "p4d.huge"))
    done = run(
        tmp_path, "cdk", "synth", "-q", "-c", f"config={wrong}", "--output", str(tmp_path / "out")
    )
    assert done.returncode != 0
    assert "error MEKS-0201" in done.stderr
    assert "Traceback" not in done.stderr


def test_cdk8s_synth_writes_three_folders_and_no_stale_file(by_cdk8s):
    """Platform, validation and jobs; what is no longer emitted is gone."""
    assert sorted(path.name for path in by_cdk8s.iterdir()) == ["jobs", "platform", "validation"]
    jobs = {f"{path.stem}.k8s.yaml" for path in (ROOT / "jobs").iterdir()}
    assert {path.name for path in (by_cdk8s / "jobs").iterdir()} == jobs


def test_both_entry_points_work_without_npm(by_cdk, by_cdk8s, tmp_path):
    """`python app.py` and `python -m charts` write the same files as the command lines."""
    for by_cli, command in ((by_cdk, ["app.py"]), (by_cdk8s, ["-m", "charts"])):
        by_python = tmp_path / by_cli.name
        outdirs = {"CDK_OUTDIR": str(by_python), "CDK8S_OUTDIR": str(by_python)}
        done = run(tmp_path, "python", *command, **outdirs)
        assert done.returncode == 0, done.stderr
        written = {
            path.relative_to(by_python): path.read_bytes()
            for pattern in ("*.template.json", "*/*.k8s.yaml")
            for path in by_python.glob(pattern)
        }
        assert written
        for path, content in written.items():
            assert (by_cli / path).read_bytes() == content


def test_a_disk_that_fills_up_under_node_is_told_in_one_line(by_cdk8s, tmp_path):
    """Node writes the manifests, so that the refusal comes as an error of JavaScript."""
    folder = tmp_path / "platform"
    folder.mkdir()
    for file in (by_cdk8s / "platform").iterdir():
        (folder / file.name).symlink_to("/dev/full")
    done = run(tmp_path, str(BIN / "python"), "-m", "charts", CDK8S_OUTDIR=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "cannot write the result: Error: ENOSPC: no space left on device, write"
        " - check the path, its permissions and free space"
    )


def test_the_entry_points_take_no_arguments(tmp_path):
    """A file named there would be left unread; asking for help writes nothing."""
    written = tmp_path / "written"
    outdirs = {"CDK_OUTDIR": str(written), "CDK8S_OUTDIR": str(written)}
    for command in (["app.py"], ["-m", "charts"]):
        told = run(tmp_path, "python", *command, "--help", **outdirs)
        assert (told.returncode, told.stderr) == (0, "")
        assert "CLUSTER_CONFIG" in told.stdout
        refused = run(tmp_path, "python", *command, "other.yaml", **outdirs)
        assert refused.returncode == 2
        assert "unrecognized arguments: other.yaml" in refused.stderr
    assert not written.exists()


def test_another_clusters_output_never_takes_the_place_of_the_folders(tmp_path):
    """The command lines know their own folder only: cdk's is refused, and cdk8s's is a link."""
    file, text = tmp_path / "cluster.yaml", (ROOT / "cluster.yaml").read_text()
    file.write_text(text.replace("name: techpulse", "name: other"))
    here = tmp_path / "checkout"
    mine = here / "dist" / "jobs" / "mine.k8s.yaml"
    mine.parent.mkdir(parents=True)
    mine.touch()
    for each in (
        "cluster.yaml",
        "cdk.json",
        "cdk8s.yaml",
        "app.py",
        "charts",
        "megatron_eks",
        ".venv",
    ):
        (here / each).symlink_to(ROOT / each)
    done = run(tmp_path, "env", "-C", str(here), "cdk", "synth", "-q", CLUSTER_CONFIG=str(file))
    assert done.returncode != 0
    assert f"MEKS-0010 {file}:1 name: . is the folder of cluster 'techpulse'" in done.stderr
    assert f"--output {tmp_path}/cdk.out`, or run: meks synth --cluster {file}" in done.stderr
    assert not any((here / "cdk.out").glob("*.json"))
    cdk8s = ("env", "-C", str(here), "cdk8s", "synth", "--check-upgrade=false")
    for name, code in (("other", 0), ("Two Words", 1), ("other", 0)):
        file.write_text(text.replace("name: techpulse", f"name: {name}"))
        assert run(tmp_path, *cdk8s, CLUSTER_CONFIG=str(file)).returncode == code
        assert (tmp_path / "dist" / "platform" / "20-storage.k8s.yaml").exists()
        assert mine.exists()


def test_a_stack_that_is_gone_leaves_no_template(tmp_path):
    """Renaming a cluster must not leave the old one's templates to be deployed."""
    for kind in ("template", "metadata"):
        (tmp_path / f"techpulse-Old.{kind}.json").write_text("{}")
    (tmp_path / "validation-report.json").write_text("{}")
    shutil.copytree(ROOT / "jobs", tmp_path / "asset.0000")
    done = run(tmp_path, "python", "app.py", CDK_OUTDIR=str(tmp_path), CDK_VALIDATION="false")
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("techpulse-Old.*"))
    assert not (tmp_path / "validation-report.json").exists()
    assert not (tmp_path / "asset.0000").exists()
