"""What pods ask of nodes and quotas."""

import pytest

from megatron_eks.config.codes import Code
from tests.guards.slips import ABSENT, in_manifest

_JOB = "PyTorchJob/megatron-cpt-techpulse"
_POD = "spec pytorchReplicaSpecs Master template spec"
_MAIN = f"{_POD} containers 0"
_LIMITS, _REQUESTS = f"{_MAIN} resources limits", f"{_MAIN} resources requests"
_QUOTA = "ResourceQuota/training"
_SCOPE = "spec scopeSelector matchExpressions 0"


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
        (f"{_POD} tolerations 0", ABSENT, "UNTOLERATED"),
        (f"{_POD} tolerations 0 key", "nvidia.com/gpus", "UNTOLERATED"),
        (f"{_POD} tolerations 1 tolerationSeconds", ABSENT, "TOLERATION"),
        (f"{_POD} tolerations 2", ABSENT, "TOLERATION"),
        (f"{_POD} nodeSelector", ABSENT, "NODE_SELECTOR"),
        (f"{_POD} nodeSelector megatron-eks/pool", "p4dd", "NODE_SELECTOR"),
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
        (_QUOTA, "spec hard", lambda old: {**old, "requests.nvidia.com/gpu": 7}, Code.ABOVE_QUOTA),
        (_QUOTA, "spec hard requests.nvidia.com/gpu", 15, Code.ABOVE_QUOTA),
        (_QUOTA, "spec hard requests.vpc.amazonaws.com/efa", 4, Code.ABOVE_QUOTA),
        (_QUOTA, f"{_SCOPE} values 0", "megatron-trainig", Code.MISSING_OBJECT),
    ],
)
def test_a_wrong_quota_is_reported(name, path, value, code):
    """Pods above a quota are never made, and one that counts nothing limits nothing."""
    assert code.name in in_manifest(name, path, value)


def test_another_size_is_right():
    """A quota may be for more pods."""
    assert in_manifest("ResourceQuota/pods", "spec hard pods", 500) == set()
