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
from werkzeug.wrappers import Response

from megatron_eks.localcloud.aws.keys import Keys
from megatron_eks.localcloud.aws.server import FAILURES_PATH, NODES_PATH, TOKENS_PATH
from megatron_eks.localcloud.aws.signatures import RefusedError
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value

if TYPE_CHECKING:
    from megatron_eks.localcloud.aws.clients import Application

_LOG = logging.getLogger(__name__)

_OK, _BAD, _FORBIDDEN = 200, 400, 403
_JSON = "application/json"


def application(keys: Keys, kubeconfig: Path | None = None) -> "Application":
    """Set up the services and return what answers requests; once in a process.

    Requests are taken from whoever has one of the keys, or one that was given out here since. With
    a kubeconfig, which is read when a cluster is made, its API server is behind EKS clusters.
    """
    # Before moto is imported, which reads them once. No page in a browser has business here.
    os.environ["MOTO_ACCOUNT_ID"] = ACCOUNT
    os.environ["MOTO_DISABLE_GLOBAL_CORS"] = "true"
    _read_models_once()
    from moto import backends  # noqa: PLC0415 -- after the environment is set
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415 -- after the environment is set

    from megatron_eks.localcloud.aws.clients import clients  # noqa: PLC0415 -- after the environment is set
    from megatron_eks.localcloud.aws.cloudformation.region import Regions  # noqa: PLC0415 -- after the environment is set
    from megatron_eks.localcloud.aws.gate import Gate  # noqa: PLC0415 -- after the environment is set
    from megatron_eks.localcloud.aws.services.api_server import ApiServer, instances, review  # noqa: PLC0415 -- after the environment is set
    from megatron_eks.localcloud.aws.services.install import install  # noqa: PLC0415 -- after the environment is set

    # moto looks through its folders at every request, a tenth of what a deployment takes here.
    folders = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: folders
    services: Application = DomainDispatcherApplication(create_backend_app)
    regions = Regions(lambda region: clients(services, region))
    install(regions, ApiServer(kubeconfig) if kubeconfig else None)
    gate = Gate(keys)
    ours: dict[str, Callable[[Object], Value]] = {
        FAILURES_PATH: regions.failures.add,
        TOKENS_PATH: lambda request: review(request, gate),
        NODES_PATH: lambda _: instances(),
    }

    def answer(environ: Object, start_response: Value) -> Iterable[bytes]:
        try:
            environ = gate.admit(environ)
            if own := ours.get(environ.get("PATH_INFO", "")):
                response = _own_answer(own, environ)
            else:
                return services(environ, start_response)
        except RefusedError as error:
            response = _refusal(environ, error.code, str(error), _FORBIDDEN)
        except ClientError as error:
            # One service asked another one, which refused.
            told = error.response["Error"]
            response = _refusal(environ, told["Code"], told["Message"])
        except NotImplementedError as error:
            response = _refusal(environ, "InvalidAction", f"local AWS cannot do this: {error}")
        except Exception as error:  # noqa: BLE001 -- moto raises whatever it meets
            _LOG.exception("a request failed")
            # So that no client tries again.
            response = _refusal(environ, "ValidationError", f"local AWS failed: {error!r}")
        return response(environ, start_response)

    return answer


def _read_models_once() -> None:
    """Let all sessions share what botocore's files say: moto makes dozens, and EC2's has 4 MB."""
    load = JSONFileLoader.load_file

    @cache
    def loaded(path: str) -> Value:
        return load(JSONFileLoader(), path)

    JSONFileLoader.load_file = lambda _, path: loaded(path)


def _own_answer(answer: Callable[[Object], Value], environ: Object) -> Response:
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    try:
        status, told = _OK, answer(json.loads(body or b"{}"))
    except (KeyError, TypeError, ValueError) as error:
        status, told = _BAD, {"message": repr(error)}
    return Response(json.dumps({} if told is None else told), status, mimetype=_JSON)


def _refusal(environ: Object, code: str, message: str, status: int = _BAD) -> Response:
    kind, of_s3 = environ.get("CONTENT_TYPE", ""), "/s3/" in environ.get("HTTP_AUTHORIZATION", "")
    if "json" in kind or not (kind or of_s3):
        body = json.dumps({"__type": code, "message": message})
        return Response(body, status, {"x-amzn-errortype": code}, mimetype=_JSON)
    inner = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    # EC2 reads the second form, everybody else the first.
    body = f"<ErrorResponse>{inner}<Errors>{inner}</Errors></ErrorResponse>"
    return Response(body, status, mimetype="text/xml")
