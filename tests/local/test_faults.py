"""Commands on a real API server, with a server in front of it that makes requests fail."""

import io
import json
import shutil
import threading
import time
from datetime import UTC, datetime

import pytest
import yaml

from megatron_eks.__main__ import main
from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.kubernetes.watch import Watch
from megatron_eks.local.kubernetes import manifests
from megatron_eks.ops.aws.console import Console, SystemClock
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube import access as ways
from megatron_eks.ops.kube import apply, overrides, status, status_view, submit
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.rendering import Wish
from megatron_eks.project import load_project
from tests.kubernetes.certificates import certificate
from tests.local import jobs
from tests.local.fault_proxy import cut, drop, fault_proxy, lose_answer, refuse

pytestmark = pytest.mark.control_plane

_NAMESPACE = "megatron-workshop"
_JOB = "megatron-gpt-7b"
_MAPS: list[Object] = [
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"extra-{number}", "namespace": _NAMESPACE},
        "data": {"key": "value"},
    }
    for number in range(3)
]


@pytest.fixture(scope="module")
def small(project, tmp_path_factory):
    """Copy the shared project with one of its jobs."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "jobs").mkdir()
    shutil.copy(project / "cluster.yaml", folder)
    shutil.copy(project / "jobs" / f"{_JOB}.yaml", folder / "jobs")
    return folder / "cluster.yaml"


@pytest.fixture(scope="module")
def loaded(small):
    """Load it."""
    return load_project(small, datetime.now(tz=UTC).date())


@pytest.fixture
def proxy(control_plane, client, tmp_path):
    """Stand in front of the API server."""
    assert client
    (tmp_path / "proxy").mkdir()
    with fault_proxy(control_plane, tmp_path / "proxy") as found:
        yield found


def console():
    """Return a console that says yes."""
    return Console(io.StringIO(), io.StringIO(), io.StringIO(), SystemClock(), yes=True)


@pytest.fixture
def put(proxy, loaded, tmp_path, client):
    """Return a function that applies three objects through the server in front."""
    file = tmp_path / "maps.yaml"
    file.write_text(yaml.safe_dump_all(_MAPS))

    def call():
        made = console()
        options = apply.Options(paths=[file], wait_seconds=30)
        code = apply.run(Access(proxy.client, is_local=True), loaded, options, made)
        return code, made.stderr.getvalue()

    yield call
    for each in _MAPS:
        client.delete("v1", "ConfigMap", each["metadata"]["name"], _NAMESPACE, missing_ok=True)


@pytest.mark.parametrize(
    ("act", "times", "code", "exit_code", "said"),
    [
        (refuse(409, "Conflict", "the object has been modified"), 1, "MEKS-0721", 1, "somebody"),
        (refuse(403, "Forbidden", 'forbidden: User "x"'), 1, "MEKS-0721", 1, "admin_role_arns"),
        (refuse(500, "InternalError", "etcd is gone"), 1, "MEKS-0721", 1, "etcd is gone"),
        (refuse(401, "Unauthorized"), 2, "MEKS-0721", 1, "this machine's clock"),
        (drop, 9, "MEKS-0720", 5, "check network"),
    ],
    ids=["conflict", "forbidden", "broken", "unauthorized", "cut"],
)
def test_an_apply_that_ends_in_the_middle_is_gone_on_with(  # noqa: PLR0917 -- its columns
    proxy, put, client, act, times, code, exit_code, said
):
    """The first object stays, the message says what happened, and a second run does the rest."""
    with (
        proxy.failing("PATCH", r"configmaps/extra-1\?(?!.*dryRun)", act, times),
        pytest.raises(ways.ERRORS) as raised,
    ):
        put()
    failure = ways.explained(raised.value)
    assert (str(failure.finding), failure.code) == (code, exit_code)
    assert said in str(failure)
    there = {each["metadata"]["name"] for each in client.list("v1", "ConfigMap", _NAMESPACE)}
    assert "extra-0" in there
    assert not {"extra-1", "extra-2"} & there
    done, told = put()
    assert done == 0
    assert "2 to create, 1 objects as they should be" in told
    assert "no changes, 3 objects as they should be" in put()[1]


def test_a_right_that_is_missing_is_found_before_anything_changes(proxy, put, client):
    """One of three objects is refused in the comparison: nothing is half done."""
    act = refuse(403, "Forbidden", 'configmaps "extra-2" is forbidden: User "x" cannot patch')
    with (
        proxy.failing("PATCH", r"configmaps/extra-2\?.*dryRun", act),
        pytest.raises(ways.ERRORS) as raised,
    ):
        put()
    assert "MEKS-0721 ConfigMap megatron-workshop/extra-2: " in str(ways.explained(raised.value))
    there = {each["metadata"]["name"] for each in client.list("v1", "ConfigMap", _NAMESPACE)}
    assert not {"extra-0", "extra-1", "extra-2"} & there


def test_an_answer_that_is_lost_is_no_second_object(proxy, put, client):
    """The API server has done it; the connection is opened again, and the same is asked again."""
    with proxy.failing("PATCH", r"configmaps/extra-1\?(?!.*dryRun)", lose_answer):
        assert put()[0] == 0
        assert len(proxy.met) == 1
    assert client.get("v1", "ConfigMap", "extra-1", _NAMESPACE)["data"] == {"key": "value"}


@pytest.fixture
def send(small, loaded, client):
    """Return a function that submits a job through some client."""
    made = set()

    def call(way, name, *changes):
        made.add(name)
        directory = f"checkpoint.directory=/shared/checkpoints/{name}"
        values = overrides.parse([f"name={name}", directory, *changes])
        wish = Wish(small, _JOB, values, datetime.now(tz=UTC).date())
        told = console()
        options = submit.Options(previews=True, wait_seconds=60)
        code = submit.run(Access(way, is_local=True), loaded, wish, options, told)
        return code, told.stderr.getvalue()

    yield call
    for name in made:
        found = client.find("kubeflow.org/v1", "PyTorchJob", name, _NAMESPACE)
        if found is not None:
            jobs.delete(client, {**found, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"})


def test_a_submission_whose_answer_is_lost_starts_one_job(proxy, send, client):
    """The second request meets the job of the first, which is the same."""
    path = rf"/namespaces/{_NAMESPACE}/pytorchjobs\?"
    # A connection that has carried nothing yet is not opened again: warm it first.
    with proxy.failing("POST", path, lose_answer):
        code, told = send(proxy.client, "lost-answer")
        assert len(proxy.met) == 1
    assert code == 0
    assert "lost-answer: " in told
    found = [
        each["metadata"]["name"]
        for each in client.list("kubeflow.org/v1", "PyTorchJob", _NAMESPACE)
    ]
    assert found.count("lost-answer") == 1


def test_two_people_who_submit_at_once_start_one_job(proxy, send, client):
    """Both see it; who wants another specification is told, and nothing is changed."""
    ended: list[object] = []

    def one(way, *changes):
        try:
            ended.append(send(way, "both-of-us", *changes)[0])
        except Failure as failure:
            ended.append(str(failure.finding))

    threads = [threading.Thread(target=one, args=(way,)) for way in (client, proxy.client)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert ended == [0, 0]
    uid = client.get("kubeflow.org/v1", "PyTorchJob", "both-of-us", _NAMESPACE)["metadata"]["uid"]
    one(proxy.client, "training.train_iters=9000")
    assert ended[-1] == "MEKS-0728"
    now = client.get("kubeflow.org/v1", "PyTorchJob", "both-of-us", _NAMESPACE)["metadata"]["uid"]
    assert now == uid


def test_without_the_operators_definition_the_remedy_installs_it(proxy, send, client):
    """The API server knows no PyTorchJob: nothing of the job is started."""
    gone = refuse(404, "NotFound", "the server could not find the requested resource")
    with (
        proxy.failing("GET", r"^/apis/kubeflow\.org/v1$", gone, 99),
        pytest.raises((Failure, *ways.ERRORS)) as raised,
    ):
        send(proxy.client, "no-definition")
    failure = raised.value if isinstance(raised.value, Failure) else ways.explained(raised.value)
    assert "MEKS-0730" in str(failure)
    assert "meks apply" in failure.remedy
    assert client.find("kubeflow.org/v1", "PyTorchJob", "no-definition", _NAMESPACE) is None


def test_half_of_the_ranks_are_shown_as_what_they_are(client, loaded, send):
    """Two of four nodes take no pods: each rank has its own state, and the others their reason."""
    patch = "application/merge-patch+json"
    cordoned = ["p4d-0", "p4d-1"]

    def cordon(value):
        for node in cordoned:
            spec = {"spec": {"unschedulable": value}}
            client.request("PATCH", f"/api/v1/nodes/{node}", spec, None, patch)

    cordon(value=True)
    try:
        send(client, "half-of-it", "nodes=4")

        def now():
            seen = status.read(client, loaded, "half-of-it")
            found = json.loads(json.dumps(status_view.as_json(seen)))
            phases = [each["phase"] for each in found["ranks"]]
            return found if phases.count("Running") == 2 and len(phases) == 4 else None

        found = wait_for("two ranks", now, 90)
    finally:
        cordon(value=None)
    assert found["phase"] == "Starting"
    for each in found["ranks"]:
        assert (each["phase"] == "Running") is (each.get("node") in {"p4d-2", "p4d-3"})
    waiting = sorted(rank for why in found["waits_for"] for rank in why["ranks"])
    assert waiting == [each["rank"] for each in found["ranks"] if each["phase"] != "Running"]
    assert any("waits for a node: " in why["why"] for why in found["waits_for"])


def test_a_watch_loses_nothing(proxy, client):
    """Cut streams, an expired version, a refused token: what there is in the end was told."""
    path = f"/api/v1/namespaces/{_NAMESPACE}/configmaps"
    told: dict[str, str] = {}
    stopped = threading.Event()

    def tell(change):
        metadata = change.manifest["metadata"]
        told[metadata["name"]] = "gone" if change.deleted else change.manifest["data"]["key"]

    def reached(name, value):
        wait_for(f"{name} to be {value}", lambda: told.get(name) == value, 30)

    def make(name, value):
        metadata = {"name": name, "namespace": _NAMESPACE, "labels": {"watched": "here"}}
        client.apply({**_MAPS[0], "data": {"key": value}, "metadata": metadata})

    # By label: jobs of other tests leave and make ConfigMaps while this one watches.
    watch = Watch(proxy.client, path, {"labelSelector": "watched=here"})
    thread = threading.Thread(target=watch.follow, args=(tell, stopped), daemon=True)
    expired = (
        b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired",'
        b'"metadata":{},"message":"too old resource version"}}\n'
    )

    def tell_expired(handler, _):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(expired)))
        handler.end_headers()
        handler.wfile.write(expired)

    faults = (cut(1), tell_expired, refuse(410, "Expired"), refuse(401, "Unauthorized"), drop)
    try:
        thread.start()
        for number, act in enumerate(faults):
            make(f"watched-{number}", "old")
            reached(f"watched-{number}", "old")
            with proxy.failing("GET", r"watch=true", act):
                # The stream that is open goes on; the next one meets the fault.
                proxy.cut_streams()
                make(f"watched-{number}", "new")
                reached(f"watched-{number}", "new")
        client.delete("v1", "ConfigMap", "watched-0", _NAMESPACE)
        reached("watched-0", "gone")
        assert [told[f"watched-{number}"] for number in range(5)] == ["gone", *["new"] * 4]
    finally:
        stopped.set()
        proxy.cut_streams()
        thread.join(30)
        for number in range(len(faults)):
            client.delete("v1", "ConfigMap", f"watched-{number}", _NAMESPACE, missing_ok=True)


_COMMANDS = [
    ["status"],
    ["status", "a-job"],
    ["logs", "a-job"],
    ["logs", "a-job", "--explain"],
    ["apply", "MAPS", "--yes"],
    ["submit", _JOB, "--preview"],
    ["cancel", "a-job", "--yes"],
    ["cost"],
    ["secret", "ls"],
    ["secret", "rm", "hugging-face", "--yes"],
    ["fix", "0842", "--yes"],
    ["verify", "--job", "a-job"],
    ["preflight", "cluster"],
]


@pytest.fixture
def unreachable(proxy, tmp_path, monkeypatch, small):
    """Return a function that runs a command with a way that leads nowhere."""
    (tmp_path / "maps.yaml").write_text(yaml.safe_dump_all(_MAPS))
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def call(command, **cluster):
        given = [str(tmp_path / "maps.yaml") if word == "MAPS" else word for word in command]
        file = proxy.kubeconfig(tmp_path / "kubeconfig", **cluster)
        return main([*given, "--cluster", str(small), "--kubeconfig", str(file)])

    return call


@pytest.mark.parametrize("command", _COMMANDS, ids=" ".join)
def test_an_api_server_that_is_gone_is_one_line_and_exit_code_5(unreachable, capfd, command):
    """Whichever command meets it."""
    code = unreachable(command, server="https://127.0.0.1:9")
    out, err = capfd.readouterr()
    if command == ["preflight", "cluster"]:
        # What could not be looked up is said in each check.
        assert code in {4, 5}
    else:
        assert (code, out) == (5, ""), err
    assert "Traceback" not in err
    assert "MEKS-0720 https://127.0.0.1:9: Connection refused" in out + err


def test_another_servers_certificate_is_refused_by_name(unreachable, capfd, tmp_path):
    """A proxy in between, or another cluster at that address."""
    (tmp_path / "other").mkdir()
    other, _ = certificate(tmp_path / "other", "127.0.0.1")
    code = unreachable(["status"], **{"certificate-authority": str(other)})
    assert code == 5
    assert "its certificate is not the one of the kubeconfig" in capfd.readouterr().err


def test_an_api_server_that_does_not_answer_ends_the_command(
    unreachable, proxy, capfd, monkeypatch
):
    """After the time that one request may take, and not later."""
    monkeypatch.setattr(ways, "TIMEOUT_SECONDS", 0.3)
    with proxy.failing("GET", ".", lambda *_: time.sleep(2), 99):
        assert unreachable(["logs", "a-job"]) == 5
    assert "no answer within 0.3 s" in capfd.readouterr().err


@pytest.fixture
def ctrl_c(monkeypatch):
    """Let somebody press Ctrl-C as soon as a command waits."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemClock, "sleep", interrupted)


