"""What a pod's processes see and do on a process node, as on a real one."""

import pytest

from megatron_eks.kubernetes.client import Object

pytestmark = pytest.mark.control_plane


@pytest.fixture
def configuration(cluster):
    """Make a ConfigMap and a Secret."""
    for kind, data in (("ConfigMap", {"colour": "blue"}), ("Secret", {"word": "c2VzYW1l"})):
        cluster.client.apply(
            {"apiVersion": "v1", "kind": kind, "metadata": _named("given"), "data": data}
        )


def _named(name: str) -> Object:
    return {"name": name, "namespace": "default"}


def _terminated(pod: Object) -> Object:
    found: Object = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return found


@pytest.mark.usefixtures("configuration")
def test_every_form_of_environment(cluster, run_pod, ended):
    """Values from fields, ConfigMaps and Secrets, and $(NAME) in them and in args."""
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x']"}}},
        {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "given", "key": "word"}}},
        {
            "name": "NONE",
            "valueFrom": {"configMapKeyRef": {"name": "no", "key": "no", "optional": True}},
        },
        {"name": "BOTH", "value": "$(WORD)-$(colour)-$(UNKNOWN)-$$(WORD)"},
    ]
    pod = run_pod(
        'echo "$NAME|$BOTH|${NONE-unset}|$1|$LABEL|$ADDRESS"; grep "$ADDRESS" /etc/hosts',
        container={
            "args": ["sh", "$(colour)"],
            "env": env,
            "envFrom": [{"configMapRef": {"name": "given"}}],
        },
    )
    pod = ended(pod)
    name, address = pod["metadata"]["name"], pod["status"]["podIP"]
    assert cluster.logs(pod, "main").splitlines() == [
        f"{name}|sesame-blue-$(UNKNOWN)-$(WORD)|unset|blue||{address}",
        f"{address}\t{name}",
    ]


@pytest.mark.usefixtures("configuration")
def test_every_kind_of_volume(cluster, run_pod, ended):
    """ConfigMap, Secret, projected and downward files, memory of a size, and read-only mounts."""
    token = {"serviceAccountToken": {"path": "token", "audience": "somebody"}}
    names = {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}
    volumes = [
        {"name": "config", "configMap": {"name": "given"}},
        {"name": "secret", "secret": {"secretName": "given", "defaultMode": 0o400}},
        {"name": "none", "secret": {"secretName": "missing", "optional": True}},
        {"name": "all", "projected": {"sources": [token, {"downwardAPI": names}]}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    mounts: list[Object] = [
        {"name": each["name"], "mountPath": f"/in/{each['name']}"} for each in volumes
    ]
    mounts[0] |= {"readOnly": True}
    mounts.append({"name": "scratch", "mountPath": "/sub", "subPath": "a/b"})
    pod = run_pod(
        """
        cat /in/config/colour /in/secret/word; echo
        stat -c %a /in/secret/word
        cat /in/all/name; echo
        cut -d . -f 2 /in/all/token | base64 -d 2>/dev/null | grep -o '"aud":."somebody"'
        df -k /in/memory | tail -1 | awk '{print $2}'
        touch /in/config/new 2>/dev/null || echo read-only
        touch /usr/new 2>/dev/null || echo read-only
        touch /sub/file && ls /in/scratch/a/b
        ls /in/none | wc -l
        """,
        container={"volumeMounts": mounts},
        volumes=volumes,
    )
    pod = ended(pod)
    assert cluster.logs(pod, "main").splitlines() == [
        "bluesesame",
        "400",
        pod["metadata"]["name"],
        '"aud":["somebody"',
        "8192",
        "read-only",
        "read-only",
        "file",
        "0",
    ]


def test_init_containers_run_one_after_the_other(cluster, run_pod, ended):
    """What one leaves in a volume, the next one finds."""
    volume = {"name": "work", "emptyDir": {}}
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/work"}], "image": "busybox"}
    inits = [
        {"name": "first", "command": ["sh", "-c", "echo 1 >> /work/order"], **mount},
        {"name": "last", "command": ["sh", "-c", "echo 2 >> /work/order"], **mount},
    ]
    pod = ended(run_pod("cat /work/order", container=mount, initContainers=inits, volumes=[volume]))
    assert cluster.logs(pod, "main").split() == ["1", "2"]


def test_a_failed_init_container_fails_the_pod(run_pod, ended):
    """Under `Never` the containers after it do not start."""
    init = {"name": "broken", "image": "busybox", "command": ["sh", "-c", "exit 7"]}
    pod = ended(run_pod("echo never", initContainers=[init]), "Failed")
    (status,) = pod["status"]["initContainerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 7
    assert "waiting" in pod["status"]["containerStatuses"][0]["state"]


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 3", 3), ("sleep 9 & kill -9 $!; wait $!", 137), ("exec nothing-of-this-name", 127)],
)
def test_exit_codes(run_pod, ended, script, code):
    """A program's own, or 128 and the signal that ended it."""
    assert _terminated(ended(run_pod(script), "Failed"))["exitCode"] == code


def test_a_program_that_does_not_exist_is_named(run_pod, ended):
    """The container's state has the reason a person needs."""
    pod = run_pod("", container={"command": ["no-such-program"]})
    state = _terminated(ended(pod, "Failed"))
    assert (state["exitCode"], state["reason"]) == (128, "StartError")
    assert "no-such-program" in state["message"]


def test_the_last_message_is_reported(run_pod, ended):
    """What a program writes to its termination log stands in the pod's status."""
    pod = ended(run_pod("echo out of luck > /dev/termination-log; exit 1"), "Failed")
    assert _terminated(pod)["message"] == "out of luck\n"


@pytest.mark.parametrize(
    ("container", "reason", "message"),
    [
        ({"image": "example.com/unknown:1"}, "ImagePullBackOff", "example.com/unknown:1"),
        (
            {"envFrom": [{"secretRef": {"name": "missing"}}]},
            "CreateContainerConfigError",
            'secret "missing" not found',
        ),
    ],
)
def test_a_container_that_cannot_start_says_why(run_pod, state, container, reason, message):
    """An image that nothing stands in for, a Secret that is not there."""
    status = state(run_pod("true", container=container), "waiting", reason)
    assert message in status["state"]["waiting"]["message"]


def test_restarts_come_later_and_later(run_pod, state, ended):
    """The first at once, the second after the back-off; each is counted, the last run kept."""
    counter = {"name": "work", "emptyDir": {}}
    pod = run_pod(
        "echo x >> /work/runs; test $(wc -l < /work/runs) -gt 2",
        container={"volumeMounts": [{"name": "work", "mountPath": "/work"}]},
        volumes=[counter],
        restartPolicy="OnFailure",
    )
    status = state(pod, "waiting", "CrashLoopBackOff")
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert ended(pod)["status"]["containerStatuses"][0]["restartCount"] == 2
