"""What pods may do."""

import pytest

from tests.guards.slips import ABSENT, in_manifest

_JOB = "Job/data-prep-techpulse"
_POD = "spec template spec"
_MAIN = f"{_POD} containers 0"
_CONTEXT = f"{_MAIN} securityContext"
_HOST_PATH = {"name": "host", "hostPath": {"path": "/"}}
_ABOVE, _NEEDLESS = "POD_ABOVE_NAMESPACE", "NEEDLESS_PRIVILEGE"


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (f"{_CONTEXT} allowPrivilegeEscalation", ABSENT, _ABOVE),
        (f"{_CONTEXT} capabilities drop", [], _ABOVE),
        (f"{_CONTEXT} capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, _ABOVE),
        (f"{_CONTEXT} privileged", True, _NEEDLESS),
        (f"{_CONTEXT} readOnlyRootFilesystem", ABSENT, _NEEDLESS),
        (f"{_POD} securityContext runAsNonRoot", ABSENT, _ABOVE),
        (f"{_POD} securityContext runAsUser", 0, _ABOVE),
        (f"{_POD} securityContext runAsUser", ABSENT, "REFUSED_IN_POD"),
        (f"{_POD} securityContext runAsGroup", ABSENT, "FILE_OWNERS"),
        (f"{_POD} securityContext fsGroup", 10001, "FILE_OWNERS"),
        (f"{_POD} securityContext seccompProfile type", "Unconfined", _ABOVE),
        (f"{_POD} hostNetwork", True, _ABOVE),
        (f"{_POD} volumes", lambda old: [*old, _HOST_PATH], _ABOVE),
        (f"{_MAIN} ports", [{"containerPort": 23456, "hostPort": 23456}], _ABOVE),
        (f"{_POD} automountServiceAccountToken", True, _NEEDLESS),
        (f"{_POD} serviceAccountName", ABSENT, "ROLE_UNREAD"),
    ],
)
def test_jobs(place, value, code):
    """The namespace's level refuses the pod, or it may do what it never needs."""
    assert code in in_manifest(_JOB, place, value)


def test_the_operator_needs_its_token():
    """Without a token it sees no job."""
    mounted = "spec template spec automountServiceAccountToken"
    assert "RIGHTS" in in_manifest("Deployment/training-operator", mounted, ABSENT)


def test_a_namespace_has_a_level():
    """A level that nobody knows, and none."""
    label = "metadata labels pod-security.kubernetes.io/enforce"
    namespace = "Namespace/megatron-workshop"
    assert in_manifest(namespace, label, "strict") == {"NAMESPACE_LEVEL"}
    assert in_manifest(namespace, label, ABSENT) == {"NAMESPACE_LEVEL"}


def test_a_container_may_say_it_itself():
    """What a container sets counts before its pod."""
    user = {"runAsUser": 10001, "runAsGroup": 10001, "runAsNonRoot": True}
    whole = f"{_CONTEXT}"
    assert in_manifest(_JOB, whole, lambda old: {**old, **user}) == set()
