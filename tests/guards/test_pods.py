"""What pods ask of nodes and quotas, and what they may do."""

import pytest

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
    ("name", "place", "value", "code"),
    [
        (_JOB, f"{_LIMITS} nvidia.com/gpu", ABSENT, "EXTENDED_RESOURCES"),
        (_JOB, f"{_REQUESTS} nvidia.com/gpu", ABSENT, "EXTENDED_RESOURCES"),
        (_JOB, f"{_REQUESTS} memory", "2Ti", "REQUEST_ABOVE_LIMIT"),
        (_JOB, f"{_REQUESTS} memory", "1 TiB", "BAD_QUANTITY"),
        (_JOB, _REQUESTS, lambda old: {**old, "nvidia.com/gpus": 8}, "UNKNOWN_RESOURCE"),
        (_JOB, f"{_REQUESTS} cpu", ABSENT, "NODE_ROOM"),
        (_JOB, f"{_REQUESTS} cpu", "96", "NODE_ROOM"),
        (_JOB, f"{_LIMITS} memory", ABSENT, "NODE_ROOM"),
        (_JOB, f"{_LIMITS} vpc.amazonaws.com/efa", 3, "NODE_ROOM"),
        (_JOB, f"{_LIMITS} hugepages-2Mi", ABSENT, "HUGE_PAGES"),
        (_JOB, f"{_LIMITS} hugepages-2Mi", "20Gi", "HUGE_PAGES"),
        (_JOB, f"{_LIMITS} hugepages-2Mi", "5120", "HUGE_PAGES"),
        ("PriorityClass/megatron-training", "value", 100, "MANIFEST_VALUE"),
        (_JOB, f"{_LIMITS} vpc.amazonaws.com/efa", ABSENT, "EFA_NOT_REQUESTED"),
        (_JOB, f"{_POD} volumes 1 emptyDir medium", ABSENT, "SHARED_MEMORY"),
        (_JOB, f"{_MAIN} volumeMounts 1", ABSENT, "SHARED_MEMORY"),
        (_JOB, f"{_POD} volumes 1 emptyDir sizeLimit", "1007616Mi", "TMPFS_ABOVE_MEMORY"),
        (_JOB, f"{_POD} volumes 1 emptyDir sizeLimit", "64Mi", "SHARED_MEMORY"),
        (_JOB, f"{_POD} tolerations 0", ABSENT, "UNTOLERATED"),
        (_JOB, f"{_POD} tolerations 0 key", "nvidia.com/gpus", "UNTOLERATED"),
        (_JOB, f"{_POD} tolerations 1 tolerationSeconds", ABSENT, "TOLERATION"),
        (_JOB, f"{_POD} tolerations 2", ABSENT, "TOLERATION"),
        (_JOB, f"{_POD} tolerations 1 tolerationSeconds", 31, "TOLERATION"),
        (_JOB, f"{_POD} tolerations 0 key", ABSENT, "TOLERATION"),
        (_JOB, f"{_POD} nodeSelector", ABSENT, "NODE_SELECTOR"),
        (_JOB, f"{_MAIN} image", "example.com:5000/team/megatron", "UNPINNED_IMAGE"),
        (_JOB, f"{_MAIN} image", "example.com/megatron@sha256:12", "UNPINNED_IMAGE"),
        (_JOB, f"{_MAIN} image", ABSENT, "UNPINNED_IMAGE"),
        (_JOB, f"{_POD} dnsPolicy", "Default", "HOST_NETWORK_DNS"),
        (_JOB, f"{_POD} terminationGracePeriodSeconds", 30, "IDLE"),
        (_JOB, f"{_POD} priorityClassName", ABSENT, "IDLE"),
        (_QUOTA, "spec hard", lambda old: {**old, "requests.nvidia.com/gpu": 7}, "ABOVE_QUOTA"),
        (_QUOTA, "spec hard requests.nvidia.com/gpu", 15, "ABOVE_QUOTA"),
        (_QUOTA, "spec hard", {"nvidia.com/gpu": 16}, "ABOVE_QUOTA"),
        (_JOB, f"{_MAIN} livenessProbe", {"exec": {"command": ["true"]}}, "IDLE"),
        (_QUOTA, "spec hard requests.vpc.amazonaws.com/efa", 4, "ABOVE_QUOTA"),
        (_DATA, f"{_CONTEXT} allowPrivilegeEscalation", ABSENT, _ABOVE),
        (_DATA, f"{_CONTEXT} capabilities drop", [], _ABOVE),
        (_DATA, f"{_CONTEXT} capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, _ABOVE),
        (_DATA, f"{_CONTEXT} privileged", True, _NEEDLESS),
        (_DATA, f"{_CONTEXT} readOnlyRootFilesystem", ABSENT, _NEEDLESS),
        (_DATA, f"{_DATA_POD} securityContext runAsNonRoot", ABSENT, _ABOVE),
        (_DATA, f"{_DATA_POD} securityContext runAsUser", 0, _ABOVE),
        (_DATA, f"{_DATA_POD} securityContext runAsUser", ABSENT, "REFUSED_IN_POD"),
        (_DATA, f"{_DATA_POD} securityContext runAsGroup", ABSENT, "FILE_OWNERS"),
        (_DATA, f"{_DATA_POD} securityContext seccompProfile type", "Unconfined", _ABOVE),
        (_DATA, f"{_DATA_POD} hostNetwork", True, _ABOVE),
        (_DATA, f"{_DATA_POD} volumes", lambda old: [*old, _HOST_PATH], _ABOVE),
        (_DATA, f"{_DATA_MAIN} ports", [{"containerPort": 23456, "hostPort": 23456}], _ABOVE),
        (_DATA, f"{_DATA_POD} automountServiceAccountToken", True, _NEEDLESS),
        (_DATA, f"{_DATA_POD} serviceAccountName", ABSENT, "ROLE_UNREAD"),
    ],
)
def test_mistakes(name, place, value, code):
    """A pod that is refused or waits for ever, wastes its node, or may do what it never needs."""
    assert code in in_manifest(name, place, value)


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


def test_another_size_is_right():
    """A quota may be for more pods."""
    assert in_manifest("ResourceQuota/pods", "spec hard pods", 500) == set()


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
