"""Shards, joined by whoever is last, are what one process would have written."""

import fcntl
import gzip
import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.programs.prepare_files import command, data, document, run, write_lines

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> tuple[object, ...]:
    """Return options with a plain input, a packed one and a short one, with bad lines in all."""
    folder = tmp_path_factory.mktemp("inputs")
    plain = write_lines(folder / "a.jsonl", [f"plain {n} " * (n % 50) for n in range(3000)])
    lines = plain.read_bytes().splitlines(keepends=True)
    lines[1500] = b"{}\r"
    lines[2999] = b'{"text": 1}'
    plain.write_bytes(b"".join(lines))
    packed = folder / "b.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"text": "packed"}\n' * 700 + b"\n"))
    short = write_lines(folder / "c.jsonl", ["the last"])
    return (
        *("--input", plain, packed, short, "--tokenizer", tokenizer, "--append-eod"),
        *("--on-bad-line", "skip", "--workers", 1),
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, words: tuple[object, ...]) -> Path:
    """Return the prefix of what one process writes."""
    prefix = tmp_path_factory.mktemp("whole") / "out"
    assert run(*words, "--output-prefix", prefix).code == 0
    return prefix


@pytest.mark.parametrize("count", [2, 5])
def test_last_shard_joins(tmp_path, words, whole, count):
    """Shards in any order, each in a pod of an Indexed Job, give the bytes of one process."""
    prefix = tmp_path / "out"
    rest = (*words, "--output-prefix", prefix, "--shards", count, "--resume")
    for index in [*range(1, count), 0]:
        done = run(*rest, environment={"JOB_COMPLETION_INDEX": str(index)})
        assert done.code == 0
        assert Path(f"{document(prefix)}.idx").exists() == (index == 0)
    assert data(prefix) == data(whole)
    sidecars = [Path(f"{document(each)}.json").read_text() for each in (prefix, whole)]
    assert sidecars[0] == sidecars[1]
    skipped = Path(f"{prefix}.skipped.jsonl").read_text()
    assert skipped == Path(f"{whole}.skipped.jsonl").read_text()
    assert (done.summary["documents"], done.summary["skipped_count"]) == (3699, 3)
    kinds = ("skipped.jsonl", *(f"text_document.{kind}" for kind in ("bin", "idx", "json")))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"out.{kinds[0]}", *(f"out_{kind}" for kind in kinds[1:])]
    )


def test_shards_at_once(tmp_path, words, whole):
    """Processes that run and end at the same time join once."""
    prefix = tmp_path / "out"
    rest = (*words, "--output-prefix", prefix, "--shards", 3, "--resume")
    processes = [
        subprocess.Popen(  # noqa: S603 -- the program under test
            command(*rest, "--shard-index", index),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(3)
    ]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], errors
    assert data(prefix) == data(whole)
    assert not list(tmp_path.glob("*shard*"))


def test_joined_by_another_meanwhile(tmp_path, words, whole):
    """Of two processes that both find all shards, the second finds them joined, and ends."""
    prefix = tmp_path / "out"
    rest = (*words, "--output-prefix", prefix, "--shards", 2)
    run(*rest, "--shard-index", 0)
    first = {path: path.read_bytes() for path in tmp_path.glob("*shard-0*")}
    assert run(*rest, "--shard-index", 1).code == 0
    for path, content in first.items():
        path.write_bytes(content)
    assert run(*rest, "--shard-index", 1).summary["documents"] == 3699
    assert data(prefix) == data(whole)
    assert not list(tmp_path.glob("*shard*"))


def test_signal_ends_the_wait_for_the_join(tmp_path, words):
    """While another process joins, there is nothing to finish first."""
    prefix = tmp_path / "out"
    rest = (*words, "--output-prefix", prefix, "--shards", 2)
    run(*rest, "--shard-index", 0)
    with (
        Path(f"{prefix}.lock").open("a") as lock,
        subprocess.Popen(  # noqa: S603 -- the program under test
            command(*rest, "--shard-index", 1), stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        deadline = time.monotonic() + 60
        while f" -> FLOCK  ADVISORY  WRITE {process.pid} " not in re.sub(
            r"^\d+:", "", Path("/proc/locks").read_text(), flags=re.MULTILINE
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    last = json.loads(out.splitlines()[-1])["findings"][-1]
    assert last == "warning a signal: ended the work - continue with --resume"


def test_shard_is_done_once(tmp_path, words, whole):
    """A pod that starts again finds its shard done; when all is joined, it finds that."""
    prefix = tmp_path / "out"
    rest = (*words, "--output-prefix", prefix, "--shards", 2, "--resume")
    assert not run(*rest, "--shard-index", 0).summary["already_done"]
    assert run(*rest, "--shard-index", 0).summary["already_done"]
    assert run(*rest, "--shard-index", 1).summary["documents"] == 3699
    again = run(*rest, "--shard-index", 0)
    assert (again.summary["already_done"], again.summary["documents"]) == (True, 3699)
    assert data(prefix) == data(whole)


def test_cut_shard_is_not_joined(tmp_path, words):
    """A shard that lost its end after it was written does not spoil the whole."""
    prefix = tmp_path / "out"
    rest = (*words, "--output-prefix", prefix, "--shards", 2, "--resume")
    run(*rest, "--shard-index", 0)
    tokens = Path(f"{prefix}.shard-0-of-2_text_document.bin")
    tokens.write_bytes(tokens.read_bytes()[:-2])
    done = run(*rest, "--shard-index", 1)
    assert done.code == 1
    assert "remove its .json and run this shard again" in done.findings[-1]
    assert run(*rest, "--shard-index", 0).code == 0
    assert run(*rest, "--shard-index", 1).summary["documents"] == 3699
