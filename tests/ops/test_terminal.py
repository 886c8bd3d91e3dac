"""Commands on a terminal: what data hold does not act on it, and it may be closed or full."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from megatron_eks.__main__ import main
from megatron_eks.project import ROOT
from tests import command, hostile
from tests.ops.test_cli import CLUSTER, JOB

# The file system takes all but these in a name, and the shell no NUL.
NAME = hostile.ALL.replace("/", "").replace("\0", "")
SHORT = [name for name, text in hostile.CORPUS.items() if "/" not in text and "\0" not in text]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Copy the shipped cluster and one job, and go there."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "jobs" / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def meks(capsys, project):  # noqa: ARG001 -- it runs there
    """Return a function that runs a command, and sees that no stream acts on a terminal."""

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(str(ended.code))
        out, err = capsys.readouterr()
        assert (hostile.acting(out), hostile.acting(err)) == ([], [])
        return code, out, err

    return call


@pytest.mark.parametrize("name", SHORT)
def test_names_and_values_of_files(meks, project, name):
    """In findings, in errors about the command line, and as data, where nothing is lost."""
    text = hostile.CORPUS[name]
    file = f"a{text}.yaml"
    (project / file).write_text(json.dumps({f"k{text}": f"v{text}", "kind": f"v{text}"}))
    assert meks("validate", file, f"--cluster={file}")[0] == 2
    _, out, _ = meks("validate", file, "-o", "json")
    assert text in json.loads(out)[0]["file"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("validate", f"--{NAME}"), 2),
        (("validate", NAME[:80]), 2),
        (("check", NAME[:80]), 2),
        (("explain", NAME), 2),
        (("data", "push", NAME[:80], "s3://a/b"), 3),
        (("logs", "--explain", "--file", NAME[:80]), 3),
        (("plan", f"--cluster={NAME[:80]}"), 2),
        ((NAME,), 2),
    ],
)
def test_words_of_the_command_line(meks, words, code):
    """A shell puts names of files there: `meks validate *`."""
    assert meks(*words)[0] == code


def test_logs_that_are_explained(meks, project, monkeypatch):
    """Cause and evidence, of a file and of standard input; programs get every letter."""
    seen = hostile.ALL.replace("\r", "")
    line = f"{seen}torch.OutOfMemoryError: CUDA out of memory. {hostile.COLOURS}\n"
    (project / "log").write_text(line)
    monkeypatch.setattr("sys.stdin", io.StringIO(line))
    for file in ("log", "-"):
        code, out, _ = meks("logs", "--explain", "--file", file)
        assert code == 0
        assert "CUDA out of memory" in " ".join(out.split())
    _, out, _ = meks("logs", "--explain", "--file", "log", "-o", "json")
    assert json.loads(out)["code"] is not None


def closed(words: str, folder: Path) -> "subprocess.CompletedProcess[bytes]":
    """Run `meks` with streams as a shell gives them; what it says goes into files."""
    return subprocess.run(  # noqa: S602 -- redirections are what is tested
        f"{sys.executable} -m {words}",
        shell=True,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("stream", [">&-", ">/dev/full"])
@pytest.mark.parametrize("command", ["validate", "validate none.yaml", "plan", "--version"])
def test_a_result_that_cannot_be_written(project, command, stream):
    """A closed standard output is like a full disk."""
    done = closed(f"megatron_eks {command} {stream}", project)
    assert done.returncode == 1
    said = done.stderr.decode()
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("cannot write the result: [Errno ")


@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    ("command", "code"),
    [("validate", 0), ("explain MEKS-9999", 2), ("nonsense", 2)],
)
def test_messages_that_nobody_gets(project, command, code, stream):
    """The command does its work, and its exit code tells."""
    done = closed(f"megatron_eks {command} {stream}", project)
    assert (done.returncode, done.stderr) == (code, b"")


@pytest.mark.parametrize("command", ["validate", "data push cluster.yaml", "init"])
def test_all_streams_are_closed(project, command):
    """No file that is opened gets their numbers, and nothing is written into one."""
    done = closed(f"megatron_eks {command} <&- >&- 2>&-", project)
    assert done.returncode in {1, 2, 3}
    assert {path.name for path in project.iterdir()} == {"cluster.yaml", "jobs"}
    assert (project / "cluster.yaml").read_text() == CLUSTER


def test_findings_are_no_words_for_a_shell_to_run(tmp_path):
    """What `meks local up` prints is evaluated."""
    (tmp_path / "cluster.yaml").write_text("gpu_pools: two\n")
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = command.meks("local", "up", "--empty", cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout, "error MEKS-0102" in done.stderr) == (2, "", True)
