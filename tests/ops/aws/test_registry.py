"""Images that are known by tag get a digest from their registry once, or stay as they are."""

import json
import socket

import pytest

from megatron_eks.catalog import pins
from megatron_eks.ops.aws import registry
from megatron_eks.ops.cluster import outputs
from megatron_eks.project import load_project
from tests.ops.aws import registry_server
from tests.ops.aws.building import Aws
from tests.ops.aws.fakes import CLUSTER, TODAY, Clients, console, project_in, said, tools
from tests.ops.aws.registry_server import DIGEST

PATH = "kubeflow/training-v1/training-operator:v1-93c5489"
OPERATOR = {"TrainingOperator", "Cuda", "AwsEfaK8sDevicePlugin"}


@pytest.fixture
def server():
    """Return a registry on this machine."""
    with registry_server.serve() as served:
        yield served


def pinned(server, basic=None):
    """Resolve an image."""
    return registry.pinned(f"{server.host}/{PATH}", lambda _: basic)


def refusal(server):
    """Return why an image was not resolved."""
    with pytest.raises(registry.RegistryError) as raised:
        pinned(server)
    return str(raised.value)


def test_the_digest_is_the_content_s(server):
    """Of the index of all architectures, which is asked for before a single one's."""
    assert pinned(server) == f"{server.host}/{PATH}@{DIGEST}"
    assert server.requests == [f"/v2/{PATH.replace(':', '/manifests/')}"]
    assert server.accepted.startswith(registry_server.INDEX)
    server.stated = None
    assert pinned(server) == f"{server.host}/{PATH}@{DIGEST}"


def test_a_registry_that_wants_a_token_gets_the_one_for_anybody(server):
    """GitHub's and NVIDIA's do."""
    server.realm = f"http://{server.host}/token"
    assert pinned(server) == f"{server.host}/{PATH}@{DIGEST}"
    assert server.requests[1].startswith("/token?service=here&scope=repository%3Akubeflow")
    assert server.authorizations == [None, None, "Bearer of-anybody"]


def test_credentials_are_for_a_registry_that_has_them(server):
    """Amazon's takes them at once."""
    server.basic = "dXNlcjpwYXNz"
    assert pinned(server, server.basic) == f"{server.host}/{PATH}@{DIGEST}"
    assert server.authorizations == [f"Basic {server.basic}"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"stated": f"sha256:{'0' * 64}"}, "states sha256:000"),
        ({"status": 404}, "answers 404"),
        ({"status": 500}, "answers 500"),
        ({"status": 401}, "answers 401"),
        ({"content": b"<html>sign in</html>", "stated": None}, "sends no manifest"),
        ({"content": b"[" * 100_000, "stated": None}, "sends no manifest"),
        ({"content": b" " * (5 * 2**20), "stated": None}, "more than a manifest may have"),
        ({"cut": True}, "its answer was cut"),
        ({"realm": "file:///etc/passwd"}, "it wants a token of 'file:///etc/passwd'"),
        ({"basic": "of-the-owner"}, "answers 401"),
    ],
)
def test_what_is_no_proof_is_no_digest(server, change, found):
    """Another content, an error, a page of somebody who sits between, half an answer."""
    for name, value in change.items():
        setattr(server, name, value)
    assert found in refusal(server)


def test_a_registry_that_never_ends_its_answer_is_left(server, monkeypatch):
    """A byte now and then keeps a connection open, and nobody waiting."""
    monkeypatch.setattr(registry, "_SECONDS", 0.1)
    server.drip_seconds = 0.05
    assert "timed out" in refusal(server)


