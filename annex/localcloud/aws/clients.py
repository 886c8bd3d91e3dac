"""boto3 clients whose requests reach the local services without a socket."""

import io
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from werkzeug.test import EnvironBuilder, run_wsgi_app

from megatron_eks.localcloud.aws.values import Value

Application = Callable[..., Iterable[bytes]]
"""A WSGI application."""


Clients = Callable[[str], Value]
"""Gives the client of a service, by boto3's name of it."""


class _Body(io.BytesIO):
    """A body as urllib3 would hand it to botocore."""

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


def clients(application: Application, region: str) -> Clients:
    """Return clients of one region; each is made once."""
    session = boto3.session.Session(
        # boto3 sends nothing without some; who asks from inside is not checked.
        aws_access_key_id="inside",
        aws_secret_access_key="inside",  # noqa: S106 -- no secret: moto checks none
        region_name=region,
    )

    def send(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        body = request.body or b""
        builder = EnvironBuilder(
            path=request.url.split("//", 1)[1].split("/", 1)[1].join(("/", "")),
            method=request.method,
            headers={key: _text(value) for key, value in request.headers.items()},
            data=body if isinstance(body, bytes) else body.encode(),
        )
        chunks, status, headers = run_wsgi_app(application, builder.get_environ(), buffered=True)
        return AWSResponse(
            request.url, int(status.split()[0]), dict(headers), _Body(b"".join(chunks))
        )

    @cache
    def client(service: str) -> Value:
        # One attempt: nothing here is busy or away, so an error is an answer.
        config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
        made = session.client(service, config=config)
        made.meta.events.register_first("before-send.*.*", send)
        return made

    return client


def _text(value: "str | bytes") -> str:
    return value.decode() if isinstance(value, bytes) else value
