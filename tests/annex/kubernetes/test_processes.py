"""Nothing of a cluster outlives what started it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Client, connect, wait_for
from megatron_eks.localcloud.aws import keys
from megatron_eks.localcloud.aws.server import LocalAws
from megatron_eks.localcloud.kubernetes.processes import ProcessError, Processes
from megatron_eks.project import ROOT
from tests import command
from tests.annex import jobs
from tests.annex.pids import alive, descendants
from tests.annex.rehearsal import rehearsal_in

# A parent that starts a process which would sleep for an hour, and tells its id.
_PARENT = """\
import json, sys, time
from pathlib import Path
from megatron_eks.localcloud.kubernetes.processes import Processes
processes = Processes(Path(sys.argv[1]))
processes.start("sleep", "/bin/sh", "-c", "echo ready; exec sleep 3600")
processes.wait("sleep", lambda: "ready" in processes.tail("sleep"))
print(json.dumps(processes.pids), flush=True)
time.sleep(3600)
"""

# A cluster with a pod that sleeps, also in a process that does not belong to its group.
_CLUSTER = """\
import json, os, sys, time
from datetime import date
from pathlib import Path
from megatron_eks.kubernetes import client
from megatron_eks.localcloud.kubernetes import build, control_plane, nodes
from megatron_eks.localcloud.kubernetes.kubelet.fleet import Fleet
from megatron_eks.demo.images import stand_in_images
from megatron_eks.demo.nodes import system_nodes
from megatron_eks.project import ROOT, load_project
from tests.annex.pids import descendants
plane = control_plane.ControlPlane(build.programs(os.environ, print), Path(sys.argv[1]))
plane.start()
plan = load_project(ROOT / "cluster.yaml", date.today()).cluster
Fleet(plane, stand_in_images()).start(nodes.as_process(system_nodes(plan)[0]))
command = ["sh", "-c", "setsid sleep 3600 & sleep 3600"]
container = {"name": "main", "image": "busybox", "command": command}
pod = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "sleeps", "namespace": "default"},
    "spec": {"containers": [container]},
}
plane.client.create(pod)
# Seven of the cluster; the network's holder; the pod's sandbox, launcher, shell and two more.
client.wait_for("the pod", lambda: len(descendants(os.getpid())) == 13, 60)
print(json.dumps(plane.processes.pids), flush=True)
time.sleep(3600)
"""


def killed(script: str, folder: Path) -> list[int]:
    """Run a script until it prints process ids, kill it, and return the ids."""
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(  # noqa: S603 -- a script of this file
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        pids = [int(pid) for pid in json.loads(parent.stdout.readline()).values()]
        assert alive(pids) == pids
        everything = descendants(parent.pid)
        assert set(everything) >= set(pids)
        parent.kill()
    return everything


def test_a_killed_parent_leaves_no_process(tmp_path):
    """SIGKILL leaves no time to clean up, so the kernel does it."""
    pids = killed(_PARENT, tmp_path)
    wait_for("the end of the child", lambda: not alive(pids), 30)


def test_a_program_that_ends_is_reported_with_its_last_words(tmp_path):
    """Whoever waits for it learns why, and where the whole log is."""
    processes = Processes(tmp_path)
    processes.start("broken", "/bin/sh", "-c", "echo no such flag; exit 3")
    with pytest.raises(ProcessError) as error:
        processes.wait("broken", lambda: False)
    assert str(error.value) == (
        f"broken ended with exit code 3\nno such flag\n({tmp_path / 'broken.log'})"
    )
    processes.stop()


def test_a_program_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    """The next command must not wait for it for ever."""
    monkeypatch.setattr("megatron_eks.localcloud.kubernetes.processes._STOP_SECONDS", 0.2)
    processes = Processes(tmp_path)
    processes.start(
        "deaf", "/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    )
    processes.wait("deaf", lambda: "ready" in processes.tail("deaf"))
    pids = processes.pids.values()
    processes.stop()
    assert not alive(pids)


@pytest.fixture
def meks(programs, tmp_path) -> Callable[..., command.Done]:
    """Return a function that runs `meks local`, with room for a cluster of the test's own."""
    _, local = rehearsal_in(tmp_path, programs)
    return local


def connected(kubeconfig: Path) -> Client:
    """Return a client of what a kubeconfig leads to."""
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    return connect(cluster["server"], Path(cluster["certificate-authority"]), user["token"])


@pytest.mark.control_plane
def test_meks_local_runs_a_cluster_until_it_is_told_to_stop(meks):
    """`up` says where it is, `status` what runs, `down` takes all of it away; a job runs."""
    assert meks("status").returncode == 3
    done = meks("up", "-o", "json")
    assert done.returncode == 0, done.stderr
    places = json.loads(done.stdout)
    kubeconfig = Path(places["kubeconfig"])
    assert json.loads(kubeconfig.read_text())["current-context"] == "meks-local"
    assert kubeconfig.stat().st_mode & 0o077 == 0
    again = meks("up")
    assert again.stdout == f"export KUBECONFIG={kubeconfig}\n"
    status = json.loads(meks("status", "-o", "json").stdout)
    pids = [status["pid"], *status["pids"].values()]
    assert len(alive(pids)) == 8
    assert status["ports"]["kube-apiserver"] > 0
    assert places["aws_endpoint_url"] == f"http://127.0.0.1:{status['ports']['aws']}"
    aws = LocalAws(places["aws_endpoint_url"], keys.read(Path(places["aws_credentials_file"])))
    assert aws.client("sts", "us-east-2").get_caller_identity()["Account"] == aws.account

    client = connected(kubeconfig)
    job = jobs.training_job("by-hand")
    client.apply(job)
    jobs.wait_for_pods(client, job, 2, "Running")
    client.close()

    done = meks("down", KUBECONFIG=str(kubeconfig))
    assert done.returncode == 0
    assert "this shell still points at it; run: unset KUBECONFIG" in done.stderr
    wait_for("the end of all processes", lambda: not alive(pids), 30)
    assert meks("down").returncode == 0
    assert meks("status").returncode == 3


@pytest.mark.long
@pytest.mark.control_plane
def test_meks_local_runs_pods_where_it_is_asked_to(meks, emitted):
    """With `--nodes` a job ends by itself, because its pod has really run and ended."""
    done = meks("up", "--nodes", "1", "-o", "json")
    assert done.returncode == 0, done.stderr
    client = connected(Path(json.loads(done.stdout)["kubeconfig"]))
    names = {node["metadata"]["name"] for node in client.list("v1", "Node")}
    assert names == {"system-0", "system-1", "p4d-0"}
    (job,) = manifests.read_file(emitted / "validation" / "nvidia-smi-p4d.k8s.yaml")
    client.apply(job)
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]

    def succeeded() -> bool:
        status = client.get("batch/v1", "Job", name, namespace)["status"]
        return bool(status.get("succeeded"))

    wait_for("the job", succeeded, 60)
    client.close()
    pid = json.loads(meks("status", "-o", "json").stdout)["pid"]
    pids = [pid, *descendants(pid)]
    assert meks("down").returncode == 0
    wait_for("the end of all processes", lambda: not alive(pids), 30)


@pytest.mark.control_plane
@pytest.mark.usefixtures("programs")
def test_a_cluster_ends_with_its_supervisor(tmp_path):
    """Even where the supervisor is killed, which it cannot notice, and with the pods' processes."""
    pids = killed(_CLUSTER, tmp_path)
    assert len(pids) == 13
    wait_for("the end of the cluster", lambda: not alive(pids), 30)
