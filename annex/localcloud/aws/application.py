"""The local AWS as one WSGI application."""

import json
import logging
import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from botocore.exceptions import ClientError
from botocore.loaders import JSONFileLoader

from megatron_eks.localcloud.aws.keys import Keys
from megatron_eks.localcloud.aws.server import FAILURES_PATH, NODES_PATH, TOKENS_PATH
from megatron_eks.localcloud.aws.signatures import RefusedError
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value

if TYPE_CHECKING:
    from megatron_eks.localcloud.aws.clients import Application

_LOG = logging.getLogger(__name__)

_BAD, _FORBIDDEN = "400 Bad Request", "403 Forbidden"


def application(keys: Keys, kubeconfig: Path | None = None) -> "Application":
    """Set up the services and return what answers requests; once in a process.

    Requests are taken from whoever has one of the keys, or one that was given out here since. With
    a kubeconfig, which is read when a cluster is made, its API server is behind EKS clusters.
    """
    # Before moto is imported, which reads them once. No page in a browser has business here.
    os.environ["MOTO_ACCOUNT_ID"] = ACCOUNT
    os.environ["MOTO_DISABLE_GLOBAL_CORS"] = "true"
    _read_models_once()
    from moto import backends  # noqa: PLC0415 -- see above
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415 -- see above

    from megatron_eks.localcloud.aws.clients import clients  # noqa: PLC0415 -- see above
    from megatron_eks.localcloud.aws.cloudformation.region import Regions  # noqa: PLC0415 -- see above
    from megatron_eks.localcloud.aws.gate import Gate  # noqa: PLC0415 -- see above
    from megatron_eks.localcloud.aws.services.api_server import ApiServer, instances, review  # noqa: PLC0415 -- see above
    from megatron_eks.localcloud.aws.services.install import install  # noqa: PLC0415 -- see above

    # moto looks through its folders at every request, a tenth of what a deployment takes here.
    folders = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: folders
    services = DomainDispatcherApplication(create_backend_app)
    regions = Regions(lambda region: clients(services, region))
    install(regions, ApiServer(kubeconfig) if kubeconfig else None)
    gate = Gate(keys)
    ours: dict[str, Callable[[Object], Value]] = {
        FAILURES_PATH: regions.failures.add,
        TOKENS_PATH: lambda request: review(request, gate),
        NODES_PATH: lambda _: instances(),
    }

    def answer(environ: Object, start_response: Callable[..., object]) -> Iterable[bytes]:
        try:
            environ = gate.admit(environ)
        except RefusedError as error:
            return _refuse(start_response, environ, error.code, str(error), _FORBIDDEN)
        if answer := ours.get(environ.get("PATH_INFO", "")):
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            try:
                told = answer(json.loads(body or b"{}"))
            except (KeyError, TypeError, ValueError) as error:
                return _say(start_response, _BAD, {"message": repr(error)})
            return _say(start_response, "200 OK", {} if told is None else told)
        return _ask(services, environ, start_response)

    return answer


def _read_models_once() -> None:
    """Let all sessions share what botocore's files say: moto makes dozens, and EC2's has 4 MB."""
    load = JSONFileLoader.load_file

    @cache
    def loaded(path: str) -> Value:
        return load(JSONFileLoader(), path)

    JSONFileLoader.load_file = lambda _, path: loaded(path)


def _ask(
    services: "Application", environ: Object, start_response: Callable[..., object]
) -> Iterable[bytes]:
    """Let a service answer; one that raises answers so that no client tries again."""
    try:
        return services(environ, start_response)
    except ClientError as error:
        # One service asked another one, which refused.
        told = error.response["Error"]
        return _refuse(start_response, environ, told["Code"], told["Message"])
    except NotImplementedError as error:
        message = f"local AWS cannot do this: {error}"
        return _refuse(start_response, environ, "InvalidAction", message)
    except Exception as error:  # noqa: BLE001 -- moto raises whatever it meets
        _LOG.exception("a request failed")
        message = f"local AWS failed: {error!r}"
        return _refuse(start_response, environ, "ValidationError", message)


def _refuse(
    start_response: Callable[..., object],
    environ: Object,
    code: str,
    message: str,
    status: str = _BAD,
) -> list[bytes]:
    kind, of_s3 = environ.get("CONTENT_TYPE", ""), "/s3/" in environ.get("HTTP_AUTHORIZATION", "")
    if "json" in kind or not (kind or of_s3):
        body = json.dumps({"__type": code, "message": message}).encode()
        headers = [("Content-Type", "application/json"), ("x-amzn-errortype", code)]
    else:
        inner = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        # EC2 reads the second form, everybody else the first.
        body = f"<ErrorResponse>{inner}<Errors>{inner}</Errors></ErrorResponse>".encode()
        headers = [("Content-Type", "text/xml")]
    start_response(status, headers)
    return [body]


def _say(start_response: Callable[..., object], status: str, body: Value) -> list[bytes]:
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]
