"""Quotas."""

import pytest

from megatron_eks.config.codes import Code
from tests.guards.slips import ABSENT, in_manifest, without

_QUOTA = "ResourceQuota/training"
_SCOPE = "spec scopeSelector matchExpressions 0"


@pytest.mark.parametrize(
    ("name", "path", "value", "code"),
    [
        (_QUOTA, "spec hard", {"requests.nvidia.com/gpus": 16}, Code.QUOTA_NAME),
        (_QUOTA, "spec hard requests.nvidia.com/gpu", 15, Code.ABOVE_QUOTA),
        (_QUOTA, "spec hard requests.vpc.amazonaws.com/efa", 4, Code.ABOVE_QUOTA),
        (_QUOTA, "spec scopeSelector", ABSENT, Code.QUOTA_NAME),
        (_QUOTA, f"{_SCOPE} operator", "NotIn", Code.QUOTA_NAME),
        (_QUOTA, f"{_SCOPE} values 0", "megatron-trainig", Code.MISSING_OBJECT),
    ],
)
def test_a_wrong_quota_is_reported(name, path, value, code):
    """Pods above a quota are never made, and one that counts nothing limits nothing."""
    assert code.name in in_manifest(name, path, value)


def test_a_quota_for_training_needs_one_for_the_rest():
    """The rest would take GPUs without limit."""
    assert Code.QUOTA_NAME.name in without("ResourceQuota/all-but-training")


def test_another_size_is_right():
    """A quota may be for more pods."""
    assert in_manifest("ResourceQuota/pods", "spec hard pods", 500) == set()
