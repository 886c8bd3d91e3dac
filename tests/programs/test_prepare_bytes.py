"""What prepare_data writes is what Megatron writes, whatever the workers, packing and back end."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.prepare_files import (
    ORACLE,
    adversarial,
    command,
    data,
    python,
    run,
    write_lines,
)

pytestmark = pytest.mark.programs

ZSTD = """
import sys, zstandard
from pathlib import Path
Path(sys.argv[2]).write_bytes(zstandard.compress(Path(sys.argv[1]).read_bytes()))
"""


# The largest process among a command's own, in KiB.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of lines that are hard and legal."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    path.write_bytes(adversarial())
    return path


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory, corpus: Path, tokenizer: Path) -> Path:
    """Return the folder of what Megatron's classes make of the corpus: `plain` and with `bos`."""
    folder = tmp_path_factory.mktemp("oracle")
    python(ORACLE, corpus, tokenizer, folder)
    return folder


@pytest.mark.parametrize("backend", ["auto", "tokenizers"])
@pytest.mark.parametrize("name", ["plain", "bos"])
def test_bytes_are_megatrons(tmp_path, corpus, oracle, *, tokenizer, backend, name):
    """Each back end gives Megatron's bytes, with and without its BOS, on adversarial text."""
    done = run(
        *("--input", corpus, "--output-prefix", tmp_path / "out", "--tokenizer", tokenizer),
        *("--append-eod", "--workers", 2, "--backend", backend),
        *(["--add-bos"] if name == "bos" else []),
    )
    used = "tokenizers" if backend == "tokenizers" else "gigatoken"
    assert (done.code, done.summary["backend"]) == (0, used)
    assert data(tmp_path / "out") == data(oracle / name)


def test_packed_inputs_are_the_same_lines(tmp_path, corpus, oracle, tokenizer):
    """Gzip of two members with padding, and zstd, hold what the plain file holds."""
    lines = corpus.read_bytes()
    packed = tmp_path / "corpus.jsonl.gz"
    packed.write_bytes(gzip.compress(lines[:5000]) + gzip.compress(lines[5000:]) + b"\0" * 512)
    python(ZSTD, corpus, tmp_path / "corpus.jsonl.zst")
    for path in (packed, tmp_path / "corpus.jsonl.zst"):
        done = run(
            *("--input", path, "--output-prefix", tmp_path / "out", "--tokenizer", tokenizer),
            "--append-eod",
        )
        assert done.code == 0
        assert data(tmp_path / "out") == data(oracle / "plain")


def test_workers_change_nothing(tmp_path, tokenizer):
    """One worker and three write the same files, the sidecar included."""
    corpus = write_lines(tmp_path / "a.jsonl", [f"text {n} " * 300 for n in range(6000)])
    written = []
    for workers in (1, 3):
        folder = tmp_path / str(workers)
        done = run(
            *("--input", corpus, "--output-prefix", folder / "out", "--tokenizer", tokenizer),
            *("--append-eod", "--workers", workers),
        )
        assert done.code == 0
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1]
    assert sorted(written[0]) == [f"out_text_document.{kind}" for kind in ("bin", "idx", "json")]


def test_several_inputs_and_keys(tmp_path, tokenizer):
    """Inputs are joined in order, folders by name; each key has a data set of its own."""
    folder = tmp_path / "more"
    folder.mkdir()
    rows = [{"text": f"text {n}", "title": f"a title {n}"} for n in range(9)]
    files = [folder / "b.jsonl", folder / "c.jsonl", tmp_path / "a.jsonl"]
    (folder / "notes.txt").write_text("no lines of JSON")
    for number, path in enumerate(files):
        part = rows[3 * number : 3 * number + 3]
        path.write_text("".join(json.dumps(row) + "\n" for row in part))
    keys = ("--json-key", "text", "--json-key", "title", "--append-eod")
    words = ("--tokenizer", tokenizer, *keys)
    done = run("--input", folder, files[2], "--output-prefix", tmp_path / "out", *words)
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(path.read_bytes() for path in files))
    run("--input", whole, "--output-prefix", tmp_path / "one", *words)
    for key in ("text", "title"):
        assert data(tmp_path / "out", key) == data(tmp_path / "one", key)
    assert data(tmp_path / "out", "text") != data(tmp_path / "out", "title")
    sidecars = [
        json.loads(Path(f"{prefix}.json").read_text()) for prefix in done.summary["outputs"]
    ]
    assert [sidecar["documents"] for sidecar in sidecars] == [9, 9]
    assert [(entry["file"], entry["documents"]) for entry in sidecars[0]["inputs"]] == [
        (str(path), 3) for path in files
    ]


def test_memory_is_bounded(tmp_path, tokenizer):
    """200 MB behind a small gzip file, with a line of 10 MB, never are in memory together."""
    line = json.dumps({"text": "Some ordinary words, again and again. " * 500}).encode() + b"\n"
    corpus = tmp_path / "a.jsonl.gz"
    with gzip.open(corpus, "wb", compresslevel=1) as file:
        for _ in range(10):
            file.write(line * 1000)
        file.write(json.dumps({"text": "word " * 2_000_000}).encode())
    words = ("--input", corpus, "--output-prefix", tmp_path / "out", "--tokenizer", tokenizer)
    peak = subprocess.run(  # noqa: S603 -- the program under test
        [sys.executable, "-c", PEAK, *command(*words, "--workers", 2)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(peak.stdout.splitlines()[-1]) < 400 * 1024
