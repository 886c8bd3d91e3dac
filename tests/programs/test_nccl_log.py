"""What is concluded from NCCL's own log, on logs in the shapes of public ones."""

import pytest

from megatron_eks.programs.start import nccl_log
from tests.programs import nccl_logs as logs

_CHECK = "run efa_check on this node, which says what is missing"
_INSTALL = "install it (AWS's EFA installer), and put its directory in LD_LIBRARY_PATH"


def _judge(text: str, expected: int, seconds: float | None = None) -> tuple[str, str | None]:
    state, finding = nccl_log.judge(text, expected, gpu_direct=True, silent_seconds=seconds)
    return state, None if finding is None else str(finding)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(logs.P4D_OLD, 4, id="p4d, a plugin that does not count"),
        pytest.param(logs.P5, 32, id="p5"),
        pytest.param(logs.P5EN, 16, id="p5en"),
        pytest.param(logs.P5EN, 8, id="more than expected"),
    ],
)
def test_good_networks(text, expected):
    """EFA with all interfaces."""
    assert _judge(text, expected, seconds=600) == ("good", None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            logs.NO_DEVICES,
            (
                "error NCCL's network: NCCL uses Socket, although aws-ofi-nccl 1.16.2 was loaded "
                f"(NET/OFI No eligible providers were found) - {_CHECK}"
            ),
        ),
        (
            logs.NO_PLUGIN,
            (
                "error NCCL's network: NCCL uses Socket, and aws-ofi-nccl was not loaded "
                f"(NET/Plugin: Could not find: libnccl-net.so) - {_INSTALL}"
            ),
        ),
        (
            logs.TCP_PROVIDER,
            (f"error NCCL's network: libfabric uses its provider tcp instead of efa - {_CHECK}"),
        ),
        (
            logs.P5EN_PART,
            (
                "error NCCL's network: aws-ofi-nccl found 15 EFA interfaces, 16 expected - "
                "run efa_check on this node; else replace the node"
            ),
        ),
        (
            logs.P5 + logs.NO_DEVICES,
            (
                "error NCCL's network: NCCL uses Socket, although aws-ofi-nccl 1.18.0 was loaded "
                f"(NET/OFI No eligible providers were found) - {_CHECK}"
            ),
        ),
    ],
)
def test_bad_networks(text, said):
    """TCP in any communicator, too few interfaces, another provider: each with its remedy."""
    assert _judge(text, 16) == ("bad", said)


@pytest.mark.parametrize("text", ["", logs.HEAD, logs.P5[: logs.P5.index("Using network")]])
def test_an_unfinished_log_is_waited_for(text):
    """Until the window is over, what is missing may still come."""
    assert _judge(text, 32) == ("waiting", None)


@pytest.mark.parametrize(
    ("text", "found"), [("", "said nothing"), (logs.HEAD, "began, and chose no network")]
)
def test_silence_is_bad_in_the_end(text, found):
    """A rank that never reaches NCCL holds up all others."""
    state, said = _judge(text, 32, seconds=600)
    assert state == "bad"
    assert said is not None
    assert said.startswith(f"error NCCL's log: NCCL {found} within 600 s of the rank's start - ")


def test_missing_gpu_direct_is_a_warning():
    """It is slower and it is EFA; where the instance has none, nothing is said."""
    state, finding = nccl_log.judge(logs.NO_GPU_DIRECT, 16, gpu_direct=True)
    assert (state, finding is not None and finding.level) == ("good", "warning")
    assert nccl_log.judge(logs.NO_GPU_DIRECT, 16, gpu_direct=False) == ("good", None)


def test_connections_settle_the_verdict():
    """Before the first of them GPUDirect RDMA is not known."""
    assert _judge(logs.P5[: logs.P5.index("Channel")], 32) == ("waiting", None)
