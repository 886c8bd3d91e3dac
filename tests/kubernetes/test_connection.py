"""Tokens that expire, and servers that are busy, slow, gone, or another's."""

import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from unittest.mock import Mock

import pytest

from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.kubernetes.connection import Connection, Credentials, UnreachableError
from tests.kubernetes.answers import interrupted, say, silence, stream
from tests.kubernetes.certificates import certificate


class Renewable(Credentials):
    """Tokens 1, 2, 3, as a plugin would give them."""

    def __init__(self) -> None:
        super().__init__("1")

    def renew(self) -> bool:
        """Take the next."""
        self._token = str(int(self._token) + 1)
        return True


@pytest.fixture
def client_of() -> Iterator[Callable[..., Client]]:
    """Return a function that returns a client of a server."""
    made: list[Client] = []

    def connect(server, authority, credentials=None, timeout=5.0) -> Client:
        tls = ssl.create_default_context(cafile=str(authority))
        connection = Connection(server, tls, credentials or Credentials("1"), timeout=timeout)
        made.append(Client(connection))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def test_an_expired_token_is_renewed_once(api, client_of):
    """The request that met it is sent again, and the caller learns nothing of it."""
    api.answers = [say(401), say(200, {"major": "1"})]
    assert client_of(api.url, api.authority, Renewable()).request("GET", "/version") == {
        "major": "1"
    }
    assert [token for _, token in api.asked] == ["Bearer 1", "Bearer 2"]


def test_a_token_that_nobody_takes_is_an_error(api, client_of):
    """It is not renewed for ever."""
    api.answers = [say(401)]
    with pytest.raises(ApiError) as raised:
        client_of(api.url, api.authority, Renewable()).request("GET", "/version")
    assert raised.value.status == 401
    assert len(api.asked) == 2


def test_a_stream_renews_its_token_too(api, client_of):
    """A log is asked for minutes after the last request."""
    api.answers = [say(401), stream(b"line\n")]
    assert list(client_of(api.url, api.authority, Renewable()).stream("/log", {}, 5)) == [b"line\n"]


def test_a_busy_server_is_asked_again_when_it_says(api, client_of):
    """With a Retry-After it means to answer later."""
    api.answers = [say(429, Retry_After="0"), say(503, Retry_After="0"), say(200, {"a": 1})]
    assert client_of(api.url, api.authority).request("GET", "/version") == {"a": 1}
    assert len(api.asked) == 3


def test_a_busy_server_is_not_asked_for_ever(api, client_of):
    """After some tries its refusal is the answer."""
    api.answers = [say(429, Retry_After="0")]
    with pytest.raises(ApiError):
        client_of(api.url, api.authority).request("GET", "/version")
    assert len(api.asked) == 5


def test_a_slow_server_is_not_reachable(api, client_of):
    """The message says how long nobody answered."""
    api.answers = [silence(2)]
    with pytest.raises(UnreachableError, match=r"https://127\.0\.0\.1:\d+: no answer within 0.2 s"):
        client_of(api.url, api.authority, timeout=0.2).request("GET", "/version")


def test_what_follows_an_interrupted_request_is_asked_once(api, client_of):
    """Ctrl-C while an answer comes: the rest of that answer is nobody's."""

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGUSR1, interrupt)
    api.answers = [say(200, {"a": 1}), interrupted(signal.SIGUSR1), say(200, {"a": 3})]
    client = client_of(api.url, api.authority)
    try:
        assert client.request("GET", "/version") == {"a": 1}
        with pytest.raises(KeyboardInterrupt):
            client.request("GET", "/version")
        assert client.request("GET", "/version") == {"a": 3}
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(api.asked) == 3


def test_what_follows_a_request_that_was_not_sent_is_whole(api, client_of, monkeypatch):
    """Ctrl-C while a request is written down: its first lines are not those of the next one."""
    api.answers = [say(200, {"a": 1}), say(200, {"a": 2})]
    client = client_of(api.url, api.authority)
    assert client.request("GET", "/version") == {"a": 1}
    with monkeypatch.context() as patched:
        patched.setattr(HTTPConnection, "endheaders", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            client.request("GET", "/other")
    assert client.request("GET", "/version") == {"a": 2}
    assert "/other" not in str(api.asked)


def test_a_server_that_is_gone_is_not_reachable(api, client_of):
    """The message has the reason of the system."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(UnreachableError, match="Connection refused"):
        client_of(url, api.authority).request("GET", "/version")


def test_another_servers_certificate_is_not_taken(api, client_of, tmp_path):
    """Who listens there may be anybody."""
    (tmp_path / "other").mkdir()
    other, _ = certificate(tmp_path / "other", "127.0.0.1")
    api.answers = [say(200)]
    with pytest.raises(UnreachableError, match="its certificate is not the one of the kubeconfig"):
        client_of(api.url, other).request("GET", "/version")
    assert api.asked == []


def test_a_line_without_end_comes_in_pieces(api, client_of):
    """A progress bar of 100 MB must not fill the memory."""
    api.answers = [stream(b"x" * 2500 + b"\n")]
    lines = list(client_of(api.url, api.authority).stream("/log", {}, 5, 1000))
    assert [len(line) for line in lines] == [1000, 1000, 501]


def test_a_stream_that_is_cut_ends_or_is_an_error_of_its_own(api, client_of):
    """Never one that no caller expects; what came before it counts."""
    api.answers = [stream(b"line\n", cut=True)]
    found = []
    with contextlib.suppress(UnreachableError):
        found += client_of(api.url, api.authority).stream("/log", {}, 5)
    api.answers = [silence(1)]
    with pytest.raises(UnreachableError):
        list(client_of(api.url, api.authority).stream("/log", {}, 0.2))
