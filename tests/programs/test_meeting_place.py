"""How a rank waits for the host where ranks meet, which may be lost and come back elsewhere."""

import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from megatron_eks.programs import record


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Return a server that answers nobody: others fill what may wait to be accepted."""
    before = signal.getsignal(signal.SIGTERM)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        others = [socket.socket() for _ in range(3)]
        for each in others:
            each.settimeout(0)
            each.connect_ex(server.getsockname())
        yield server
        for each in others:
            each.close()
    signal.signal(signal.SIGTERM, before)


def test_a_silent_host_is_waited_for(silent, capfd):
    """Until it answers, or its name leads to another one."""
    place = silent.getsockname()
    threading.Timer(0.5, lambda: [silent.accept()[0].close() for _ in range(2)]).start()
    record.wait_for_host(place, 0.2)
    assert capfd.readouterr().err.startswith("127.0.0.1: no answer yet\n")


def test_a_host_that_answers_is_not(silent, capfd):
    """It may not listen yet: torch tries that again by itself."""
    address = silent.getsockname()
    silent.close()
    record.wait_for_host(address)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "variables", "found"),
    [
        (["--master-addr=a.b", "--master-port=23456", "--rdzv=x"], {}, ("a.b", 23456)),
        ([], {"PET_MASTER_ADDR": "m", "PET_MASTER_PORT": "1"}, ("m", 1)),
        (["python3"], {"PET_RDZV_ENDPOINT": "m:1"}, None),
    ],
)
def test_where_ranks_meet(words, variables, found):
    """By options, by the operator's variables, or where nobody knows beforehand."""
    assert record.meeting_place(words, variables) == found
