"""A job is created although controllers hear of what stands beside it a moment later."""

from http import HTTPStatus
from typing import cast

import pytest

from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.ops.jobs import submit

_JOB = {"kind": "TrainJob", "metadata": {"name": "a", "namespace": "b"}, "spec": {}}


class _Refusing:
    """Refuses the first job, as a webhook does that asks its cache."""

    def __init__(self, words):
        self.refusals = [ApiError(HTTPStatus.FORBIDDEN, "Forbidden", words)]

    def create(self, manifest):
        """Refuse, or return what was made."""
        if self.refusals:
            raise self.refusals.pop()
        return manifest


@pytest.mark.parametrize(
    "words",
    [
        "admission webhook \"vtrainjob.kb.io\" denied the request: runtime 'a' not found",
        "not found: specified trainingRuntime must be created before the TrainJob is created",
    ],
)
def test_a_runtime_that_is_not_known_yet_is_waited_for(words):
    """It was applied an instant ago."""
    assert submit.create(cast("Client", _Refusing(words)), [], _JOB).name == "a"


def test_any_other_refusal_is_told():
    """Trying again would not help."""
    with pytest.raises(ApiError, match="quota"):
        submit.create(cast("Client", _Refusing("exceeded quota")), [], _JOB)