def test_ctrl_c_while_a_job_is_cancelled_says_how_to_come_back(
    unreachable, send, client, capfd, ctrl_c
):
    """What Kubernetes was told stays told; the same command waits on."""
    del ctrl_c
    send(client, "cancelled")
    job = client.get("kubeflow.org/v1", "PyTorchJob", "cancelled", _NAMESPACE)
    (pod, *_) = jobs.wait_for_pods(client, job, 2, "Running")
    path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{pod['metadata']['name']}"
    patch = "application/merge-patch+json"
    # As on a node that is lost, the pod stays for a while.
    client.request("PATCH", path, {"metadata": {"finalizers": ["test/keep"]}}, None, patch)
    try:
        assert unreachable(["cancel", "cancelled", "--yes"]) == 130
        err = capfd.readouterr().err
        assert "interrupted: what was done stays done; to go on: meks cancel cancelled --yes" in err
        assert "Traceback" not in err
        assert client.find("kubeflow.org/v1", "PyTorchJob", "cancelled", _NAMESPACE) is None
    finally:
        client.request("PATCH", path, {"metadata": {"finalizers": None}}, None, patch)


def test_ctrl_c_while_a_remedy_is_awaited_says_how_to_come_back(  # noqa: PLR0917 -- fixtures
    unreachable, client, emitted, capfd, ctrl_c, monkeypatch
):
    """What was applied stays applied; the same command looks again."""
    del ctrl_c
    monkeypatch.chdir(emitted.parent)
    place = ("apps/v1", "DaemonSet", "nvidia-device-plugin", "kube-system")
    client.delete(*place)
    code = unreachable(["fix", "0847", "--yes", "--preview"])
    err = capfd.readouterr().err
    there = client.find(*place)
    # As other tests know it: without the label of what `meks` has applied.
    client.delete(*place, missing_ok=True)
    for each in manifests.read(emitted / "platform"):
        if (each["kind"], each["metadata"]["name"]) == place[1:3]:
            client.apply(each)
    # Whether it has to wait, the API server decides.
    assert (code, "to go on: meks fix 0847" in err) in {(130, True), (0, False)}, err
    assert there


