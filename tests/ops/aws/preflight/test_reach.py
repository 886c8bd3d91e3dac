"""Why an API server does not answer from here, over real sockets."""

import base64
import socket
import ssl
import subprocess
import threading

import pytest

from megatron_eks.localcloud.kubernetes.processes import free_port
from megatron_eks.ops.cluster.account import read


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Return a certificate for this machine with its key."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(  # noqa: S603 -- a certificate of one day, for this test
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(folder / "key"), "-out", str(folder / "certificate")),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return folder


@pytest.fixture
def server(certificates):
    """Serve TLS on loopback, and return its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "certificate", certificates / "key")
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(10)

    def serve():
        try:
            plain, _ = listening.accept()
            with plain, context.wrap_socket(plain, server_side=True) as tls:
                tls.recv(1)
        except OSError:
            pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"https://localhost:{listening.getsockname()[1]}"
    listening.close()
    thread.join(timeout=10)


def encoded(certificates):
    """Return the authority as EKS tells it."""
    return base64.b64encode((certificates / "certificate").read_bytes()).decode()


def test_a_server_with_its_own_certificate_is_reached(server, certificates):
    """The authority is the cluster's, and no public one."""
    assert read.why_not(server, encoded(certificates)) is None


def test_somebody_else_in_its_place_is_told(server, certificates, tmp_path):
    """A proxy that opens TLS has another authority."""
    del certificates
    subprocess.run(  # noqa: S603 -- as above
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=other"),
            *("-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate")),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    why = read.why_not(server, encoded(tmp_path))
    assert why is not None
    assert why.startswith("somebody else answers, perhaps a proxy: ")


def test_a_closed_port_and_an_unknown_name_are_told():
    """In the system's own words."""
    assert read.why_not(f"https://127.0.0.1:{free_port()}", "") == "Connection refused"
    assert (
        read.why_not("https://nowhere.invalid", "") == "the name nowhere.invalid is not known here"
    )


def test_silence_ends(monkeypatch):
    """A security group that drops packets answers nothing."""
    monkeypatch.setattr(read, "_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert read.why_not(f"https://127.0.0.1:{port}", "") == "no answer within 0.2 s"
