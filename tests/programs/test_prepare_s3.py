"""Inputs in S3 are streamed, in ranges for shards, and read on where a stream was cut."""

import gzip
import json
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.programs.prepare_files import data, document, run, write_lines

pytestmark = pytest.mark.programs

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "eu-central-1",
}

# Ranges are small, and every second answer breaks off.
CUT = """
import sys
from botocore.response import StreamingBody
from megatron_eks.programs import prepare_data, program, s3_store
from megatron_eks.programs.prepare import inputs
inputs.RANGE_BYTES, s3_store._PAUSE_SECONDS = 1 << 20, 0
real, calls = StreamingBody.read, []
def cut(self, amt=None):
    calls.append(amt)
    if len(calls) % 2:
        raise ConnectionResetError
    return real(self, amt)
StreamingBody.read = cut
code = program.run("prepare_data", prepare_data.main, sys.argv[1:])
sys.exit(code or 9 * (len(calls) < 6))
"""


@pytest.fixture(scope="module")
def server():
    """Return the environment in which AWS is a server on this machine."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    server.stop()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, server: dict[str, str]) -> Path:
    """Return a folder of lines that are in the bucket as well, one file packed there."""
    folder = tmp_path_factory.mktemp("inputs")
    write_lines(folder / "a.jsonl", [f"text {n} " * (n % 70) for n in range(16000)])
    write_lines(folder / "b.jsonl", ["packed"] * 500)
    s3 = boto3.client(
        "s3",
        endpoint_url=server["AWS_ENDPOINT_URL"],
        region_name="eu-central-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 -- of a server in this process
    )
    place = {"LocationConstraint": "eu-central-1"}
    s3.create_bucket(Bucket="corpus", CreateBucketConfiguration=place)
    s3.put_object(Bucket="corpus", Key="raw/a.jsonl", Body=(folder / "a.jsonl").read_bytes())
    packed = gzip.compress((folder / "b.jsonl").read_bytes())
    s3.put_object(Bucket="corpus", Key="raw/b.jsonl.gz", Body=packed)
    s3.put_object(Bucket="corpus", Key="raw/notes.txt", Body=b"no lines")
    return folder


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, inputs: Path, tokenizer: Path) -> Path:
    """Return the prefix of what the files on disk give."""
    prefix = tmp_path_factory.mktemp("local") / "out"
    run("--input", inputs, "--output-prefix", prefix, "--tokenizer", tokenizer)
    return prefix


@pytest.mark.parametrize("name", ["s3://corpus/raw/", "s3://corpus/raw/*.jsonl*"])
def test_prefix_and_pattern(tmp_path, server, tokenizer, local, name):
    """A prefix and a pattern give their objects by name, packed or not."""
    prefix = tmp_path / "out"
    rest = ("--output-prefix", prefix, "--tokenizer", tokenizer)
    done = run("--input", name, *rest, environment=server)
    assert done.code == 0
    assert data(prefix) == data(local)
    files = json.loads(Path(f"{document(prefix)}.json").read_text())["inputs"]
    assert [entry["file"].rpartition("/")[2] for entry in files] == ["a.jsonl", "b.jsonl.gz"]


def test_shards_read_ranges(tmp_path, server, tokenizer, local):
    """Shards of one object read their ranges, and join to the same bytes."""
    prefix = tmp_path / "out"
    rest = ("--input", "s3://corpus/raw/a.jsonl", "s3://corpus/raw/b.jsonl.gz")
    for index in range(3):
        done = run(
            *rest,
            *("--output-prefix", prefix, "--tokenizer", tokenizer),
            *("--shards", 3, "--shard-index", index),
            environment=server,
        )
        assert done.code == 0
    assert data(prefix) == data(local)


def test_cut_stream_goes_on(tmp_path, server, tokenizer, local):
    """Answers that break off cost time and no byte."""
    prefix = tmp_path / "out"
    done = run(
        *("--input", "s3://corpus/raw/", "--output-prefix", prefix, "--tokenizer", tokenizer),
        environment=server,
        code=CUT,
    )
    assert done.code == 0, done.err
    assert data(prefix) == data(local)


@pytest.mark.parametrize(
    ("name", "found", "code"),
    [
        ("s3://corpus/raw/none.jsonl", "no object matches", 2),
        ("s3://nowhere/", "no such bucket", 3),
        ("s3://corpus/raw/../a.jsonl", "no S3 URI", 2),
    ],
)
def test_what_is_not_there(tmp_path, server, tokenizer, *, name, found, code):
    """A name without an object ends with what is wrong, before anything is written."""
    rest = ("--output-prefix", tmp_path / "out", "--tokenizer", tokenizer)
    done = run("--input", name, *rest, environment={**server, "AWS_MAX_ATTEMPTS": "1"})
    assert done.code == code
    assert found in done.findings[-1]
    assert list(tmp_path.iterdir()) == []