def test_a_registry_that_says_nothing_is_left(monkeypatch):
    """As behind a firewall that drops what it does not know."""
    monkeypatch.setattr(registry, "_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(registry.RegistryError, match="timed out"):
            registry.pinned(f"{host}/{PATH}", lambda _: None)


def mirrored(folder, host):
    """Write a cluster file whose images are mirrored on this machine."""
    return project_in(folder, f"{CLUSTER}images:\n  mirror: {host}/mirror\n")


def run(file):
    """Run `meks outputs`, and return what is recorded and what was said."""
    aws, of = Aws(), console()
    aws.all_stacks()
    for _ in range(2):
        aws.history()
        aws.image()
    assert outputs.run("table", tools(file, Clients(**aws.clients), of)) == 0
    written = json.loads(file.with_name("outputs.json").read_text())
    return written.get("techpulse-Platform", {}), said(of)


def test_outputs_records_digests_and_charts_use_them(server, tmp_path):
    """Once for each tag: where a tag is moved to later is nobody's business here."""
    file = mirrored(tmp_path, server.host)
    operator = f"{server.host}/mirror/{PATH}"
    recorded, text = run(file)
    assert recorded["TrainingOperator"] == f"{operator}@{DIGEST}"
    assert set(recorded) == OPERATOR - {"AwsEfaK8sDevicePlugin"}
    assert "aws-efa-k8s-device-plugin:v0.5.20 stays known by tag" in text
    egress = load_project(file, TODAY.date()).cluster.platform.egress
    assert egress.image(pins.TRAINING_OPERATOR_IMAGE) == f"{operator}@{DIGEST}"
    asked = len(server.requests)
    server.content = registry_server.CONTENT + b"\n"
    assert run(file)[0] == recorded
    assert len(server.requests) == asked


def test_without_an_answer_everything_stays_by_tag(server, tmp_path):
    """The command does not fail for it, and says once an image what it lacks."""
    file = mirrored(tmp_path, server.host)
    server.status = 503
    recorded, text = run(file)
    assert recorded == {}
    assert text.count("stays known by tag") == len(OPERATOR)
    egress = load_project(file, TODAY.date()).cluster.platform.egress
    assert egress.image(pins.TRAINING_OPERATOR_IMAGE) == f"{server.host}/mirror/{PATH}"


@pytest.mark.parametrize(
    "uri",
    [
        f"evil.example.com/{PATH}@{DIGEST}",
        f"{{host}}/mirror/{PATH.replace('93c', '000')}@{DIGEST}",
        f"{{host}}/mirror/{PATH}@sha256:0",
        f"{{host}}/mirror/{PATH}",
    ],
)
def test_a_record_of_another_image_counts_for_nothing(server, tmp_path, uri):
    """Only the tag that this release pins, in the registry that nodes pull from."""
    file = mirrored(tmp_path, server.host)
    written = uri.format(host=server.host)
    values = {"techpulse-Platform": {"TrainingOperator": written}}
    file.with_name("outputs.json").write_text(json.dumps(values))
    egress = load_project(file, TODAY.date()).cluster.platform.egress
    assert egress.image(pins.TRAINING_OPERATOR_IMAGE) == f"{server.host}/mirror/{PATH}"
    assert run(file)[0]["TrainingOperator"] == f"{server.host}/mirror/{PATH}@{DIGEST}"


def test_what_is_known_by_tag_is_said(server, tmp_path):
    """After a deployment and a build, when nothing greater is missing."""
    file = mirrored(tmp_path, server.host)
    image = f"123456789012.dkr.ecr.us-east-2.amazonaws.com/megatron-training@{DIGEST}"
    storage = {"LustreId": "fs-0123456789abcdef0", "LustreMountName": "abcdefgh"}
    storage["LustreDnsName"] = "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com"
    images = {"MegatronImage": image, "FsdpImage": image}
    values = {"techpulse-Storage": storage, "techpulse-Images": images}
    file.with_name("outputs.json").write_text(json.dumps(values))
    warnings = [str(each) for each in load_project(file, TODAY.date()).warnings]
    (found,) = (each for each in warnings if "known by tag only" in each)
    assert f"{server.host}/mirror/{PATH}" in found
    assert "meks outputs" in found
