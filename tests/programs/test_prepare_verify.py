"""--verify tells a good data set from one that is not what it was."""

import json
import struct
from pathlib import Path

import pytest

from tests.programs.megatron_files import write_data_set
from tests.programs.prepare_files import document, run, write_lines

pytestmark = pytest.mark.programs


@pytest.fixture
def prepared(tmp_path, tokenizer) -> Path:
    """Return a good data set of 100 documents, with BOS and EOD."""
    corpus = write_lines(tmp_path / "a.jsonl", [f"text {n}" for n in range(99)] + [["a", "b c"]])
    done = run(
        *("--input", corpus, "--output-prefix", tmp_path / "out", "--tokenizer", tokenizer),
        *("--append-eod", "--add-bos"),
    )
    assert done.code == 0
    return Path(document(tmp_path / "out"))


def change(path: str, offset: int, raw: bytes) -> None:
    """Overwrite bytes in a file."""
    with Path(path).open("r+b") as file:
        file.seek(offset)
        file.write(raw)


def test_good_data_set(prepared, tokenizer):
    """Counts and vocabulary are told of a data set that is as its sidecar says."""
    done = run("--verify", prepared, "--tokenizer", tokenizer)
    summary = done.summary
    sidecar = json.loads(Path(f"{prepared}.json").read_text())
    assert (done.code, done.findings) == (0, [])
    assert (summary["documents"], summary["sequences"]) == (100, 101)
    assert summary["tokens"] == sidecar["tokens"]
    assert (summary["smallest_token"], summary["vocabulary"]) == (0, 1000)


@pytest.mark.parametrize(
    ("kind", "offset", "raw", "found"),
    [
        ("bin", -2, b"\x05\0", "SHA-256 is not the sidecar's"),
        ("bin", 4, b"\xff\xff", "tokens from 0 to 65535, but the tokenizer has 0 to 999"),
        ("idx", 34, struct.pack("<i", -1), "a sequence has a negative length"),
        ("idx", 38, struct.pack("<i", 99), "does not begin where the one before it ends"),
        ("idx", -24, struct.pack("<q", 3), "a document ends before it begins"),
        ("idx", 0, b"X", "it does not begin as an index does"),
    ],
)
def test_changed_data_set(prepared, kind, offset, raw, found):
    """A changed byte is found, by what it breaks and by the checksum."""
    path = f"{prepared}.{kind}"
    size = Path(path).stat().st_size
    change(path, offset % size, raw)
    done = run("--verify", prepared)
    assert done.code == 4
    assert any(found in finding for finding in done.findings)


def test_cut_and_missing_files(prepared):
    """Half of a pair, and a pair without its end, are told."""
    tokens = Path(f"{prepared}.bin")
    tokens.write_bytes(tokens.read_bytes()[:-2])
    done = run("--verify", prepared)
    assert (done.code, "the .bin file has" in done.findings[0]) == (4, True)
    tokens.unlink()
    done = run("--verify", prepared)
    assert (done.code, "no file" in done.findings[0]) == (4, True)


def test_other_tokenizer(prepared, tokenizer, tmp_path):
    """A data set of one tokenizer is not one of another, whatever its numbers."""
    folder = tmp_path / "other"
    folder.mkdir()
    content = (tokenizer / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(content + "\n")
    done = run("--verify", prepared, "--tokenizer", folder)
    assert done.code == 4
    assert f"prepared with another tokenizer than {folder}" in done.findings[0]


def test_data_set_without_a_sidecar(tmp_path):
    """What Megatron's own tool wrote can be verified too, with less to compare."""
    prefix = write_data_set(tmp_path / "a", [(1, 2, 3), (), (4,)])
    done = run("--verify", prefix)
    assert done.code == 0
    assert (done.summary["documents"], done.summary["tokens"]) == (3, 4)
    assert (done.summary["largest_token"], done.summary["token_type"]) == (4, "int32")
    assert len(done.findings) == 2
