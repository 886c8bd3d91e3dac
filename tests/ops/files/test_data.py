"""`meks data`: to the cluster's bucket with checksums, again without sending, and verified."""

import json
import os
import socket
import struct

import pytest

from megatron_eks.ops import programs
from megatron_eks.ops.failure import Failure
from megatron_eks.plan.jobs.job import MIB
from tests import hostile, schemas
from tests.programs.s3_world import BUCKET

URI = f"s3://{BUCKET}/run/corpus"
HOSTILE = hostile.ALL.replace("/", "").replace("\0", "")

# Each starts commands, some of which wait for an S3 that fails.
pytestmark = pytest.mark.tools


@pytest.fixture
def corpus(tmp_path):
    """Return a folder with files of several sizes, and one name that is not ASCII."""
    folder = tmp_path / "corpus"
    (folder / "part").mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"text": "a"}\n')
    (folder / "part" / "b ä.jsonl").write_text('{"text": "b"}\n' * 1000)
    (folder / "empty").touch()
    return folder


@pytest.fixture
def data_set(tmp_path):
    """Write a small indexed data set without a sidecar; return its prefix."""
    prefix = tmp_path / "tiny_text_document"
    lengths, tokens = [3, 2], [5, 6, 7, 8, 9]
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 2, 3)
    index = struct.pack("<2i", *lengths) + struct.pack("<2q", 0, 6) + struct.pack("<3q", 0, 1, 2)
    prefix.with_suffix(".idx").write_bytes(head + index)
    prefix.with_suffix(".bin").write_bytes(struct.pack("<5H", *tokens))
    return prefix


def test_a_folder_goes_to_s3_once(meks, s3, corpus):
    """The second time nothing is sent; one changed byte is."""
    done = meks("data", "push", corpus, f"s3://{BUCKET}/run")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"s3://{BUCKET}/run: 3 files, 14 kB; 3 sent, 0 there already\n"
    assert sorted(s3.names()) == ["corpus/a.jsonl", "corpus/empty", "corpus/part/b ä.jsonl"]
    head = s3.client.head_object(Bucket=BUCKET, Key="run/corpus/a.jsonl", ChecksumMode="ENABLED")
    assert head["ChecksumSHA256"]
    (corpus / "a.jsonl").write_text('{"text": "x"}\n')
    s3.heal()
    again = meks("data", "push", corpus, f"s3://{BUCKET}/run", "-o", "json")
    shown = schemas.read("data", again.stdout)
    assert (shown["sent"], shown["present"], shown["bytes_sent"]) == (1, 2, 14)
    assert len(s3.proxy.seen("PUT")) == 1


@pytest.fixture
def odd(corpus):
    """Put all into the folder that is no file of it; return what is to be said of each."""
    outside = corpus.parent / "outside.txt"
    outside.write_text("secret")
    (corpus / "out").symlink_to(outside)
    (corpus / "up").symlink_to("../outside.txt")
    (corpus / "again").symlink_to("out")
    (corpus / "dangling").symlink_to("nothing")
    (corpus / "loop").symlink_to("loop")
    (corpus / "linked").symlink_to(corpus / "part")
    (corpus / "away").symlink_to("/")
    os.mkfifo(corpus / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(corpus / "socket"))
    said = dict.fromkeys(("out", "up", "again", "away"), "a link out of the folder")
    said |= dict.fromkeys(("dangling", "loop"), "a link that leads nowhere")
    said |= dict.fromkeys(("fifo", "socket"), "no regular file")
    return {**said, "linked": "a link to a folder"}


def test_what_is_no_file_of_the_folder_is_named(meks, s3, corpus, odd):
    """All else is sent, a link to a file of the folder too; the exit code is 4."""
    (corpus / "part" / "same").symlink_to("../a.jsonl")
    done = meks("data", "push", corpus, f"s3://{BUCKET}/run", "-o", "json")
    assert done.returncode == 4, done.stderr
    shown = schemas.read("data", done.stdout)
    left_out = {each["path"]: each["why"] for each in shown["left_out"]}
    assert left_out == {str(corpus / name): why for name, why in odd.items()}
    for name, why in odd.items():
        assert f"error {corpus / name}: left out: {why} - " in done.stderr
    sent = {"corpus/a.jsonl", "corpus/empty", "corpus/part/b ä.jsonl", "corpus/part/same"}
    assert set(s3.names()) == sent
    assert (shown["files"], shown["sent"]) == (4, 4)
    again = meks("data", "push", corpus, f"s3://{BUCKET}/run")
    assert again.returncode == 4
    assert "0 sent, 4 there already; 9 left out\n" in again.stdout


def test_a_link_that_is_named_itself_is_followed(meks, s3, corpus):
    """The user has named it, and not somebody who writes into the folder."""
    (corpus.parent / "link").symlink_to(corpus)
    (corpus.parent / "file").symlink_to(corpus / "a.jsonl")
    done = meks("data", "push", corpus.parent / "link", corpus.parent / "file", URI)
    assert done.returncode == 0, done.stderr
    assert {"corpus/file", "corpus/link/a.jsonl"} < set(s3.names())


def test_a_file_that_is_exchanged_for_a_link_is_not_sent(meks, s3, corpus):
    """Between the look at the folder and its turn."""
    outside = corpus.parent / "outside.txt"
    outside.write_text("secret")

    def exchange():
        (corpus / "empty").unlink()
        (corpus / "empty").symlink_to(outside)

    s3.before("PUT .*a.jsonl", exchange)
    done = meks("data", "push", corpus, f"s3://{BUCKET}/run")
    assert done.returncode == 4
    assert "another file has taken its place" in done.stderr
    assert s3.names() == ["corpus/a.jsonl"]


