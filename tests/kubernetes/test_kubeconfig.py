"""Kubeconfig files as kubectl reads them, and credentials from programs."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import yaml

from megatron_eks.kubernetes import kubeconfig
from megatron_eks.kubernetes.kubeconfig import KubeconfigError
from tests.kubernetes.answers import say


def write(file: Path, server: str, user: dict[str, object], name: str = "one", **cluster) -> Path:
    """Write a kubeconfig of one context."""
    config = {
        "clusters": [{"name": name, "cluster": {"server": server, **cluster}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    file.write_text(yaml.safe_dump(config))
    return file


def context(*files: Path):
    """Return the current context of some files."""
    config = kubeconfig.load(files)
    return kubeconfig.contexts(config)[config["current-context"]]


def test_files_of_the_variable_are_joined(tmp_path):
    """Of two entries of one name the first holds, and so does the first current context."""
    first = write(tmp_path / "a", "https://a", {}, "a")
    second = write(tmp_path / "b", "https://b", {}, "b")
    files = kubeconfig.files(None, {"KUBECONFIG": f"{first}:{second}"}, tmp_path)
    config = kubeconfig.load(files)
    assert config["current-context"] == "a"
    assert {name: each.server for name, each in kubeconfig.contexts(config).items()} == {
        "a": "https://a",
        "b": "https://b",
    }


def test_a_file_of_the_command_line_is_the_only_one(tmp_path):
    """As with kubectl's --kubeconfig."""
    named = tmp_path / "named"
    assert kubeconfig.files(named, {"KUBECONFIG": "other"}, tmp_path) == [named]
    assert kubeconfig.files(None, {}, tmp_path) == [tmp_path / ".kube" / "config"]


def test_a_file_that_is_not_there_is_empty(tmp_path):
    """KUBECONFIG often names one that will be written."""
    assert kubeconfig.contexts(kubeconfig.load([tmp_path / "none"])) == {}


@pytest.mark.parametrize("text", ["[1, 2]", "clusters: 5", "a: [", "clusters: [{}]"])
def test_what_is_no_kubeconfig_is_refused(tmp_path, text):
    """Any file can be named."""
    (tmp_path / "file").write_text(text)
    with pytest.raises(KubeconfigError):
        kubeconfig.load([tmp_path / "file"])


def test_files_beside_it_are_found_from_anywhere(tmp_path, api):
    """Paths in a kubeconfig start where it stands."""
    user: dict[str, object] = {"token": "mine"}
    file = write(tmp_path / "config", api.url, user, **{"certificate-authority": "server.crt"})
    api.answers = [say(200, {"a": 1})]
    client = context(file).client(5)
    assert client.request("GET", "/version") == {"a": 1}
    client.close()
    assert api.asked == [("/version", "Bearer mine")]


def test_a_program_gives_tokens_until_the_server_takes_one(tmp_path, api):
    """It is asked once, and again when its token has expired."""
    counter = tmp_path / "counter"
    script = (
        "import json, pathlib\n"
        f"file = pathlib.Path({str(counter)!r})\n"
        "number = int(file.read_text()) + 1 if file.exists() else 1\n"
        "file.write_text(str(number))\n"
        "print(json.dumps({'status': {'token': f't{number}'}}))\n"
    )
    plugin = {"command": sys.executable, "args": ["-c", script], "env": None}
    authority = str(api.authority)
    user: dict[str, object] = {"exec": plugin}
    file = write(tmp_path / "config", api.url, user, **{"certificate-authority": authority})
    api.answers = [say(200, {}), say(401), say(200, {})]
    client = context(file).client(5)
    client.request("GET", "/a")
    client.request("GET", "/b")
    client.close()
    assert [token for _, token in api.asked] == ["Bearer t1", "Bearer t1", "Bearer t2"]


def test_requests_that_begin_together_share_one_token(tmp_path, api):
    """Each run of the program takes seconds: an interpreter and two calls of STS."""
    starts = tmp_path / "starts"
    script = f"open({str(starts)!r}, 'a').write('x'); print('{{\"status\": {{\"token\": \"t\"}}}}')"
    user: dict[str, object] = {"exec": {"command": sys.executable, "args": ["-c", script]}}
    authority = {"certificate-authority": str(api.authority)}
    client = context(write(tmp_path / "config", api.url, user, **authority)).client(5)
    api.answers = [say(200, {})] * 4
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(partial(client.request, "GET"), ["/a"] * 4)) == [{}] * 4
    client.close()
    assert starts.read_text() == "x"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import sys; sys.exit('no credentials')", "no credentials"),
        ("print('hello')", "printed no ExecCredential"),
        ("print('{}')", "printed no ExecCredential"),
    ],
)
def test_a_program_without_a_token_is_named(tmp_path, api, script, why):
    """Its own last words say what to do."""
    plugin = {"command": sys.executable, "args": ["-c", script]}
    authority = str(api.authority)
    user: dict[str, object] = {"exec": plugin}
    file = write(tmp_path / "config", api.url, user, **{"certificate-authority": authority})
    with pytest.raises(KubeconfigError, match=why):
        context(file).client(5).request("GET", "/a")


@pytest.mark.parametrize(
    ("name", "arguments", "cluster"),
    [
        ("arn:aws:eks:us-east-2:111122223333:cluster/big", [], ("big", "us-east-2")),
        (
            "x",
            ["--region", "eu-west-1", "eks", "get-token", "--cluster-name", "big"],
            ("big", "eu-west-1"),
        ),
        ("minikube", [], None),
    ],
)
def test_a_context_says_which_eks_cluster_it_leads_to(tmp_path, name, arguments, cluster):
    """The AWS CLI and `meks kubeconfig` all write it somewhere."""
    user: dict[str, object] = {"exec": {"command": "aws", "args": arguments}}
    file = write(tmp_path / "config", "https://x", user, name)
    assert context(file).eks_cluster == cluster


def test_a_certificate_stands_in_the_file_itself(tmp_path):
    """As base64; what is none is refused with the key's name."""
    broken = {"certificate-authority-data": "%%%"}
    file = write(tmp_path / "config", "https://x", {}, **broken)
    with pytest.raises(KubeconfigError, match="certificate-authority of the kubeconfig"):
        context(file).client(5)


def test_json_is_a_kubeconfig_too(tmp_path):
    """The one of `meks local up` is JSON."""
    text = yaml.safe_load(write(tmp_path / "config", "https://x", {}).read_text())
    (tmp_path / "config").write_text(json.dumps(text))
    assert context(tmp_path / "config").server == "https://x"
