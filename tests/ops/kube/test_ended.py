"""What a record tells of pods that are gone: how they ended, and which left nothing."""

import pytest

from megatron_eks.ops.jobs import ended
from megatron_eks.ops.kube.jobs import Rank

AT = "2026-11-22T10:00:00Z"
START = f"record: start 0001, {AT}"
REASON = "error /shared/x: missing - bring it"


@pytest.mark.parametrize(
    ("own", "phase", "reason"),
    [
        ([START, "x", f"record: ended with exit code 0, {AT}"], "Succeeded", ""),
        (
            [START, f"record: ended with exit code 4, {AT}: {REASON}"],
            "Failed",
            f"pytorch: exit code 4: {REASON}",
        ),
        ([START, f"record: was ended by signal 9, {AT}"], "Failed", "pytorch: exit code 137"),
        ([START, "x"], "Failed", f"pytorch: exit code 137 (Killed): {ended._BROKEN_OFF}"),  # noqa: SLF001 -- the text itself
        (
            [START, f"record: ended with exit code 4, {AT}: {REASON}", START, "starts again"],
            "Failed",
            f"pytorch: exit code 4: {REASON}",
        ),
        (
            [
                *(START, f"record: ended with exit code 4, {AT}: {REASON}"),
                *(START, f"record: ended with exit code 143, {AT}"),
            ],
            "Failed",
            f"pytorch: exit code 4: {REASON}",
        ),
    ],
    ids=[
        "success",
        "refused",
        "killed",
        "broken off",
        "given up as it started again",
        "told to end",
    ],
)
def test_a_rank_ends_as_its_record_says(own, phase, reason):
    """Beside it, a rank of which nothing is known stays without a pod."""
    there = [Rank(0, None, None), Rank(1, None, None)]
    known = ended.ranks(None, there, [f"[0] {each}" for each in own])
    assert known[0].pod is not None
    assert (known[0].pod.phase, known[0].pod.reason) == (phase, reason)
    assert known[1].pod is None


def test_what_the_record_says_itself_is_no_line_of_the_program():
    """A diagnosis sees what ranks have printed, and their ends as those of pods."""
    assert ended.printed([f"[ 0] {START}", "[ 0] record of a run", "[10] x"]) == [
        *("[ 0] record of a run", "[10] x"),
    ]
