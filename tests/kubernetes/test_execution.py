"""Exec against servers that fail as real ones do when nobody can arrange it."""

import contextlib
import json
import ssl
import threading

import pytest

from megatron_eks.kubernetes import execution, websocket
from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.kubernetes.connection import Connection, Credentials, UnreachableError
from megatron_eks.kubernetes.execution import Channel
from tests.kubernetes.answers import say, silence


class Renewable(Credentials):
    """A token that can be renewed once."""

    def renew(self):
        """Take another."""
        before, self._token = self._token, "2"
        return before != self._token


@pytest.fixture
def run(api):
    """Return a function that runs a command at the server of the test."""
    tls = ssl.create_default_context(cafile=str(api.authority))
    client = Client(Connection(api.url, tls, Renewable("1"), timeout=5))

    def call(**options):
        return execution.run(client, "ns", "pod-0", "pytorch", ["echo", "a b"], **options)

    yield call
    client.close()


def speaks(*messages, close=True):
    """Answer as a kubelet that sends these messages."""

    def answer(request):
        request.close_connection = True
        socket = accepted(request)
        for each in messages:
            socket.send(each)
        if close:
            socket.close()
        else:
            request.connection.close()

    return answer


def accepted(request):
    """Return the other end of a WebSocket."""
    socket = websocket.server(request.connection, request.headers.items(), execution.PROTOCOL)
    assert socket is not None
    return socket


def ended(status):
    """Return the last message of a command."""
    return bytes([Channel.STATUS]) + json.dumps(status).encode()


DONE = ended({"status": "Success"})


def test_an_expired_token_is_renewed(api, run):
    """As in every other request."""
    api.answers = [say(401), speaks(b"\x01", b"\x01hello", b"\x02oh", DONE)]
    assert run() == execution.Result(0, b"hello", b"oh")
    assert [token for _, token in api.asked] == ["Bearer 1", "Bearer 2"]
    path, _, query = api.asked[0][0].partition("?")
    assert path == "/api/v1/namespaces/ns/pods/pod-0/exec"
    assert query == (
        "command=echo&command=a+b&container=pytorch&stdin=false&stdout=true&stderr=true&tty=false"
    )


def test_a_token_that_nobody_takes(api, run):
    """It is not renewed for ever."""
    api.answers = [say(401, {"reason": "Unauthorized", "message": "Unauthorized"})]
    with pytest.raises(ApiError) as raised:
        run()
    assert (raised.value.status, raised.value.reason) == (401, "Unauthorized")
    assert len(api.asked) == 2


def test_a_command_that_could_not_start(api, run):
    """The runtime's words are the error."""
    told = {"status": "Failure", "reason": "InternalError", "message": "no such file", "code": 500}
    api.answers = [speaks(ended(told))]
    with pytest.raises(ApiError, match="no such file"):
        run()


def test_a_connection_that_is_lost(api, run):
    """Nobody knows what became of the command, and the message says so."""
    api.answers = [speaks(b"\x01half", close=False)]
    with pytest.raises(UnreachableError, match="lost before the command ended, which may go on"):
        run()


def test_a_server_that_does_not_answer_the_request(api, run, monkeypatch):
    """It is given up after a while."""
    monkeypatch.setattr(execution, "_OPEN_SECONDS", 0.3)
    api.answers = [silence(2)]
    with pytest.raises(UnreachableError):
        run()


def test_an_answer_that_is_no_websocket(api, run):
    """A proxy on the way may say 200 to everything."""
    api.answers = [say(200, {"hello": "there"})]
    with pytest.raises(ApiError) as raised:
        run()
    assert raised.value.status == 200


def test_a_slow_reader_and_a_fast_writer(api, run):
    """Both ends write at once, more than any buffer between them holds."""
    data = bytes(range(256)) * 4096 * 8

    def answer(request):
        request.close_connection = True
        socket = accepted(request)
        taken = []

        def take():
            with contextlib.suppress(ConnectionError):
                while True:
                    taken.append(socket.receive(None))

        reader = threading.Thread(target=take, daemon=True)
        reader.start()
        for start in range(0, len(data), 32768):
            socket.send(b"\x01" + data[start : start + 32768])
        while not taken or taken[-1] != b"\x000\n":
            pass
        socket.send(DONE)
        reader.join(10)

    api.answers = [answer]
    assert run(stdin=data).stdout == data