def test_ctrl_c_while_the_platform_is_awaited_says_how_to_come_back(
    unreachable, client, capfd, ctrl_c, tmp_path
):
    """What was applied is there, what needs it is not; the same command goes on."""
    del ctrl_c
    pod = {"containers": [{"name": "a", "image": "a"}], "nodeSelector": {"no": "node"}}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "never-ready", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"app": "never"}},
            "template": {"metadata": {"labels": {"app": "never"}}, "spec": pod},
        },
    }
    file = tmp_path / "both.yaml"
    file.write_text(yaml.safe_dump_all([workload, jobs.training_job("comes-after")]))
    try:
        assert unreachable(["apply", str(file), "--yes", "--preview"]) == 130
        err = capfd.readouterr().err
        assert f"to go on: meks apply {file} --yes --preview" in err
        assert client.find("apps/v1", "Deployment", "never-ready", "kube-system")
        assert client.find("kubeflow.org/v1", "PyTorchJob", "comes-after", _NAMESPACE) is None
    finally:
        client.delete("apps/v1", "Deployment", "never-ready", "kube-system", missing_ok=True)


def test_ctrl_c_while_a_check_runs_says_how_to_come_back(  # noqa: PLR0917 -- fixtures
    unreachable, client, emitted, capfd, ctrl_c, monkeypatch
):
    """The check goes on in the cluster, and the next run follows it."""
    del ctrl_c
    monkeypatch.chdir(emitted.parent)
    try:
        assert unreachable(["verify", "p4d", "--check", "nvidia-smi", "--preview"]) == 130
        err = capfd.readouterr().err
        assert "goes on, and ends within the hour; to end it: meks cancel nvidia-smi-p4d" in err
        assert client.find("batch/v1", "Job", "nvidia-smi-p4d", _NAMESPACE)
    finally:
        client.delete("batch/v1", "Job", "nvidia-smi-p4d", _NAMESPACE, missing_ok=True)
