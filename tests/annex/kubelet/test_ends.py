"""How pods end, what they say meanwhile, and who learns of it."""

import time

import pytest

from megatron_eks.kubernetes.client import Object, wait_for
from tests.annex.pids import alive

pytestmark = pytest.mark.control_plane

_TRAP = "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
_DEAF = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done"


def _says(cluster, pod: Object, word: str) -> None:
    def said() -> bool:
        status = cluster.now(pod)["status"].get("containerStatuses", [{"state": {}}])[0]
        return "running" in status["state"] and word in cluster.logs(pod, "main")

    wait_for(f"the pod to say {word}", said, 60)


def _gone(cluster, pod: Object) -> bool:
    return cluster.client.find("v1", "Pod", pod["metadata"]["name"], "default") is None


def _delete(cluster, pod: Object) -> None:
    cluster.client.delete("v1", "Pod", pod["metadata"]["name"], "default")


def test_a_deleted_pod_may_end_by_itself(cluster, run_pod):
    """It is told with SIGTERM, and is gone from the API once its processes are."""
    pod = run_pod(_TRAP, terminationGracePeriodSeconds=60)
    _says(cluster, pod, "ready")
    pids = cluster.processes_of(cluster.now(pod), "trap")
    _delete(cluster, pod)
    wait_for("the pod to be gone", lambda: _gone(cluster, pod), 60)
    assert pids
    assert not alive(pids)


def test_a_pod_that_does_not_end_is_killed(cluster, run_pod):
    """When its grace period is over, and not before."""
    pod = run_pod(_DEAF, terminationGracePeriodSeconds=2)
    _says(cluster, pod, "ready")
    pids = cluster.processes_of(cluster.now(pod), "trap")
    began = time.monotonic()
    _delete(cluster, pod)
    wait_for("the pod to hear", lambda: "told" in cluster.logs(pod, "main"))
    wait_for("the pod to be gone", lambda: _gone(cluster, pod), 60)
    assert time.monotonic() - began >= 2
    assert pids
    assert not alive(pids)


def test_logs_through_the_api(cluster, run_pod, ended):
    """Of this run or the one before, whole or its end, with times or without."""
    pod = run_pod(
        "echo x >> /work/runs; echo one; echo two; test $(wc -l < /work/runs) -gt 1; echo again",
        container={"volumeMounts": [{"name": "work", "mountPath": "/work"}]},
        volumes=[{"name": "work", "emptyDir": {}}],
        restartPolicy="OnFailure",
    )
    pod = ended(pod)
    assert cluster.logs(pod, "main") == "one\ntwo\nagain\n"
    assert cluster.logs(pod, "main", previous="true") == "one\ntwo\n"
    assert cluster.logs(pod, "main", tailLines="1") == "again\n"
    assert cluster.logs(pod, "main", sinceSeconds="1000") == "one\ntwo\nagain\n"
    (line,) = cluster.logs(pod, "main", tailLines="1", timestamps="true").splitlines()
    stamp, word = line.split(" ")
    assert word == "again"
    assert stamp[:19] >= pod["metadata"]["creationTimestamp"][:19]
    assert (
        cluster.logs(pod, "main", sinceTime=pod["metadata"]["creationTimestamp"]).count("\n") == 3
    )


def test_logs_can_be_followed(cluster, run_pod):
    """Lines arrive as they are written, until the container ends."""
    pod = run_pod("echo first; sleep 1; echo second")
    _says(cluster, pod, "first")
    assert cluster.logs(pod, "main", follow="true") == "first\nsecond\n"


def test_a_service_leads_to_pods_that_run(cluster, run_pod, ended):
    """Their name resolves for others when their containers do."""
    cluster.client.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "door", "namespace": "default"},
            "spec": {"clusterIP": "None", "selector": {"app": "door"}, "ports": [{"port": 80}]},
        }
    )
    ended(run_pod("nslookup door"), "Failed")
    pod = run_pod("exec sleep 1000", labels={"app": "door"}, terminationGracePeriodSeconds=0)
    waiting = "until nslookup door.default.svc.cluster.local.; do sleep 0.1; done"
    looker = ended(run_pod(waiting))
    assert cluster.now(pod)["status"]["podIP"] in cluster.logs(looker, "main")


def test_an_api_server_that_restarts_is_told_everything(cluster, run_pod, state, ended):
    """What ended meanwhile is reported later, and new pods are seen again."""
    pod = run_pod(
        "while ! test -e /work/end; do sleep 0.05; done; exit 3",
        container={"volumeMounts": [{"name": "work", "mountPath": "/work"}]},
        volumes=[{"name": "work", "emptyDir": {}}],
    )
    state(pod, "running")
    pod, uid = cluster.now(pod), pod["metadata"]["uid"]
    (folder,) = (cluster.plane.folder / "nodes").glob(f"*/pods/{uid}/volumes/work")
    processes = cluster.plane.processes
    processes.kill("kube-apiserver")
    (folder / "end").touch()
    wait_for("the pod's end", lambda: not cluster.processes_of(pod, "work/end"))
    processes.restart("kube-apiserver")
    processes.wait("kube-apiserver", cluster.client.ready)
    status = ended(pod, "Failed")["status"]["containerStatuses"][0]
    assert status["state"]["terminated"]["exitCode"] == 3
    ended(run_pod("true"))
