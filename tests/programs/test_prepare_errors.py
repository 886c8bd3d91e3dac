"""What prepare_data says and returns where the data or the command line are not right."""

import codecs
import gzip
import json
from pathlib import Path

import pytest

from tests.programs.prepare_files import data, document, python, run, write_lines

pytestmark = pytest.mark.programs

BAD = [
    b'{"text": "good"}\n',
    b"\n",
    b'{"text": "a\xff"}\r\n',
    b'{"text": "good"}\r',
    b'{"text": "\\ud800"}\n',
    b'\xef\xbb\xbf{"text": "bom"}\n',
    b'{"text": "raw \0"}\n',
    b'{"other": "key"}\n',
    b'{"text": 7}\n',
    b'{"text": "cut',
]
REASONS = {
    2: "an empty line",
    3: "not UTF-8 at byte 11: invalid start byte",
    5: "'text' has a lone surrogate at character 0",
    6: "begins with a byte order mark, which JSON has not",
    7: "not JSON: Invalid control character at at character 14",
    8: "no key 'text'",
    9: "'text' is a number, not a text",
    10: "not JSON: Unterminated string starting at at character 9",
}


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Return a file with two good lines and one of each kind of bad ones."""
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"".join(BAD))
    return path


def test_skipped_lines_are_accounted_for(tmp_path, bad, tokenizer):
    """Each dropped line is told with file, line and reason; the others are all there."""
    good = write_lines(tmp_path / "good.jsonl", ["before"])
    done = run(
        *("--input", good, bad, "--output-prefix", tmp_path / "out", "--tokenizer", tokenizer),
        *("--on-bad-line", "skip", "--append-eod"),
    )
    expected = [
        {"file": str(bad), "line": line, "reason": reason} for line, reason in REASONS.items()
    ]
    assert done.code == 0
    assert (done.summary["documents"], done.summary["skipped_count"]) == (3, 8)
    assert done.summary["skipped"] == expected
    listed = Path(done.summary["skipped_file"]).read_text().splitlines()
    assert [json.loads(line) for line in listed] == expected
    kept = write_lines(tmp_path / "kept.jsonl", ["before", "good", "good"])
    same = ("--output-prefix", tmp_path / "x", "--tokenizer", tokenizer, "--append-eod")
    run("--input", kept, *same)
    assert data(tmp_path / "out") == data(tmp_path / "x")


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_a_file_may_begin_with_a_byte_order_mark(tmp_path, tokenizer, packed):
    """No line is bad, and no token is of the mark."""
    plain = write_lines(tmp_path / "plain.jsonl", ["first", "second"])
    marked = tmp_path / "marked.jsonl"
    marked.write_bytes(packed(codecs.BOM_UTF8 + plain.read_bytes()))
    for name, file in (("one", plain), ("two", marked)):
        prefix = tmp_path / name
        done = run("--input", file, "--output-prefix", prefix, "--tokenizer", tokenizer)
        assert (done.code, done.summary["documents"], done.summary["skipped"]) == (0, 2, [])
    assert data(tmp_path / "one") == data(tmp_path / "two")


def test_bad_lines_fail_by_default(tmp_path, bad, tokenizer):
    """All bad lines of the block are told at once, and nothing has a final name."""
    done = run("--input", bad, "--output-prefix", tmp_path / "out", "--tokenizer", tokenizer)
    assert done.code == 1
    told = [finding for finding in done.findings if finding.startswith("error")]
    assert told == [
        f"error {bad}:{line}: {reason} - correct it, or skip bad lines"
        for line, reason in REASONS.items()
    ]
    assert not list(tmp_path.glob("out_*"))
    assert (done.summary["documents"], done.summary["skipped"]) == (0, [])


CUT = """
import gzip, sys, zstandard
from pathlib import Path
data = Path(sys.argv[1]).read_bytes()
Path(sys.argv[2] + ".gz").write_bytes(gzip.compress(data)[:-9])
Path(sys.argv[2] + ".zst").write_bytes(zstandard.compress(data)[:-3])
"""


def test_truncated_packed_input(tmp_path, tokenizer):
    """A packed file without its end fails even where bad lines are skipped, and says where."""
    corpus = write_lines(tmp_path / "a.jsonl", [f"text {n}" for n in range(5000)])
    python(CUT, corpus, tmp_path / "cut")
    for kind, name in (("gz", "gzip"), ("zst", "zstd")):
        path = tmp_path / f"cut.{kind}"
        done = run(
            *("--input", path, "--output-prefix", tmp_path / "out", "--tokenizer", tokenizer),
            *("--on-bad-line", "skip"),
        )
        assert done.code == 1
        assert f"error {path}: the {name} data ends too early: it was truncated, after" in done.err
        assert not list(tmp_path.glob("out_*"))


def test_damaged_packed_input(tmp_path, tokenizer):
    """A changed byte in a packed file fails."""
    packed = bytearray(gzip.compress(b'{"text": "a"}\n' * 1000))
    packed[-6] ^= 1
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(packed)
    rest = ("--output-prefix", tmp_path / "out", "--tokenizer", tokenizer)
    done = run("--input", path, *rest)
    assert (done.code, "the gzip data is damaged" in done.err) == (1, True)


def test_no_document_at_all(tmp_path, tokenizer):
    """A data set without a document would end the training; it is not written."""
    (tmp_path / "a.jsonl").write_bytes(b"")
    rest = ("--output-prefix", tmp_path / "out", "--tokenizer", tokenizer)
    done = run("--input", tmp_path / "a.jsonl", *rest)
    assert done.code == 1
    assert done.findings[-1].endswith("the inputs hold no document - correct --input or --json-key")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--input", "{missing}"], "no such file, and nothing matches"),
        (["--input", "{corpus}", "{corpus}"], "this input is given twice"),
        (["--input", "{corpus}", "--tokenizer", "{missing}"], "no such file"),
        (["--input", "{corpus}", "--json-key", "a/b"], "a key becomes part of a file name"),
        (["--input", "{corpus}", "--shards", "3"], "'', with --shards 3"),
        (["--input", "{corpus}", "--shards", "3", "--shard-index", "3"], "'3', with --shards 3"),
        ([], "--input: it is missing"),
    ],
)
def test_wrong_command_line(tmp_path, tokenizer, words, found):
    """What the command line asks for and cannot be ends with 2 and a remedy."""
    places = {"corpus": write_lines(tmp_path / "a.jsonl", ["a"]), "missing": tmp_path / "missing"}
    own = [word.format(**places) for word in words]
    done = run("--output-prefix", tmp_path / "out", "--tokenizer", tokenizer, *own)
    assert done.code == 2
    assert any(found in finding and " - " in finding for finding in done.findings)


def test_tokenizer_without_eos(tmp_path, tokenizer):
    """An EOD that the tokenizer does not name is asked for, not left out."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((tokenizer / "tokenizer.json").read_bytes())
    corpus = write_lines(tmp_path / "a.jsonl", ["a"])
    rest = ("--input", corpus, "--output-prefix", tmp_path / "out", "--tokenizer", folder)
    done = run(*rest, "--append-eod", "--add-bos")
    assert done.code == 2
    assert "error --append-eod: the tokenizer names no eos_token" in done.err
    assert "error --add-bos: the tokenizer names no bos_token" in done.err
    assert run(*rest).code == 0


