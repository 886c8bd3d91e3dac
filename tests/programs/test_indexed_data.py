"""The look at an indexed data set finds what would end or spoil a run."""

import re
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_eks.programs.prepare.indexed_data import (
    TYPES,
    BadDataSetError,
    DataSet,
    blend_prefixes,
    check_prefix,
    check_split,
    read_data_set,
)
from tests.programs.megatron_files import write_data_set

# Each example writes files, which takes its time on a busy machine.
SLOW_DISK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
HEADER_BYTES = 34


def damage(prefix: Path, offset: int, data: bytes) -> None:
    """Overwrite bytes of an index."""
    index = bytearray(Path(f"{prefix}.idx").read_bytes())
    index[offset : offset + len(data)] = data
    Path(f"{prefix}.idx").write_bytes(index)


def test_good_data_set_is_counted(tmp_path):
    """Documents and tokens come from the index and the size of the .bin file."""
    data = read_data_set(str(write_data_set(tmp_path / "a", [(1, 2, 3), (), (4,)])))
    assert (data.documents, data.tokens) == (3, 4)


def test_multimodal_index_is_accepted(tmp_path):
    """A multimodal index carries one more byte for each sequence."""
    prefix = write_data_set(tmp_path / "a")
    with Path(f"{prefix}.idx").open("ab") as index:
        index.write(b"\x00\x00")
    assert read_data_set(str(prefix)).documents == 2


@pytest.mark.parametrize(
    ("ratios", "sequences", "empty"),
    [
        ("98,2,0", 100, []),
        ("98,2,0", 26, []),
        ("98,2,0", 24, ["validation"]),
        ("969, 30, 1", 2, ["validation", "test"]),
        ("1,99,0", 40, ["training"]),
        ("100", 1, []),
        ("0.98,0.02", 10, ["validation"]),
    ],
)
def test_part_without_sequences_is_refused(ratios, sequences, empty):
    """Megatron rounds the ends of the parts, and counts epochs of an empty one for ever."""
    found = [str(each) for each in check_split(ratios, DataSet("/data", 1, 1, sequences))]
    assert [next(name for name in empty if name in each) for each in found] == empty


def test_split_of_nothing_is_refused():
    """Megatron would divide by it."""
    (found,) = check_split("0,0,0", DataSet("/data", 1, 1, 1))
    assert "no share above 0" in str(found)


@pytest.mark.parametrize(
    ("offset", "data", "found"),
    [
        (0, b"PARQUET", "it does not begin as an index does"),
        (9, struct.pack("<Q", 2), "index version 2, but Megatron reads 1"),
        (17, b"\x09", "unknown type code 9"),
        (17, b"\x08", "it describes 16 bytes of tokens, the .bin file has 20"),
        (18, struct.pack("<Q", 0), "it holds no document"),
        (18, struct.pack("<Q", 3), "82 bytes, but 3 sequences and 3 document boundaries take 94"),
        (26, struct.pack("<Q", 1), "it holds no document"),
        (26, struct.pack("<Q", 4), "82 bytes, but 2 sequences and 4 document boundaries take 90"),
        (58, struct.pack("<q", 1), "documents span sequences 1 to 2, but there are 2"),
        (74, struct.pack("<q", 9), "documents span sequences 0 to 9, but there are 2"),
        (38, struct.pack("<i", 7), "it describes 40 bytes of tokens, the .bin file has 20"),
    ],
)
def test_damaged_index_is_refused(tmp_path, offset, data, found):
    """Every field of the header, and the two files' sizes, have to agree."""
    prefix = write_data_set(tmp_path / "a")
    damage(prefix, offset, data)
    with pytest.raises(BadDataSetError, match=re.escape(found)):
        read_data_set(str(prefix))


@pytest.mark.parametrize("kept", [0, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 5, 81])
def test_cut_index_is_refused(tmp_path, kept):
    """A preparation that was interrupted leaves a short index."""
    prefix = write_data_set(tmp_path / "a")
    index = Path(f"{prefix}.idx")
    index.write_bytes(index.read_bytes()[:kept])
    with pytest.raises(BadDataSetError, match="bytes"):
        read_data_set(str(prefix))


@pytest.mark.parametrize("change", [-1, 1])
def test_bin_of_another_length_is_refused(tmp_path, change):
    """Tokens that do not end where the index ends belong to another preparation."""
    prefix = write_data_set(tmp_path / "a")
    tokens = Path(f"{prefix}.bin")
    tokens.write_bytes(tokens.read_bytes()[:change] if change < 0 else tokens.read_bytes() + b"x")
    with pytest.raises(BadDataSetError, match=r"it describes 20 bytes of tokens, the \.bin"):
        read_data_set(str(prefix))


@settings(SLOW_DISK)
@given(
    sequences=st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6),
    cut=st.integers(1, 20),
)
def test_no_cut_of_an_index_passes(tmp_path_factory, sequences, cut):
    """Whatever the documents, an index that lost its end is refused."""
    prefix = write_data_set(tmp_path_factory.mktemp("data") / "a", sequences)
    assert read_data_set(str(prefix)).tokens == sum(len(sequence) for sequence in sequences)
    index = Path(f"{prefix}.idx")
    index.write_bytes(index.read_bytes()[:-cut])
    with pytest.raises(BadDataSetError):
        read_data_set(str(prefix))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("absent", "no file {0}.bin and {0}.idx - prepare the data, or correct the prefix"),
        ("a.bin", "this names a file - name the prefix: {1}"),
        ("a.idx", "this names a file - name the prefix: {1}"),
    ],
)
def test_wrong_prefix_is_explained(tmp_path, name, found):
    """A prefix without files, and a file instead of a prefix, each have their remedy."""
    prefix = str(tmp_path / name)
    write_data_set(tmp_path / "a")
    (finding,) = check_prefix(prefix, [])
    assert str(finding) == f"error {prefix}: {found.format(prefix, prefix[:-4])}"


def test_object_storage_is_left_to_megatron():
    """A prefix in S3 cannot be looked at through the file system."""
    assert list(check_prefix("s3://bucket/a", [])) == []


@pytest.mark.parametrize(
    ("words", "prefixes", "errors"),
    [
        (["/a"], ("/a",), 0),
        (["0.7", "/a", "0.3", "/b"], ("/a", "/b"), 0),
        (["/a", "/b", "/c"], ("/a", "/b", "/c"), 0),
        (["/a", "/b"], ("/b",), 1),
        ([], (), 0),
    ],
)
def test_blend_is_read_as_megatron_reads_it(words, prefixes, errors):
    """An even number of words is weights and prefixes, an odd number prefixes alone."""
    found = blend_prefixes(words)
    assert (found[0], len(found[1])) == (prefixes, errors)


def test_every_type_code_has_a_size():
    """Megatron's index knows eight types."""
    assert sorted(TYPES) == list(range(1, 9))
