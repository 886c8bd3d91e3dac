"""A server whose answers a test gives."""

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tests.kubernetes.conftest import Api, serving


class Routed(Api):
    """Answers by path, in any number of threads."""

    answer: Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def routed(tmp_path) -> Iterator[Routed]:
    """Run a server whose answers a test gives."""
    server = Routed(tmp_path)
    # Looked up with each request: a test may change it.
    server.answers = [lambda request: server.answer(request)]  # noqa: PLW0108
    with serving(server):
        yield server
