"""An API server that is gone, slow, or another one."""

import time

import pytest

from megatron_eks.ops.kube import access as ways
from tests.annex.meks.faults.world import JOB
from tests.kubernetes.certificates import certificate

pytestmark = pytest.mark.control_plane

_COMMANDS = [
    ["status"],
    ["status", "a-job"],
    ["logs", "a-job"],
    ["logs", "a-job", "--explain"],
    ["apply", "MAPS", "--yes"],
    ["submit", JOB, "--preview"],
    ["cancel", "a-job", "--yes"],
    ["cost"],
    ["secret", "rm", "hugging-face", "--yes"],
    ["fix", "0842", "--yes"],
    ["verify", "--job", "a-job"],
    ["preflight", "cluster"],
]


@pytest.mark.parametrize("command", _COMMANDS, ids=" ".join)
def test_an_api_server_that_is_gone_is_one_line_and_exit_code_5(unreachable, capfd, command):
    """Whichever command meets it."""
    code = unreachable(command, server="https://127.0.0.1:9")
    out, err = capfd.readouterr()
    if command == ["preflight", "cluster"]:
        # What could not be looked up is said in each check.
        assert code in {4, 5}
    else:
        assert (code, out) == (5, ""), err
    assert "Traceback" not in err
    assert "MEKS-0720 https://127.0.0.1:9: Connection refused" in out + err


def test_another_servers_certificate_is_refused_by_name(unreachable, capfd, tmp_path):
    """A proxy in between, or another cluster at that address."""
    (tmp_path / "other").mkdir()
    other, _ = certificate(tmp_path / "other", "127.0.0.1")
    code = unreachable(["status"], **{"certificate-authority": str(other)})
    assert code == 5
    assert "its certificate is not the one of the kubeconfig" in capfd.readouterr().err


def test_an_api_server_that_does_not_answer_ends_the_command(
    unreachable, proxy, capfd, monkeypatch
):
    """After the time that one request may take, and not later."""
    monkeypatch.setattr(ways, "TIMEOUT_SECONDS", 0.3)
    with proxy.failing("GET", ".", lambda *_: time.sleep(2), 99):
        assert unreachable(["logs", "a-job"]) == 5
    assert "no answer within 0.3 s" in capfd.readouterr().err