def test_names_do_not_act_on_a_terminal(meks, s3, corpus):
    """A line for each; in S3 they are as they were."""
    (corpus / "part").rename(corpus / HOSTILE[:60])
    for start in range(60, len(HOSTILE), 60):
        (corpus / HOSTILE[start : start + 60]).touch()
    (corpus / f"z\n{HOSTILE[:60]}").symlink_to("nothing")
    done = meks("data", "push", corpus, f"s3://{BUCKET}/run")
    assert done.returncode == 4
    assert (hostile.acting(done.stdout), hostile.acting(done.stderr)) == ([], [])
    assert rf"error {corpus}/z\n<\x1b" in done.stderr
    files = [path for path in corpus.rglob("*") if path.is_file()]
    assert set(s3.names()) == {path.relative_to(corpus.parent).as_posix() for path in files}


def test_a_large_file_goes_in_parts_and_is_recognised(meks, s3, tmp_path):
    """The checksum of its parts' checksums is compared."""
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(range(256)) * (65 * MIB // 256))
    assert meks("data", "push", large, URI).returncode == 0
    assert len(s3.proxy.seen("PUT .*large.bin.*partNumber=")) == 2
    s3.heal()
    assert "0 sent, 1 there already" in meks("data", "push", large, URI).stdout


def test_without_a_place_it_goes_to_the_clusters_bucket(meks, project, corpus, s3):
    """As outputs.json names it; and it says how pods get it."""
    missing = meks("data", "push", corpus)
    assert missing.returncode == 3
    assert "MEKS-0885 no BucketName in outputs.json - meks outputs" in missing.stderr
    outputs = {"techpulse-Storage": {"BucketName": BUCKET}}
    (project.parent / "outputs.json").write_text(json.dumps(outputs))
    done = meks("data", "push", corpus / "a.jsonl")
    assert done.returncode == 0, done.stderr
    assert f"for pods: meks data fetch s3://{BUCKET}/data/a.jsonl /shared/data/a\n" in done.stderr
    s3.client.delete_object(Bucket=BUCKET, Key="data/a.jsonl")


def test_parts_that_fail_are_sent_again_and_then_given_up(meks, s3, corpus):
    """503 for a while is no failure, for ever it is 5; the next run sends the rest alone."""
    s3.fail("PUT .*a.jsonl", "503", times=2)
    assert meks("data", "push", corpus, URI).returncode == 0
    (corpus / "more").write_text("more")
    s3.fail("PUT .*more", "503")
    assert meks("data", "push", corpus, URI).returncode == 5
    s3.heal()
    done = meks("data", "push", corpus, URI)
    assert "1 sent, 3 there already" in done.stdout


def test_damaged_bytes_never_arrive(meks, s3, corpus):
    """S3 refuses them, and the command ends with 4."""
    s3.fail("PUT .*a.jsonl", "damage request")
    done = meks("data", "push", corpus / "a.jsonl", URI)
    assert done.returncode == 4
    assert "the bytes change on the way" in done.stderr
    assert s3.names() == []


def test_a_file_that_changes_meanwhile_is_named(meks, s3, corpus):
    """What S3 holds then is neither the old nor the new one for sure."""
    s3.before("PUT .*a.jsonl", lambda: (corpus / "a.jsonl").write_text("other"))
    done = meks("data", "push", corpus / "a.jsonl", URI)
    assert done.returncode == 4
    assert "it changed while it was sent" in done.stderr
    assert meks("data", "push", corpus / "a.jsonl", URI).returncode == 0


def test_ctrl_c_leaves_what_was_sent(interrupted, meks, corpus):
    """And the same command goes on."""
    code, err = interrupted("PUT .*empty", "data", "push", corpus, URI)
    assert code == 130, err
    assert "interrupted: what was done stays done; to go on: meks data push" in err
    assert meks("data", "push", corpus, URI).returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("push", "nothing-here"), 3, "MEKS-0886 no such file or folder: nothing-here"),
        (("push", "s3://a/b"), 2, "MEKS-0886 files of this machine come first"),
        (("push", "/dev/null", "s3://no-such-bucket/x"), 3, "/dev/null"),
        (("fetch", "s3://a/b/", "/elsewhere"), 2, "MEKS-0886 /elsewhere is not below /shared"),
        (("fetch", "s3://a/b/", "/shared/../etc"), 2, "MEKS-0886 /shared/../etc is not below"),
        (("verify", "./nothing"), 4, "nothing"),
    ],
)
def test_what_cannot_be_done_is_said(meks, words, code, said):
    """With the exit code of its sort."""
    done = meks("data", *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_a_data_set_of_this_machine_is_verified(meks, data_set):
    """Its numbers, and exit code 4 once a byte is missing."""
    done = meks("data", "verify", data_set)
    assert done.returncode == 0, done.stderr
    assert ["documents", "2"] in [line.split() for line in done.stdout.splitlines()]
    data_set.with_suffix(".bin").write_bytes(b"12345678")
    bad = meks("data", "verify", data_set, "-o", "json")
    shown = schemas.read("data", bad.stdout)
    assert (bad.returncode, shown["passed"]) == (4, False)
    assert "its index describes" in shown["findings"][0] or shown["findings"]


def test_without_numpy_it_says_what_to_install(monkeypatch, tmp_path):
    """Neither here nor in the programs' environment."""
    monkeypatch.setattr(programs, "find_spec", lambda _: None)
    monkeypatch.setattr(programs, "ROOT", tmp_path)
    with pytest.raises(Failure, match=r"MEKS-0882 prepare_data needs numpy.* - make programs"):
        programs.Here({}).run("prepare_data", ["--verify", "x"], None)
