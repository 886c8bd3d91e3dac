"""How the programs of a cluster are built, found and shared; no compiler runs here."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from megatron_eks.localcloud.kubernetes import build
from megatron_eks.project import ROOT

NAMES = {
    "etcd",
    "jobset-controller",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kueue-controller",
    "kwok",
    "prometheus",
    "trainer-controller",
    "training-operator",
}

# Stands in for Go: it writes what it was asked to build and counts its calls.
_GO = """\
#!/bin/sh
if [ "$1" = env ]; then echo go{version}; exit; fi
for argument; do case "$argument" in -o=*) target=${{argument#-o=}};; esac; done
if [ -n "{fails}" ]; then echo "no required module" >&2; exit 1; fi
sleep 0.1
echo "$PWD $GOFLAGS $GOCACHE $*" > "$target"
echo built >> "{log}"
"""


@pytest.fixture
def machine(tmp_path):
    """Return a function that makes an environment with a Go of its own."""

    def make(version: str = "1.26.8", fails: str = "") -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        go = folder / "go"
        go.write_text(_GO.format(version=version, fails=fails, log=tmp_path / "log"))
        go.chmod(0o755)
        path = f"{folder}:/usr/bin:/bin"
        return {"PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}

    return make


def test_programs_are_built_once_from_the_committed_modules(machine, tmp_path):
    """Read-only modules, no path of this machine inside, and a cache outside of the checkout."""
    lines: list[str] = []
    found = build.programs(machine(), lines.append)
    assert set(found) == NAMES
    for file in found.values():
        assert file.is_relative_to(tmp_path / "cache" / "megatron-eks" / "kubernetes")
        assert "-mod=readonly -trimpath" in file.read_text()
        assert f"{file.parents[1]}/.objects" in file.read_text()
        assert not (file.parents[1] / ".objects").exists()
    assert "gitVersion=v1.35.4" in found["kube-apiserver"].read_text()
    assert lines.index("building etcd (1 of 10)") < lines.index("building kube-apiserver (2 of 10)")
    # A module each, side by side.
    assert lines.index("building training-operator (5 of 10)") < lines.index(
        "building kube-scheduler (4 of 10)"
    )

    assert build.programs(machine(), pytest.fail) == found
    found["kwok"].unlink()
    build.programs(machine(), lines.append)
    assert (tmp_path / "log").read_text().count("built") == 11


def test_two_processes_do_not_build_twice(machine, tmp_path):
    """The second waits for the first, says so, and finds everything."""
    script = textwrap.dedent("""
        import json, sys
        from megatron_eks.localcloud.kubernetes import build
        build.programs(json.loads(sys.argv[1]), print)
    """)
    command = [sys.executable, "-c", script, json.dumps(machine())]
    runs = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603 -- ours
        for _ in range(2)
    ]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert (tmp_path / "log").read_text().count("built") == 10
    assert sum("another process is building" in output for output in outputs) <= 1


def test_a_failed_build_says_what_go_said(machine):
    """And leaves nothing that a later run would take for a program."""
    with pytest.raises(build.BuildError, match="cannot be built\nno required module"):
        build.programs(machine(fails="yes"), lambda _: None)
    assert set(build.programs(machine(), lambda _: None)) == NAMES


def test_a_build_removes_what_is_long_unused(machine, tmp_path):
    """And only a build does: another run of what is there costs nothing."""
    environment = machine()
    old = tmp_path / "cache" / "megatron-eks" / "kubernetes" / "old"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    built = build.programs(environment, lambda _: None)
    assert not old.exists()
    old.mkdir()
    os.utime(old, (0, 0))
    assert build.programs(environment, pytest.fail) == built
    assert old.exists()


def test_an_old_go_is_passed_over(machine, tmp_path, monkeypatch):
    """For the one that `make setup-dev` installs; without that one, a person is told."""
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    environment = machine(version="1.25.3")
    with pytest.raises(build.BuildError, match=r"no Go 1\.26\.0 or newer - run `make setup-dev`"):
        build.programs(environment, lambda _: None)
    machine()
    (tmp_path / "go").symlink_to(tmp_path / "bin" / "go")
    assert set(build.programs({**environment, "PATH": "/usr/bin:/bin"}, lambda _: None)) == NAMES


def test_one_version_of_the_operator_is_tested_and_run():
    """Tests that read upstream's code read the release that is built here."""
    other = (ROOT / "tests" / "upstream" / "go.mod").read_text()
    version = build.module_version("operator", "github.com/kubeflow/training-operator")
    assert f"github.com/kubeflow/training-operator {version}\n" in other
