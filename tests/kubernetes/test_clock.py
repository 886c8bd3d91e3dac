"""`now` by a server whose clock differs, and the connections of a client that is closed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from megatron_eks.kubernetes.client import connect, wait_for
from tests.kubernetes.answers import say


@pytest.mark.parametrize("hours", [-26, 0, 3])
def test_ages_are_by_the_servers_clock(api, hours):
    """The times in objects are its own; this machine's clock has no say."""
    theirs = datetime.now(tz=UTC) + timedelta(hours=hours)

    def answer(request):
        request.date_time_string = lambda _=None: theirs.strftime("%a, %d %b %Y %H:%M:%S GMT")
        say(200, {})(request)

    api.answers = [answer]
    client = connect(api.url, api.authority, "token")
    client.request("GET", "/")
    assert abs(client.now() - theirs) < timedelta(seconds=30)
    client.close()


def test_a_server_without_a_clock(api):
    """Something in between may drop the header, or write nonsense."""
    client = connect(api.url, api.authority, "token")
    for text in ("", "yesterday", "Sun, 99 Nov 2026 13:00:00 GMT"):

        def answer(request, text=text):
            request.date_time_string = lambda _=None: text
            say(200, {})(request)

        api.answers = [answer]
        client.request("GET", "/")
        assert abs(client.now() - datetime.now(tz=UTC)) < timedelta(seconds=30)
    client.close()


def test_connections_do_not_pile_up(api):
    """Each look has threads of its own, and a wait of days has thousands of looks."""
    client = connect(api.url, api.authority, "token")
    api.answers = [say(200, {})]

    before = threading.active_count()
    for _ in range(10):
        with ThreadPoolExecutor(4) as workers:
            list(workers.map(lambda _: client.request("GET", "/"), range(8)))
        client.close()
    # The server has a thread for each connection, which ends a moment after it.
    wait_for("the threads", lambda: threading.active_count() <= before + 2, 10)
