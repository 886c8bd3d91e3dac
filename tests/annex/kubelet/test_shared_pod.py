"""The pod on the shared file system: our programs run where the claim is, and nothing is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube.access import Access
from megatron_eks.project import ROOT, load_project
from tests.annex.kubelet import runs
from tests.programs import saved

pytestmark = pytest.mark.control_plane

_NAMESPACE = "megatron-workshop"
_DIGEST = "@sha256:" + "0123456789abcdef" * 4
# A job that no other test has: what is recorded of theirs would come into these files.
_JOB, _SHIPPED = "gpt-7b-of-meks", "megatron-gpt-7b"
_BUCKET = "shared-pod"
_OOM = "torch.OutOfMemoryError: CUDA out of memory."


def write_project(folder, source, image):
    """Copy the project with one job, which keeps a copy in S3, and an image by its digest."""
    (folder / "jobs").mkdir()
    shutil.copy(source / "cluster.yaml", folder)
    text = (source / "jobs" / f"{_SHIPPED}.yaml").read_text().replace(_SHIPPED, _JOB)
    directory = "  directory: /shared/checkpoints/gpt-7b\n"
    assert directory in text
    uri = f"  s3_uri: s3://{_BUCKET}/run\n"
    (folder / "jobs" / f"{_JOB}.yaml").write_text(text.replace(directory, directory + uri))
    images = {"MegatronImage": f"111122223333.dkr.ecr.us-east-2.amazonaws.com/{image}{_DIGEST}"}
    (folder / "outputs.json").write_text(json.dumps({"techpulse-Images": images}))
    return folder / "cluster.yaml"


@pytest.fixture(scope="module")
def cluster_file(project, tmp_path_factory):
    """Return a cluster file whose image this cluster has the real programs for."""
    return write_project(tmp_path_factory.mktemp("shared"), project, runs.MEGATRON)


@pytest.fixture
def place(cluster, cluster_file, console):
    """Return the way to the shared files."""
    loaded = load_project(cluster_file, datetime.now(tz=UTC).date())
    access = Access(cluster.client, is_local=True)
    cluster.shared()
    yield SharedPod(access, loaded, console, loaded.cluster.platform.claim)
    no_pod(cluster)


@pytest.fixture
def begin(cluster, cluster_file):
    """Return a function that starts a command of meks against this cluster."""

    def call(*words):
        reach = ["--cluster", cluster_file, "--kubeconfig", cluster.plane.kubeconfig]
        return subprocess.Popen(  # noqa: S603 -- our own command
            [sys.executable, "-m", "megatron_eks", *map(str, (*words, *reach))],
            cwd=cluster_file.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), "AWS_EC2_METADATA_DISABLED": "true"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return call


@pytest.fixture
def meks(begin):
    """Return a function that runs a command to its end."""

    def call(*words):
        with begin(*words) as process:
            out, err = process.communicate(timeout=300)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    return call


@pytest.fixture
def saving(cluster):
    """Return the job's checkpoint directory with two whole ones and a torn one."""
    root = cluster.shared() / "checkpoints" / "gpt-7b"
    shutil.rmtree(root, ignore_errors=True)
    return saved.series(root)


@pytest.fixture
def bucket(s3_server):
    """Return a client of S3 with an empty bucket."""
    client, _ = s3_server
    client.create_bucket(Bucket=_BUCKET)
    yield client
    for each in client.list_objects_v2(Bucket=_BUCKET).get("Contents", []):
        client.delete_object(Bucket=_BUCKET, Key=each["Key"])
    client.delete_bucket(Bucket=_BUCKET)


def pods(cluster):
    """Return such pods."""
    return cluster.client.list("v1", "Pod", _NAMESPACE, labels="app=shared-files")


def no_pod(cluster, told=""):
    """Wait until none is left; what its command told may say why one is."""
    wait_for(f"the pods to go\n{told}", lambda: not pods(cluster), 60)


def some_pod(cluster):
    """Wait for one."""
    return wait_for("a pod", lambda: pods(cluster), 120)[0]


@pytest.mark.usefixtures("saving")
def test_a_program_runs_where_the_claim_is_and_the_pod_goes(place):
    """Its lines, its result and its exit code come back."""
    lines: list[str] = []
    ended = place.run("checkpoint_sync", ["ls", "/shared/checkpoints/gpt-7b"], None)
    assert ended.code == 0
    assert [row["step"] for row in ended.rows("ends")] == [400, 500, 600]
    place.run("checkpoint_sync", ["verify", "/shared/checkpoints/gpt-7b"], lines.append)
    assert any("iter_0000500" in line for line in lines)
    assert not any(line.startswith("{") for line in lines)
    missing = place.run("checkpoint_sync", ["ls", "/shared/checkpoints/none"], None)
    assert missing.code == 3
    assert "no such directory" in missing.names("findings")[0]


def test_what_it_waits_for_is_said_and_it_goes_all_the_same(cluster, project, place, tmp_path):
    """A claim that is not there, and an image that cannot be pulled."""
    unbound = replace(place, claim="no-such-claim", start_seconds=5)
    with pytest.raises(Failure, match=r"MEKS-0880 .*waits for a node.*no-such-claim") as raised:
        unbound.run("checkpoint_sync", ["ls", "/shared"], None)
    assert raised.value.code == 1
    file = write_project(tmp_path, project, "no-such-image")
    unknown = replace(place, project=replace(place.project, file=file), start_seconds=10)
    with pytest.raises(Failure, match=r"MEKS-0880 .*(ErrImagePull|ImagePullBackOff)"):
        unknown.run("checkpoint_sync", ["ls", "/shared"], None)
    assert "no-such-claim" in place.console.stderr.getvalue()
    no_pod(cluster)


