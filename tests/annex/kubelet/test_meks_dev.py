"""`meks dev` on process nodes: what a job's pods have, who is asked first, and how it ends."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from functools import partial

import pytest
import yaml

from megatron_eks.kubernetes import execution
from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.jobs.dev import serve
from megatron_eks.ops.kube.jobs import CONTAINER, RunningJob
from megatron_eks.plan.jobs.dev import DEV_PROGRAM
from megatron_eks.project import ROOT
from tests.annex import jobs

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

_NAMESPACE = "megatron-workshop"
_SECONDS = 240


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Write a project with the example's job, which needs no built image here."""
    folder = tmp_path_factory.mktemp("dev")
    shutil.copytree(ROOT / "examples" / "own-script" / "jobs" / "ddp", folder / "jobs" / "ddp")
    shutil.copy(ROOT / "cluster.yaml", folder)
    value = yaml.safe_load((ROOT / "examples/own-script/jobs/ddp.yaml").read_text())
    value |= {"name": "mine", "pool": "p4d", "runtime": {"env": {"MINE": "of the job"}}}
    (folder / "jobs" / "own.yaml").write_text(yaml.safe_dump(value))
    return folder


@pytest.fixture
def meks(cluster, own):
    """Return a function that runs a command of meks; the pod is gone after the test."""

    def call(*words, code=0, given=""):
        done = subprocess.run(  # noqa: S603 -- our own command
            [sys.executable, "-m", "megatron_eks", *map(str, words)],
            cwd=own,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "KUBECONFIG": str(cluster.plane.kubeconfig),
                "AWS_EC2_METADATA_DISABLED": "true",
                "COLUMNS": "200",
            },
            input=given,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stderr
        return done

    cluster.shared()
    yield call
    if now := job(cluster):
        jobs.delete(cluster.client, now)


def dev(meks, *words, code=0):
    """Start it or come back, and run a command in it."""
    return meks("dev", "mine", "--gpus=0", "--yes", "--preview", *words, code=code)


def job(cluster):
    """Return its Job, or nothing."""
    found = cluster.client.find("batch/v1", "Job", "dev-mine", _NAMESPACE)
    return found and {"apiVersion": "batch/v1", "kind": "Job", **found}


def record(cluster):
    """Return what its program has said."""
    files = sorted((cluster.shared() / "logs" / "dev-mine").glob("*/rank-00000.log"))
    return files[-1].read_text() if files else ""


def test_it_has_what_the_jobs_pods_have(cluster, meks):
    """Code, variables, mounts and torch; a second command comes back; `meks cancel` ends it."""
    script = (
        "cd /tmp/code && ls && echo $MINE && touch mine /shared/logs && python3 -c 'import torch'"
    )
    first = dev(meks, "--", "sh", "-c", script)
    assert first.stdout.split("\n")[:2] == ["train.py", "of the job"], first.stderr
    assert "no GPU, on the system nodes, which are paid for anyway" in first.stderr
    assert "to end it: meks cancel dev-mine" in first.stderr
    again = meks("dev", "mine", "--", "sh", "-c", "cat mine; exit 3", code=3)
    assert "Start it?" not in again.stderr
    said = meks("dev", "mine", "--gpus", "9", code=2).stderr
    assert "--gpus 9: dev-mine is there already, with 0 - leave --gpus out" in said
    assert meks("dev", "mine", given="pwd\n").stdout == "/tmp/code\n"  # noqa: S108 -- the pod's
    shown = json.loads(meks("status", "-o", "json").stdout)
    assert [(each["name"], each["phase"]) for each in shown["jobs"]] == [("dev-mine", "Running")]
    assert "dev-mine: Running" in meks("status", "dev-mine").stdout
    meks("logs", "dev-mine")
    assert meks("shell", "dev-mine", "--", "ls", "/tmp/code/mine").stdout == "/tmp/code/mine\n"  # noqa: S108 -- the pod's
    meks("cancel", "dev-mine", "--yes")
    assert job(cluster) is None


def test_its_price_is_said_and_nobody_pays_unasked(cluster, meks):
    """Its part of the node and the whole one; it takes one GPU, and the pool's job is its job."""
    said = meks("dev", "mine", "--hours=2", "--preview", code=2).stderr
    assert (
        "dev-mine, for 2 h: 1 of 8 GPUs of a p4d.24xlarge: 2.74 USD an hour, at most 5.49" in said
    )
    assert (
        "a node that runs for it alone costs 21.96 USD an hour" in said or "21.96 an hour" in said
    )
    assert "MEKS-0747" in said
    assert job(cluster) is None
    assert "MEKS-0892 --gpus 9" in meks("dev", "mine", "--gpus=9", code=2).stderr
    assert "did you mean 'mine'" in meks("dev", "min", code=3).stderr
    meks("dev", "mine", "--preview", "--yes", "--", "true")
    (pod,) = jobs.pods_of(cluster.client, job(cluster))
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    costs = json.loads(meks("cost", "-o", "json").stdout)["jobs"]
    ((name, price),) = [(each["name"], each["usd_per_hour"]) for each in costs]
    assert (name, round(price, 2)) == ("dev-mine", 2.74)


@pytest.mark.long
def test_it_ends_when_nobody_uses_it(cluster, meks):
    """Not while somebody is connected, nor while a terminal is used; and the record says why."""

    def ended():
        return job(cluster)["status"].get("succeeded")

    # Longer than it may be idle.
    dev(meks, "--idle-minutes=0.2", "--", "sleep", "30")
    assert not ended()
    # As if it were long ago that somebody was connected.
    dev(meks, "--", "sh", "-c", "sleep 1; touch -d '1 hour ago' /tmp/.meks-dev")
    wait_for("its end", ended, _SECONDS)
    assert "nobody was connected for 0.2 min: it ends" in record(cluster)
    assert "has ended; starting it again" in dev(meks, "--", "true").stderr


@pytest.mark.long
def test_it_ends_after_its_hours(cluster, meks):
    """Whatever runs in it: the API server's own deadline."""
    dev(meks, "--hours=0.017", "--", "sleep", "600", code=137)
    failed = wait_for("its end", lambda: RunningJob(job(cluster)).condition("Failed"), _SECONDS)
    assert failed["reason"] == "DeadlineExceeded"


def test_a_port_here_is_one_of_the_pod(cluster, meks, tmp_path):
    """As Jupyter's would be: large answers, several at once, over the real exec."""
    server = (
        "cd /tmp/code; head -c 3000000 /dev/urandom > large; python3 -m http.server 8888 --bind"
    )
    dev(meks, "--", "sh", "-c", f"({server} 127.0.0.1 > /dev/null 2>&1 &) ; sleep 3")
    (pod,) = jobs.pods_of(cluster.client, job(cluster))
    place = (_NAMESPACE, pod["metadata"]["name"], CONTAINER)
    words = (*DEV_PROGRAM, "--relay", "8888")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begin = partial(execution.start, cluster.client, *place, words, stdin=True)
        threading.Thread(target=serve, args=(listener, begin), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def fetch(name):
            with urllib.request.urlopen(f"{url}/{name}", timeout=60) as answer:  # noqa: S310 -- ours
                (tmp_path / name).write_bytes(answer.read())

        threads = [threading.Thread(target=fetch, args=(name,)) for name in ("large", "train.py")]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    there = execution.run(cluster.client, *place, ("cat", "/tmp/code/large"))  # noqa: S108 -- the pod's
    assert (tmp_path / "large").read_bytes() == there.stdout
    assert (tmp_path / "train.py").read_text().startswith('"""')
