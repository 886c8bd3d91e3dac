"""An interrupted preparation goes on where it was, and never shows half of a data set."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.programs.prepare_files import (
    PYTHON,
    command,
    document,
    run,
    write_lines,
)

pytestmark = pytest.mark.programs

# Runs the program, and dies as by a power cut before its n-th change of names or flush to disk.
CRASH = """
import os, pathlib, signal, sys
left = int(sys.argv[1])
def counted(real):
    def call(*words, **more):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*words, **more)
    return call
os.fsync = counted(os.fsync)
pathlib.Path.replace = counted(pathlib.Path.replace)
pathlib.Path.unlink = counted(pathlib.Path.unlink)
from megatron_eks.programs import prepare_data, program
sys.exit(program.run("prepare_data", prepare_data.main, sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 30 MB of lines, some of them bad."""
    path = tmp_path_factory.mktemp("corpus") / "a.jsonl"
    texts = [f"document {n}, " * 500 for n in range(4000)]
    lines = write_lines(path, texts).read_bytes().splitlines(keepends=True)
    for number in (5, 1800, 3999):
        lines[number] = b'{"text": 1}\n'
    path.write_bytes(b"".join(lines))
    return path


@pytest.fixture(scope="module")
def words(corpus: Path, tokenizer: Path) -> tuple[object, ...]:
    """Return the options that all runs share."""
    return (
        *("--input", corpus, "--tokenizer", tokenizer, "--append-eod"),
        *("--on-bad-line", "skip", "--workers", 2),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, words: tuple[object, ...]) -> Path:
    """Return the prefix of a run that nobody interrupted."""
    prefix = tmp_path_factory.mktemp("whole") / "out"
    assert run(*words, "--output-prefix", prefix).code == 0
    return prefix


def files(prefix: Path) -> dict[str, bytes]:
    """Return every file of a folder that holds nothing but one preparation."""
    return {path.name: path.read_bytes() for path in prefix.parent.iterdir()}


def check_visible(prefix: Path, whole: Path) -> None:
    """Check that a file under its final name is whole, and there after those it needs."""
    seen = []
    for kind in ("json", "idx", "bin"):
        path = Path(f"{document(prefix)}.{kind}")
        seen.append(path.exists())
        if path.exists():
            assert path.read_bytes() == Path(f"{document(whole)}.{kind}").read_bytes()
    assert seen == sorted(seen)


@pytest.mark.long
def test_killed_again_and_again(tmp_path, words, whole):
    """SIGKILL at random moments costs no byte, and each run goes on from the last commit."""
    chance = random.Random(7)  # noqa: S311 -- the same moments in each run of the test
    prefix = tmp_path / "out"
    state = Path(f"{prefix}.work/state.json")
    offsets = []
    for _ in range(5):
        process = subprocess.Popen(  # noqa: S603 -- the program under test
            command(*words, "--output-prefix", prefix, "--resume", "--commit-seconds", 0),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = state.read_bytes() if state.exists() else b""
        while process.poll() is None and (not state.exists() or state.read_bytes() == before):
            time.sleep(0.01)
        time.sleep(chance.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        check_visible(prefix, whole)
        offsets.append(json.loads(state.read_text())["offset"] if state.exists() else None)
    assert offsets[0]
    known = [offset for offset in offsets if offset is not None]
    assert known == sorted(set(known))
    done = run(*words, "--output-prefix", prefix, "--resume")
    assert (done.code, done.summary["skipped_count"]) == (0, 3)
    assert files(prefix) == files(whole)


@pytest.mark.long
def test_killed_at_every_step_of_the_end(tmp_path, tokenizer):
    """Before each flush and each change of a name a crash leaves what --resume completes."""
    corpus = write_lines(tmp_path / "a.jsonl", ["one", 2, "three"])
    words = ("--input", corpus, "--tokenizer", tokenizer, "--on-bad-line", "skip", "--workers", 1)
    whole = tmp_path / "whole" / "out"
    run(*words, "--output-prefix", whole)
    codes: list[int] = []
    while 0 not in codes:
        place = len(codes) + 1
        prefix = tmp_path / str(place) / "out"
        done = subprocess.run(  # noqa: S603 -- the program under test
            [
                *(PYTHON, "-c", CRASH, str(place)),
                *map(str, words),
                *("--output-prefix", prefix),
            ],
            capture_output=True,
            check=False,
        )
        codes.append(done.returncode)
        check_visible(prefix, whole)
        again = run(*words, "--output-prefix", prefix, "--resume")
        assert again.code == 0
        assert files(prefix) == files(whole)
    # Flushes and names of tokens, index, sidecar, skipped lines and state.
    assert codes[:-1] == [-signal.SIGKILL] * (len(codes) - 1)
    assert len(codes) > 15


def test_signal_commits_and_says_how_to_go_on(tmp_path, words, whole):
    """SIGTERM, as a pod gets it, ends with 130 after the block at hand."""
    prefix = tmp_path / "out"
    process = subprocess.Popen(  # noqa: S603 -- the program under test
        command(*words, "--output-prefix", prefix, "--commit-seconds", 0),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    state = Path(f"{prefix}.work/state.json")
    while not state.exists():
        time.sleep(0.01)
    process.terminate()
    out, err = process.communicate()
    assert process.returncode == 130
    assert "warning a signal: ended the work - continue with --resume" in err
    assert json.loads(out.splitlines()[-1])["documents"] == 0
    assert run(*words, "--output-prefix", prefix, "--resume").code == 0
    assert files(prefix) == files(whole)


def test_workers_end_with_their_parent(tmp_path, words):
    """A killed preparation leaves no process behind."""
    process = subprocess.Popen(  # noqa: S603 -- the program under test
        command(*words, "--output-prefix", tmp_path / "out", "--commit-seconds", 0),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (tmp_path / "out.work" / "state.json").exists():
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_resume_of_what_is_done_does_nothing(tmp_path, words, whole):
    """A pod that starts once more finds the sidecar, and touches no file."""
    prefix = tmp_path / "out"
    run(*words, "--output-prefix", prefix)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    done = run(*words, "--output-prefix", prefix, "--resume")
    assert (done.code, done.summary["already_done"]) == (0, True)
    assert done.summary["skipped_count"] == 3
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert files(prefix) == files(whole)


def test_resume_of_something_else_is_refused(tmp_path, words, tokenizer):
    """Other inputs or options do not mix with what is there; without --resume they replace it."""
    prefix = tmp_path / "out"
    run(*words, "--output-prefix", prefix)
    other = write_lines(tmp_path / "b.jsonl", ["another text"])
    rest = ("--input", other, "--tokenizer", tokenizer, "--output-prefix", prefix)
    done = run(*rest, "--resume")
    assert done.code == 2
    assert done.findings[-1].endswith(
        "start without --resume to replace it, or take another --output-prefix"
    )
    assert run(*rest).summary["documents"] == 1
    assert not Path(f"{prefix}.skipped.jsonl").exists()


def test_input_that_changes_is_noticed(tmp_path, tokenizer):
    """A commit counts for the file that was read, not for another of its name."""
    path = write_lines(tmp_path / "a.jsonl", ["one"] * 5)
    with path.open("ab") as file:
        file.write(b"broken\n")
    rest = ("--input", path, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "out")
    assert run(*rest).code == 1
    write_lines(path, ["two"] * 5)
    done = run(*rest, "--resume")
    assert done.code == 2
    assert "it belongs to other inputs, another tokenizer or other options" in done.findings[-1]


def test_two_at_once_are_refused(tmp_path, words):
    """A second process on the same output ends at once."""
    prefix = tmp_path / "out"
    process = subprocess.Popen(  # noqa: S603 -- the program under test
        command(*words, "--output-prefix", prefix, "--commit-seconds", 0),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not Path(f"{prefix}.work/state.json").exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGSTOP)
    done = run(*words, "--output-prefix", prefix)
    process.kill()
    process.wait()
    assert done.code == 1
    assert done.findings[-1].endswith("another process prepares it - wait for it, or end it")
