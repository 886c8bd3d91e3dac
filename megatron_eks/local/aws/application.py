"""The local AWS as one WSGI application."""

import json
import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from megatron_eks.local.aws.values import ACCOUNT, Object

if TYPE_CHECKING:
    from megatron_eks.local.aws.clients import Application

_LOG = logging.getLogger(__name__)

FAILURES_PATH = "/local-aws/failures"
_HEALTH_PATH = "/local-aws/health"
_BAD = "400 Bad Request"


def application() -> "Application":
    """Set up the services and return what answers requests; once in a process."""
    # Before moto is imported, which reads it once.
    os.environ["MOTO_ACCOUNT_ID"] = ACCOUNT
    from moto.moto_server.werkzeug_app import (  # noqa: PLC0415 -- see above
        DomainDispatcherApplication,
        create_backend_app,
    )

    from megatron_eks.local.aws.clients import clients  # noqa: PLC0415 -- see above
    from megatron_eks.local.aws.cloudformation.regions import Regions  # noqa: PLC0415 -- see above
    from megatron_eks.local.aws.services.install import install  # noqa: PLC0415 -- see above

    services = DomainDispatcherApplication(create_backend_app)
    regions = Regions(lambda region: clients(services, region))
    install(regions)

    def answer(environ: Object, start_response: Callable[..., object]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == _HEALTH_PATH:
            return _say(start_response, "200 OK", {"status": "running"})
        if path == FAILURES_PATH:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            try:
                regions.failures.add(json.loads(body))
            except (KeyError, TypeError, ValueError) as error:
                return _say(start_response, _BAD, {"message": repr(error)})
            return _say(start_response, "200 OK", {})
        try:
            found: Iterable[bytes] = services(environ, start_response)
        except Exception as error:  # noqa: BLE001 -- moto raises whatever it meets
            # An answer that no client tries again, in place of a page in HTML.
            _LOG.exception("a request failed")
            return _refuse(start_response, environ, error)
        return found

    return answer


def _refuse(
    start_response: Callable[..., object], environ: Object, error: Exception
) -> list[bytes]:
    missing = isinstance(error, NotImplementedError)
    code = "InvalidAction" if missing else "ValidationError"
    message = f"local AWS cannot do this: {error}" if missing else f"local AWS failed: {error!r}"
    if "json" in environ.get("CONTENT_TYPE", "") or not environ.get("CONTENT_TYPE"):
        return _say(start_response, _BAD, {"__type": code, "message": message})
    start_response(_BAD, [("Content-Type", "text/xml")])
    inner = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    # EC2 reads the second form, everybody else the first.
    return [f"<ErrorResponse>{inner}<Errors>{inner}</Errors></ErrorResponse>".encode()]


def _say(start_response: Callable[..., object], status: str, body: Object) -> list[bytes]:
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]