def test_gigatoken_that_cannot_serve(tmp_path):
    """A tokenizer that gigatoken does not know goes to `tokenizers`, and that is said."""
    folder = tmp_path / "words"
    folder.mkdir()
    vocabulary = {"<unk>": 0, "one": 1, "two": 2}
    content = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    corpus = write_lines(tmp_path / "a.jsonl", ["two one", "three"])
    rest = ("--input", corpus, "--output-prefix", tmp_path / "out", "--tokenizer", folder)
    done = run(*rest)
    assert (done.code, done.summary["backend"]) == (0, "tokenizers")
    assert "`tokenizers` does the work, slower" in done.err
    assert data(tmp_path / "out")[0] == b"\x02\0\x01\0\0\0"


def test_sidecar_says_what_went_in(tmp_path, tokenizer):
    """BOS, EOD, tokenizer, inputs and checksums are recorded, and nothing of the moment."""
    corpus = write_lines(tmp_path / "a.jsonl", ["a b", "c"])
    run(
        *("--input", corpus, "--output-prefix", tmp_path / "out", "--tokenizer", tokenizer),
        *("--append-eod", "--add-bos"),
    )
    sidecar = json.loads(Path(f"{document(tmp_path / 'out')}.json").read_text())
    assert (sidecar["bos"]["id"], sidecar["eod"]["id"]) == (0, 1)
    assert (sidecar["documents"], sidecar["token_type"]) == (2, "uint16")
    assert sidecar["tokenizer"]["vocabulary"] == 1000
    assert sidecar["inputs"][0]["lines"] == 2
    assert all(len(sidecar[kind]["sha256"]) == 64 for kind in ("bin", "idx"))


def test_help(tmp_path):
    """--help needs no package and names the exit codes."""
    done = run("--help", environment={"PYTHONPATH": str(tmp_path)})
    assert (done.code, done.err) == (0, "")
