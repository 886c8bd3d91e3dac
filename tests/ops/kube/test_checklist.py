"""The checklist of a running job, over what was read of it."""

import pytest

from megatron_eks.ops.checks import judged
from megatron_eks.ops.jobs.checklist import CHECKLIST, Run
from megatron_eks.ops.kube.jobs import Rank
from megatron_eks.ops.kube.pods import PodState

_PINNED = f"registry.example/megatron@sha256:{'a' * 64}"
_LOG = "".join(f"step {step}/8 | loss {9 - step}.0 | x\n" for step in range(1, 9)) + (
    "successfully saved checkpoint from iteration 8\n"
)


def pod(**changes):
    """Return a pod of a whole p4d node."""
    devices = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4"}
    container = {
        "image": _PINNED,
        "command": ["torchrun", "-m", "megatron_eks.programs.train_megatron"],
        "resources": {"limits": devices, "requests": devices},
    }
    return {"containers": [container | changes]}


@pytest.fixture
def checked():
    """Return a function that judges a job of two ranks."""

    def call(log=_LOG, phase="Running", reason="", **changes):
        ranks = [
            Rank(
                number,
                PodState(f"r{number}", "n", phase, ready=True, restarts=0, reason=reason),
                None,
            )
            for number in range(2)
        ]
        results = judged(CHECKLIST, Run("job", ranks, pod(**changes), log))
        return {each.name: each for each in results if each.verdict != "passed"}

    return call


def test_a_healthy_run_passes_every_item(checked):
    """Nothing is left over."""
    assert checked() == {}


def test_an_image_by_tag_is_a_warning(checked):
    """Ranks that restart could run another one."""
    assert checked(image="registry.example/megatron:latest").keys() == {"image pinned"}


def test_a_rank_that_does_not_run_fails_with_its_reason(checked):
    """Such as an image that cannot be pulled."""
    found = checked(phase="Pending", reason="pytorch: ImagePullBackOff: not found")
    assert found.keys() == {"all ranks run"}
    assert found["all ranks run"].findings[0].found == (
        "rank 0 is Pending: pytorch: ImagePullBackOff: not found"
    )


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n", None),
        ("NCCL INFO Using network Socket\n", "failed"),
        ("NCCL INFO NET/OFI Selected Provider is tcp (found 1 nics)\n", "failed"),
    ],
)
def test_the_log_tells_what_nccl_talks_over(checked, line, state):
    """Whatever else the job has done."""
    found = checked(log=line + _LOG, command=["torchrun", "their.py"])
    assert getattr(found.get("NCCL over EFA"), "verdict", None) == state


def test_a_program_of_others_that_says_nothing_is_not_checked(checked):
    """Ours end a job whose NCCL does not use EFA; of others nobody knows."""
    found = checked(command=["torchrun", "their.py"])["NCCL over EFA"]
    assert (found.verdict, "set NCCL_DEBUG" in found.findings[0].remedy) == ("not checked", True)
    # What the plan sets already, it tells nobody to set.
    log = [{"name": "NCCL_DEBUG_FILE", "value": "/tmp/nccl.%h.%p.log"}]  # noqa: S108 -- in the pod
    found = checked(command=["torchrun", "their.py"], env=log)["NCCL over EFA"]
    assert found.findings[0].remedy.endswith("NCCL_DEBUG_FILE: meks shell job")


def test_a_loss_that_rises_is_told(checked):
    """Late in a run it may; nan never."""
    rising = "".join(f"step {step}/8 | loss {step}.0 | x\n" for step in range(1, 9))
    assert checked(log=rising)["loss falls"].verdict == "warning"
    assert checked(log=rising + "step 9/9 | loss nan | x\n")["loss falls"].verdict == "failed"


def test_a_run_without_steps_or_checkpoints_is_not_checked_yet(checked):
    """It has begun a minute ago."""
    found = checked(log="")
    assert {name: each.verdict for name, each in found.items()} == {
        "NCCL over EFA": "not checked",
        "loss falls": "not checked",
        "checkpoints written": "not checked",
    }