def test_without_a_digest_a_real_cluster_gets_no_pod(cluster, place, tmp_path):
    """Placeholders are for local clusters alone."""
    shutil.copy(place.project.file, tmp_path / "cluster.yaml")
    real = Access(cluster.client, is_local=False)
    project = replace(place.project, file=tmp_path / "cluster.yaml")
    preview = replace(place, access=real, project=project)
    with pytest.raises(Failure, match=r"MEKS-0725 no image with a digest is known"):
        preview.run("checkpoint_sync", ["ls", "/shared"], None)
    assert not pods(cluster)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ckpt", "pull", _JOB), "what was done stays done; to go on: meks ckpt pull"),
        (("logs", _JOB), "nothing was changed"),
    ],
)
def test_ctrl_c_removes_the_pod(cluster, begin, words, said):
    """Exit code 130, and how to go on."""
    process = begin(*words)
    some_pod(cluster)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, f"interrupted: {said}" in err) == (130, True), err
    no_pod(cluster, err)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_removes_the_pod(cluster, begin, number):
    """As Ctrl-C does."""
    process = begin("ckpt", "ls", "/shared/checkpoints/none")
    some_pod(cluster)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    no_pod(cluster, err)


@pytest.mark.usefixtures("bucket")
def test_a_pod_that_somebody_removes_is_not_taken_for_done(cluster, place):
    """The program had not come to its end."""
    root = cluster.shared() / "checkpoints" / "watched"
    root.mkdir(exist_ok=True)
    words = ["push", "/shared/checkpoints/watched", f"s3://{_BUCKET}/watched", "--watch"]

    def remove():
        pod = some_pod(cluster)
        wait_for("it to run", lambda: cluster.now(pod)["status"]["phase"] == "Running", 120)
        cluster.force_delete(pod)

    remover = threading.Thread(target=remove)
    remover.start()
    with pytest.raises(Failure, match=r"MEKS-0881 .*ended before its program") as raised:
        place.run("checkpoint_sync", words, None)
    remover.join()
    assert "run the same command again" in str(raised.value)


@pytest.mark.long
@pytest.mark.usefixtures("bucket")
def test_checkpoints_of_a_job_on_the_file_system_and_in_s3(meks, saving):
    """Listed, pushed, compared, pruned at both ends, and pulled, from beside the file system."""
    pushed = meks("ckpt", "push", _JOB, "--all")
    assert pushed.returncode == 0, pushed.stderr
    assert f"iter_0000500 is in s3://{_BUCKET}/run" in pushed.stdout
    listed = json.loads(meks("ckpt", "ls", _JOB, "-o", "json").stdout)
    assert [
        (each["iteration"], each["where"], each["whole"]) for each in listed["checkpoints"]
    ] == [
        (400, "shared", True),
        (400, "S3", True),
        (500, "shared", True),
        (500, "S3", True),
        (600, "shared", False),
    ]
    assert listed["restart"]["takes"] == "iter_0000500"
    assert meks("ckpt", "verify", _JOB).returncode == 0
    pruned = meks("ckpt", "prune", _JOB, "--keep-last=1", "--yes").stdout.splitlines()
    gone = [row.split()[:2] for row in pruned if " goes " in row]
    assert gone == [["iter_0000400", "shared"], ["iter_0000400", "S3"]]
    shutil.rmtree(saving)
    pulled = meks("ckpt", "pull", _JOB)
    assert pulled.stdout == "iter_0000500 is in /shared/checkpoints/gpt-7b\n", pulled.stderr
    assert (saving / "latest_checkpointed_iteration.txt").read_text() == "500"


def test_logs_of_pods_that_are_gone_come_from_the_file_system(cluster, meks):
    """Each line with its rank, and they can be explained."""
    folder = cluster.shared() / "logs" / _JOB
    start = folder / "0001"
    start.mkdir(parents=True, exist_ok=True)
    (start / "rank-00000.log").write_text("".join(f"line {n}\n" for n in range(2000)))
    (start / "rank-00001.log").write_text(f"starts\n[rank1]: {_OOM}\n")
    whole = meks("logs", _JOB)
    assert whole.returncode == 0, whole.stderr
    assert whole.stdout.splitlines()[-3:] == ["[0] line 1999", "[1] starts", f"[1] [rank1]: {_OOM}"]
    assert len(whole.stdout.splitlines()) == 2002
    assert "reading its record in /shared/logs/gpt-7b-of-meks" in whole.stderr
    assert meks("logs", _JOB, "--rank=0", "--tail=1").stdout == "[0] line 1999\n"
    explained = json.loads(meks("logs", _JOB, "--explain", "-o", "json").stdout)
    assert (explained["code"], explained["rank"]) == ("MEKS-0901", 1)
    shutil.rmtree(folder)
    none = meks("logs", _JOB)
    assert (none.returncode, "MEKS-0734" in none.stderr) == (3, True)


def test_data_are_fetched_and_verified_where_pods_see_them(cluster, meks, bucket):
    """From S3 to the file system, and a data set that is damaged ends with 4."""
    bucket.put_object(Bucket=_BUCKET, Key="data/a.jsonl", Body=b"{}")
    shutil.rmtree(cluster.shared() / "data" / "a", ignore_errors=True)
    done = meks("data", "fetch", f"s3://{_BUCKET}/data/", "/shared/data/a")
    assert done.returncode == 0, done.stderr
    assert (cluster.shared() / "data" / "a" / "a.jsonl").read_bytes() == b"{}"
    bad = meks("data", "verify", "/shared/data/a/no_text_document")
    assert bad.returncode == 4
    assert "/shared/data/a/no_text_document" in bad.stderr
