"""What another user of the same machine gets of a local cluster: nothing."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from megatron_eks.localcloud.kubernetes.state import State, read_state
from tests.annex.pids import descendants
from tests.annex.rehearsal import rehearsal_in

pytestmark = pytest.mark.control_plane

_NOBODY = 65534
_LISTENS = "0A"
_LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


@pytest.fixture(
    scope="module",
    params=[("--nodes", "1"), pytest.param(("--empty",), marks=pytest.mark.long)],
    ids=" ".join,
)
def place(request, programs, tmp_path_factory):
    """Run `meks local up` in a folder of which everybody may list the parents."""
    base = tmp_path_factory.mktemp("strangers")
    for each in (base, *base.parents[:3]):
        if each.owner() != "root" or each == Path("/tmp"):  # noqa: S108 -- everybody's
            continue
        each.chmod(0o755)
    cache, local = rehearsal_in(base, programs)
    done = local("up", *request.param, "-o", "json")
    try:
        assert done.returncode == 0, done.stderr
        yield cache / "local"
    finally:
        local("down", "--yes")


@pytest.fixture(scope="module")
def state(place) -> State:
    """Return what the cluster tells its owner."""
    return read_state(place)


def stranger(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the system as another user."""
    if os.geteuid():
        pytest.skip("only root can be somebody else")
    return subprocess.run(  # noqa: S603 -- the system's programs
        command,
        user=_NOBODY,
        group=_NOBODY,
        extra_groups=(),
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def get(url: str, *more: str) -> tuple[str, str]:
    """Ask as another user; return the status, 000 if there is no answer, and the content."""
    done = stranger("curl", "-sk", "-m", "10", "-w", "\n%{http_code}", *more, url)
    content, _, status = done.stdout.rpartition("\n")
    return status, content


def listeners(pids: list[int]) -> dict[str, str]:
    """Return the addresses on which processes listen, TCP and UDP, by inode of the socket."""
    inodes = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(str(file.readlink()).removeprefix("socket:[").rstrip("]"))
            except OSError:
                continue
    found = {}
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and (fields[3] == _LISTENS or table.startswith("udp")):
                found[fields[9]] = fields[1]
    return found


def test_everything_listens_on_loopback_alone(state):
    """API server, kubelets, webhook, health checks, AWS: nothing on an address of the network."""
    found = listeners([state.pid, *descendants(state.pid)])
    ports = {int(address.partition(":")[2], 16) for address in found.values()}
    assert ports >= set(state.ports.values())
    assert {address.partition(":")[0] for address in found.values()} <= _LOOPBACK


def test_nobody_is_let_in_without_credentials(state):
    """Whichever port is asked, in whichever protocol."""
    assert {"kube-apiserver", "aws", "training-operator-webhook"} <= set(state.ports)
    for name, port in state.ports.items():
        for scheme in ("http", "https"):
            for path in ("/", "/metrics", "/v3/kv/range", "/debug/pprof/cmdline", "/pods", "/logs"):
                status, content = get(f"{scheme}://127.0.0.1:{port}{path}")
                assert status in {"000", "400", "401", "403", "404"}, (name, path, content)


def test_the_api_server_knows_no_stranger(state):
    """Neither without a token, nor with one that he has made up."""
    server = f"https://127.0.0.1:{state.ports['kube-apiserver']}"
    for more in ((), ("-H", "Authorization: Bearer k8s-aws-v1.aHR0cDovLw"), ("-u", "admin:admin")):
        for path in ("/api/v1/secrets", "/api/v1/namespaces", "/apis/kubeflow.org/v1/pytorchjobs"):
            status, content = get(server + path, *more)
            assert status in {"401", "403"}, content


def test_a_kubelet_executes_nothing_for_a_stranger(state):
    """Its port leads into pods, which run as the owner."""
    kubelets = [port for name, port in state.ports.items() if name.startswith("kubelet")]
    for port in kubelets:
        for path in ("/exec/default/a/b?command=id&output=1", "/containerLogs/default/a/b"):
            assert get(f"https://127.0.0.1:{port}{path}")[0] == "000"


def test_the_local_aws_takes_no_credentials_of_before(state):
    """Those of older releases stand in their documents, and a stranger can sign with anything."""
    assert "aws-sigv4" in stranger("curl", "--help", "all").stdout, "curl 7.75 or newer is needed"
    url = f"{state.aws_endpoint_url}/?Action=GetCallerIdentity&Version=2011-06-15"
    for user in ("local-aws:not-a-secret", "AKIAAAAAAAAAAAAAAAAA:x"):
        signed = ("--aws-sigv4", "aws:amz:us-east-2:sts", "--user", user)
        assert get(url, *signed)[0] == "403"
    assert get(f"{state.aws_endpoint_url}/local-aws/tokens", "-d", "{}")[0] == "403"


def test_a_stranger_reads_no_file_and_reaches_no_socket(place, state):
    """Tokens, keys, data of jobs, and the store of the API server, whose sockets are files."""
    files = [each for each in place.rglob("*") if not each.is_dir()]
    assert {"aws-credentials", "state.json", "tokens.csv", "admin.kubeconfig"} <= {
        each.name for each in files
    }
    done = stranger("ls", "-A", str(place))
    assert (done.returncode, done.stdout) != (0, "")
    for each in files:
        assert stranger("test", "-r", str(each)).returncode == 1, each
    sockets = [each for each in files if each.is_socket()]
    assert len(sockets) == 2
    for each in sockets:
        assert get("http://etcd/version", "--unix-socket", str(each))[0] == "000"
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(str(each))
    for pid in (state.pid, *state.pids.values()):
        assert stranger("cat", f"/proc/{pid}/environ").returncode == 1


def test_nothing_secret_stands_in_arguments_that_everybody_reads(place, state):
    """`ps` shows them."""
    secrets = [json.loads((place / "state.json").read_text())["environment"]]
    words = [line.partition(",")[0] for line in (place / "cluster/tokens.csv").read_text().split()]
    words += [
        line.partition(" = ")[2] for line in (place / "aws-credentials").read_text().split("\n")
    ]
    words += [value for name, value in secrets[0].items() if "SECRET" in name]
    pids = [state.pid, *descendants(state.pid)]
    shown = "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in pids)
    assert len([word for word in words if word]) >= 6
    assert not [word for word in words if word and word in shown]
