"""What the machine itself refuses: pipes, disks, folders and clocks."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore import exceptions
from botocore.stub import Stubber

from megatron_eks.kubernetes.client import connect
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.aws.session import explained
from megatron_eks.ops.kube import access
from megatron_eks.project import ROOT
from tests.kubernetes.answers import say

NOBODY = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
_MEKS = [sys.executable, "-m", "megatron_eks"]


@pytest.mark.parametrize(
    "command", [["plan"], ["plan", "-o", "json"], ["explain", "0312"], ["validate", "cluster.yaml"]]
)
def test_a_reader_that_goes_away_ends_a_command_in_silence(command):
    """As with `| head -1`: nobody is left to tell."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(  # noqa: S603 -- our own command
        [*_MEKS, *command], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    # What has nothing to write does not notice.
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr


_WRITE = """\
from pathlib import Path
from megatron_eks.ops.output import replace_file
from megatron_eks.ops.failure import Failure
try:
    replace_file(Path("place/outputs.json"), "x" * 200_000, "then run: meks outputs")
except Failure as failure:
    print(failure.code, failure)
"""


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        (
            "mount -t tmpfs -o size=64k none place && cp outputs.json place",
            "No space left on device",
        ),
        (
            "cp outputs.json place && mount --bind place place && mount -o remount,ro,bind place",
            "Read-only file system",
        ),
    ],
    ids=["full", "read-only"],
)
def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, mount, why):
    """On a disk that is full, and in a folder that is read-only; nothing half written is left."""
    (tmp_path / "place").mkdir()
    (tmp_path / "outputs.json").write_text('{"old": 1}\n')
    (tmp_path / "write.py").write_text(_WRITE)
    script = f"{mount} && {sys.executable} write.py; ls -A place; cat place/outputs.json"
    done = subprocess.run(  # noqa: S603 -- our own script
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],  # noqa: S607
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    assert lines[0].startswith(f"1 MEKS-0794 place/outputs.json cannot be written: {why} - ")
    assert lines[0].endswith("then run: meks outputs")
    assert lines[1:] == ["outputs.json", '{"old": 1}']


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RequestTimeTooSkewed", "The difference between the request time and ..."),
        ("InvalidSignatureException", "Signature expired: 20261122T100000Z is now earlier than"),
        ("SignatureDoesNotMatch", "Signature not yet current: 20261122T100000Z is still later"),
    ],
)
def test_a_clock_that_differs_from_aws_is_named(code, message):
    """It looks like wrong credentials, and these are right."""
    sts = boto3.client("sts", region_name="us-east-2", **NOBODY)
    with Stubber(sts) as stub:
        stub.add_client_error("get_caller_identity", code, message)
        with pytest.raises(exceptions.ClientError) as raised:
            sts.get_caller_identity()
    failure = explained(raised.value)
    assert failure.code == 1
    assert "MEKS-0740 this machine's clock differs from AWS's" in str(failure)


@pytest.mark.parametrize(("start", "end"), [(-3, -2), (1, 2)], ids=["expired", "not yet"])
def test_a_certificate_out_of_its_time_points_at_the_clock(monkeypatch, start, end, request):
    """A machine that woke up in the past sees every certificate as one of the future."""
    now = datetime.now(tz=UTC)
    bounds = iter([now + timedelta(days=start), now + timedelta(days=end)])
    # The certificate is made with these bounds instead of a day before and a day after.
    from cryptography import x509  # noqa: PLC0415 -- to change it

    kind = x509.CertificateBuilder
    for name in ("not_valid_before", "not_valid_after"):
        real = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda self, _, real=real: real(self, next(bounds)))
    server = request.getfixturevalue("routed")
    server.answer = say(200, {"major": "1"})
    client = connect(server.url, server.authority, "1")
    with pytest.raises(UnreachableError) as raised:
        client.request("GET", "/version")
    client.close()
    failure = access.explained(raised.value)
    assert failure.code == 5
    assert "see to this machine's clock first" in str(failure)
