"""What pods ask of nodes and quotas, and what they may do."""

import pytest

from megatron_eks.guards.codes import Rule
from tests.guards.slips import ABSENT, in_manifest

_JOB = "PyTorchJob/megatron-cpt-techpulse"
_POD = "spec pytorchReplicaSpecs Master template spec"
_MAIN = f"{_POD} containers 0"
_LIMITS, _REQUESTS = f"{_MAIN} resources limits", f"{_MAIN} resources requests"
_QUOTA = "ResourceQuota/training"
_DATA = "Job/data-prep-techpulse"
_DATA_POD = "spec template spec"
_DATA_MAIN = f"{_DATA_POD} containers 0"
_CONTEXT = f"{_DATA_MAIN} securityContext"
_HOST_PATH = {"name": "host", "hostPath": {"path": "/"}}
_ABOVE, _NEEDLESS = "POD_ABOVE_NAMESPACE", "NEEDLESS_PRIVILEGE"


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (f"{_LIMITS} nvidia.com/gpu", ABSENT, "EXTENDED_RESOURCES"),
        (f"{_REQUESTS} nvidia.com/gpu", ABSENT, "EXTENDED_RESOURCES"),
        (f"{_REQUESTS} memory", "2Ti", "REQUEST_ABOVE_LIMIT"),
        (f"{_REQUESTS} memory", "1 TiB", "BAD_QUANTITY"),
        (_REQUESTS, lambda old: {**old, "nvidia.com/gpus": 8}, "UNKNOWN_RESOURCE"),
        (f"{_REQUESTS} cpu", ABSENT, "NODE_ROOM"),
        (f"{_REQUESTS} cpu", "96", "NODE_ROOM"),
        (f"{_LIMITS} memory", ABSENT, "NODE_ROOM"),
        (f"{_LIMITS} vpc.amazonaws.com/efa", 3, "NODE_ROOM"),
        (f"{_LIMITS} hugepages-2Mi", ABSENT, "HUGE_PAGES"),
        (f"{_LIMITS} hugepages-2Mi", "20Gi", "HUGE_PAGES"),
        (f"{_LIMITS} vpc.amazonaws.com/efa", ABSENT, "EFA_NOT_REQUESTED"),
        (f"{_POD} volumes 1 emptyDir medium", ABSENT, "SHARED_MEMORY"),
        (f"{_MAIN} volumeMounts 1", ABSENT, "SHARED_MEMORY"),
        (f"{_POD} volumes 1 emptyDir sizeLimit", "1007616Mi", "TMPFS_ABOVE_MEMORY"),
        (f"{_POD} volumes 1 emptyDir sizeLimit", "64Mi", "SHARED_MEMORY"),
        (f"{_POD} tolerations 0", ABSENT, "UNTOLERATED"),
        (f"{_POD} tolerations 0 key", "nvidia.com/gpus", "UNTOLERATED"),
        (f"{_POD} tolerations 1 tolerationSeconds", ABSENT, "TOLERATION"),
        (f"{_POD} tolerations 2", ABSENT, "TOLERATION"),
        (f"{_POD} tolerations 1 tolerationSeconds", 31, "TOLERATION"),
        (f"{_POD} tolerations 0 key", ABSENT, "TOLERATION"),
        (f"{_POD} nodeSelector", ABSENT, "NODE_SELECTOR"),
        (f"{_MAIN} image", "example.com:5000/team/megatron", "UNPINNED_IMAGE"),
        (f"{_MAIN} image", "example.com/megatron@sha256:12", "UNPINNED_IMAGE"),
        (f"{_MAIN} image", ABSENT, "UNPINNED_IMAGE"),
        (f"{_POD} dnsPolicy", "Default", "HOST_NETWORK_DNS"),
        (f"{_POD} terminationGracePeriodSeconds", 30, "IDLE"),
        (f"{_POD} priorityClassName", ABSENT, "IDLE"),
    ],
)
def test_mistakes(place, value, code):
    """A pod that Kubernetes refuses, that waits for ever, or that wastes its node."""
    assert code in in_manifest(_JOB, place, value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (f"{_POD} tolerations", lambda old: [*old, {"key": "team", "operator": "Exists"}]),
        (f"{_POD} tolerations", [{"operator": "Exists"}]),
        (f"{_POD} volumes 1 emptyDir sizeLimit", "64Gi"),
        (f"{_POD} terminationGracePeriodSeconds", 900),
    ],
)
def test_right_variations(place, value):
    """Another size or image of somebody's own is no mistake; a warning may remain."""
    assert in_manifest(_JOB, place, value) <= {"TOLERATION", "REPLICAS_DIFFER"}


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_QUOTA, "spec hard", lambda old: {**old, "requests.nvidia.com/gpu": 7}, Rule.ABOVE_QUOTA),
        (_QUOTA, "spec hard requests.nvidia.com/gpu", 15, Rule.ABOVE_QUOTA),
        (_QUOTA, "spec hard requests.vpc.amazonaws.com/efa", 4, Rule.ABOVE_QUOTA),
    ],
)
def test_a_wrong_quota_is_reported(name, path, value, code):
    """Pods above a quota are never made."""
    assert code.name in in_manifest(name, path, value)


def test_another_size_is_right():
    """A quota may be for more pods."""
    assert in_manifest("ResourceQuota/pods", "spec hard pods", 500) == set()


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (f"{_CONTEXT} allowPrivilegeEscalation", ABSENT, _ABOVE),
        (f"{_CONTEXT} capabilities drop", [], _ABOVE),
        (f"{_CONTEXT} capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, _ABOVE),
        (f"{_CONTEXT} privileged", True, _NEEDLESS),
        (f"{_CONTEXT} readOnlyRootFilesystem", ABSENT, _NEEDLESS),
        (f"{_DATA_POD} securityContext runAsNonRoot", ABSENT, _ABOVE),
        (f"{_DATA_POD} securityContext runAsUser", 0, _ABOVE),
        (f"{_DATA_POD} securityContext runAsUser", ABSENT, "REFUSED_IN_POD"),
        (f"{_DATA_POD} securityContext runAsGroup", ABSENT, "FILE_OWNERS"),
        (f"{_DATA_POD} securityContext seccompProfile type", "Unconfined", _ABOVE),
        (f"{_DATA_POD} hostNetwork", True, _ABOVE),
        (f"{_DATA_POD} volumes", lambda old: [*old, _HOST_PATH], _ABOVE),
        (f"{_DATA_MAIN} ports", [{"containerPort": 23456, "hostPort": 23456}], _ABOVE),
        (f"{_DATA_POD} automountServiceAccountToken", True, _NEEDLESS),
        (f"{_DATA_POD} serviceAccountName", ABSENT, "ROLE_UNREAD"),
    ],
)
def test_jobs(place, value, code):
    """The namespace's level refuses the pod, or it may do what it never needs."""
    assert code in in_manifest(_DATA, place, value)


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
    assert in_manifest(_DATA, _CONTEXT, lambda old: {**old, **user}) == set()
