"""Lines are found and judged as Python's text files and Megatron's parser do it."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_eks.programs.prepare import reader as prepare_blocks
from megatron_eks.programs.prepare.inputs import local_file
from megatron_eks.programs.prepare.job import PrepareError, Shard
from megatron_eks.programs.prepare.reader import blocks, count_lines, spans
from megatron_eks.programs.prepare.text import read

PATIENT = settings(deadline=None)
# Few bytes of many line ends: every border between two of them comes up.
LINES = st.binary(max_size=60).map(lambda raw: bytes(b"\r\n\nab\r{}"[byte % 8] for byte in raw))


def text_lines(data: bytes) -> list[bytes]:
    """Return the lines as Megatron reads them: a text file with universal line ends."""
    return [line.rstrip("\n").encode() for line in io.TextIOWrapper(io.BytesIO(data), "utf-8")]


@PATIENT
@given(data=LINES, chunk=st.integers(1, 9), block=st.integers(1, 9))
def test_blocks_are_whole_lines(data, chunk, block):
    """However a stream is cut, its blocks are the stream, and each has whole lines."""
    chunks = [data[place : place + chunk] for place in range(0, len(data), chunk)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare_blocks, "BLOCK_BYTES", block)
        starts, found = [], []
        for start, lines in blocks(chunks, 0, "x"):
            starts.append(start)
            found.append(lines)
    assert starts == [len(b"".join(found[:place])) for place in range(len(found))]
    assert b"".join(found) == data
    assert [line for item in found for line in item.splitlines()] == text_lines(data)


@pytest.mark.parametrize("line", [b"a" * 9, b"a" * 8 + b"\n"])
def test_line_above_the_limit_ends_the_reading(monkeypatch, line):
    """Of a file without lines the memory would run full; the place is told."""
    monkeypatch.setattr(prepare_blocks, "BLOCK_BYTES", 2)
    monkeypatch.setattr(prepare_blocks, "LONGEST_LINE", 7)
    bytes_of = [bytes([each]) for each in b"ab\n" + line]
    with pytest.raises(PrepareError) as raised:
        list(blocks(bytes_of, 0, "a.jsonl"))
    assert "the line that begins at byte 3 has more than 7" in raised.value.finding.found


@PATIENT
@given(data=LINES, chunk=st.integers(1, 9))
def test_lines_are_counted(data, chunk):
    """A count over chunks is that of the whole, a last line without an end aside."""
    chunks = [data[place : place + chunk] for place in range(0, len(data), chunk)]
    unfinished = bool(data) and data[-1:] not in b"\r\n"
    assert count_lines(chunks) == len(text_lines(data)) - unfinished


@PATIENT
@given(parts=st.lists(LINES, min_size=1, max_size=4), count=st.integers(1, 7))
def test_shards_share_the_lines(tmp_path_factory, parts, count):
    """The shards' parts, in order, are the inputs, and none begins inside of a line."""
    folder = tmp_path_factory.mktemp("inputs")
    sources = []
    for number, part in enumerate(parts):
        (folder / str(number)).write_bytes(part)
        sources.append(local_file(str(folder / str(number))))
    read_by = [b""] * len(parts)
    for index in range(count):
        for span in spans(sources, [None] * len(parts), Shard(index, count)):
            assert span.start == len(read_by[span.source])
            whole = parts[span.source]
            assert whole[: span.start][-1:] in (b"", b"\n", b"\r")
            assert whole[span.start - 1 : span.start + 1] != b"\r\n"
            read_by[span.source] += whole[span.start : span.end]
    assert read_by == parts


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "an empty line"),
        (b" \t ", "an empty line"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes at character 1"),
        (b'{"text": "a"', "not JSON: Expecting ',' delimiter at character 12"),
        (b'{"text": "a"} {}', "not JSON: Extra data at character 14"),
        (b'{"text": "a\0b"}', "not JSON: Invalid control character at at character 11"),
        (b'\xef\xbb\xbf{"text": "a"}', "begins with a byte order mark, which JSON has not"),
        (b'{"text": "a\xffb"}', "not UTF-8 at byte 11: invalid start byte"),
        (b'{"text": "\xed\xa0\x80"}', "not UTF-8 at byte 10: invalid continuation byte"),
        (b'{"text": "ab\\ud800"}', "'text' has a lone surrogate at character 2"),
        (b'{"text": ["a", "\\udc00"]}', "'text' has a lone surrogate at character 0"),
        (b'["text"]', "not a JSON object but a list"),
        (b'{"txt": "a"}', "no key 'text'"),
        (b'{"text": null}', "'text' is null, not a text"),
        (b'{"text": {"a": 1}}', "'text' is an object, not a text"),
        (b'{"text": ["a", 1]}', "'text' holds a number among its texts"),
        (b'{"x": ' + b"[" * 9000 + b"]" * 9000 + b', "text": "a"}', "nested too deeply"),
    ],
)
def test_bad_line_has_its_reason(line, reason):
    """Each kind of bad line is told by its place and why; the lines around it are read."""
    texts = read(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n', ["text"])
    assert (texts.lines, texts.documents) == (3, [["before", "after"]])
    ((place, found),) = texts.bad
    assert place == 1
    assert found.startswith(reason)


def test_line_without_one_of_its_keys_is_bad_for_all():
    """Data sets of several keys keep the same documents."""
    rows = [{"a": "1", "b": "2"}, {"a": "3"}, {"b": "4", "a": ["5", "6"]}]
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    texts = read(data, ["a", "b"])
    assert texts.documents == [["1", ["5", "6"]], ["2", "4"]]
    assert texts.bad == [(1, "no key 'b'")]
