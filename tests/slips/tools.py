"""What the public tools say of templates and manifests, each started once."""

import json
import os
import ssl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote, urlencode, urlsplit

import kubernetes_validate
from cfnlint import ManualArgs
from cfnlint.config import ConfigMixIn
from cfnlint.runner import Runner

from megatron_eks.kubernetes.client import ApiError
from megatron_eks.localcloud.kubernetes import build
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.operator import Operator
from tests import emitted
from tests.charts.validation import assert_valid
from tests.slips import population
from tests.slips.operators import Json
from tests.slips.scenes import Manifests, Scene, Templates

Says = Callable[[Scene], frozenset[str]]
"""What a tool says of something; it notices a slip if it says more than without it."""

_ACCOUNT = "111122223333"
# The zone is chosen because the capacity is there, and the newest types are not in its lists.
_ACCEPTED = ["W3010", "E3628"]
# The operator's objects are there: `Operator.install` has applied them under this name.
_MANAGER = "meks-local"
_QUERY = urlencode(
    {"fieldManager": _MANAGER, "fieldValidation": "Strict", "force": "true", "dryRun": "All"}
)
_NOTHING: frozenset[str] = frozenset()


@contextmanager
def tools(scratch: Path) -> Iterator[Sequence[Says]]:
    """Lend every tool, the quick ones first."""
    with cdk_validator(scratch) as cdk, api_server(scratch) as server:
        yield (cdk, cfn_lint, server, kubernetes_validate_strictly)


@contextmanager
def cdk_validator(scratch: Path) -> Iterator[Says]:
    """Lend the CDK's validator."""
    program = Path(__file__).with_name("cdk_validator.js")
    command = [os.environ["JSII_NODE"], str(program), str(_cdk_folder())]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as node:  # noqa: S603 -- ours
        assert node.stdin is not None
        assert node.stdout is not None
        to_node, from_node = node.stdin, node.stdout
        file = scratch / "template.json"

        def says(scene: Scene) -> frozenset[str]:
            if isinstance(scene, Manifests):
                return _NOTHING
            file.write_text(json.dumps(scene.changed))
            question = {"file": str(file), "region": scene.region, "account": _ACCOUNT}
            to_node.write(json.dumps(question) + "\n")
            to_node.flush()
            return frozenset(json.loads(from_node.readline()))

        yield says


def _cdk_folder() -> Path:
    """Return where jsii has unpacked the CDK, which it does at the first synthesis."""
    default = Path.home() / ".cache" / "aws" / "jsii" / "package-cache"
    cache_folder = Path(os.environ.get("JSII_RUNTIME_PACKAGE_CACHE_ROOT", default))
    name = "aws-cdk-lib"
    return next((cache_folder / name / version(name)).glob("*/core")).parent


def cfn_lint(scene: Scene) -> frozenset[str]:
    """Return what cfn-lint says."""
    if isinstance(scene, Manifests):
        return _NOTHING
    found = _linter(scene.region).validate_template(scene.changed)
    return frozenset(f"{each.rule.id} {each.path} {each.message}" for each in found)


@cache
def _linter(region: str) -> Runner:
    return Runner(ConfigMixIn(**ManualArgs(ignore_checks=_ACCEPTED, regions=[region])))


def kubernetes_validate_strictly(scene: Scene) -> frozenset[str]:
    """Return what the public schemas of Kubernetes say, and the operator's."""
    if isinstance(scene, Templates):
        return _NOTHING
    with mock.patch("kubernetes_validate.utils.schema_contents", _schema):
        try:
            assert_valid(scene.changed)
        except (AssertionError, AttributeError, KeyError, TypeError) as error:
            # Without kind or name, or with a list in their place, it ends with the latter.
            return frozenset({repr(error)})
    return _NOTHING


@cache
def _schema(filename: str, desired_version: str) -> Any:
    return _read_schema(filename, desired_version)


_read_schema = kubernetes_validate.utils.schema_contents


@contextmanager
def api_server(scratch: Path) -> Iterator[Says]:
    """Lend the dry run of a local control plane that has the operator, our kinds and namespaces."""
    plane = ControlPlane(
        build.programs(os.environ, print, without=build.SELDOM),
        scratch / "control-plane",
        simulates_nodes=False,
    )
    plane.start()
    try:
        chart = population.objects(emitted.AFTER_DEPLOYMENT, "platform/40-training-operator")
        operator = Operator(plane, chart)
        operator.install()
        for each in _foundations():
            operator.client.apply(each, manager=_MANAGER)
        with closing(DryRun(plane)) as dry_run:
            yield dry_run.says
    finally:
        plane.stop()


def _foundations() -> list[Any]:
    """Return the kinds and namespaces of all clusters, without their controllers' webhooks."""
    found = {
        (each["kind"], each["metadata"]["name"]): each
        for cluster in emitted.CLUSTERS
        for file in emitted.emitted(cluster).manifests
        if file.startswith(("platform/00-namespaces", "platform/4"))
        for each in population.objects(cluster, file)
        if each["kind"] in {"Namespace", "CustomResourceDefinition"}
    }
    return [*found.values()]


class DryRun:
    """Applies objects on the server's side, with strict field validation, and keeps none.

    What is there already was applied by the same manager, so a field that went is really taken out.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._client = plane.client
        tls = ssl.create_default_context(cafile=str(plane.authority))
        self._http = HTTPSConnection(urlsplit(plane.server).netloc, context=tls)
        self._headers = {
            "Authorization": f"Bearer {plane.token}",
            "Content-Type": "application/apply-patch+yaml",
        }

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def says(self, scene: Scene) -> frozenset[str]:
        """Return the error, or the warnings that kubectl shows."""
        if isinstance(scene, Templates):
            return _NOTHING
        try:
            path = self._path(scene.changed)
        except (ApiError, KeyError, TypeError) as error:
            # No such kind, or none of what a path is made of: kubectl sends nothing.
            return frozenset({repr(error)})
        try:
            answer = self._sent(path, scene.changed)
        except (HTTPException, OSError):  # the server ends a connection that was idle
            self._http.close()
            answer = self._sent(path, scene.changed)
        body = answer.read()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            return frozenset({json.loads(body)["message"]})
        return frozenset(answer.headers.get_all("Warning", ()))

    def _sent(self, path: str, manifest: Json) -> HTTPResponse:
        self._http.request("PATCH", f"{path}?{_QUERY}", json.dumps(manifest), self._headers)
        return self._http.getresponse()

    def _path(self, manifest: Json) -> str:
        # What has no namespace gets kubectl's.
        metadata = {"namespace": "default", **manifest["metadata"]}
        return self._client._path_of(  # noqa: SLF001 -- a request whose headers are wanted too
            {**manifest, "metadata": metadata}, quote(metadata["name"])
        )
