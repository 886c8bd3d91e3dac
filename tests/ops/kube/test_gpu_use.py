"""What containers say of their devices, and containers that say nothing."""

import ssl
import threading
import time

import pytest

from megatron_eks.kubernetes import execution
from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.kubernetes.connection import Connection, Credentials, UnreachableError
from megatron_eks.ops.jobs import gpu_use
from megatron_eks.ops.jobs.gpu_use import Gpu


@pytest.fixture
def answers(monkeypatch):
    """Let pods answer by their names; return how many were asked at once at most."""
    state = {"now": 0, "most": 0}
    lock = threading.Lock()

    def run(_client, _namespace, pod, _container, _command, timeout):
        with lock:
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
        try:
            if pod.startswith("hangs"):
                time.sleep(timeout)
                raise TimeoutError
            if pod.startswith("opens"):
                # A connection that opens for ever has another limit.
                time.sleep(30)
            if pod == "forbidden":
                raise ApiError(403, "Forbidden", "forbidden: User x cannot create pods/exec")
            if pod == "gone":
                raise ApiError(404, "NotFound", 'pods "gone" not found')
            if pod == "cut":
                raise UnreachableError("https://server: the connection was lost")
            time.sleep(0.02)
            return execution.Result(0, f"gpu 0, {pod}, 10, 20\n".encode(), b"")
        finally:
            with lock:
                state["now"] -= 1

    monkeypatch.setattr(execution, "run", run)
    return state


def ask(*pods, **options):
    """Ask pods by name."""
    nobody = Client(Connection("https://127.0.0.1:1", ssl.create_default_context(), Credentials()))
    return gpu_use.ask(nobody, "n", pods, **options)


def test_sixteen_at_once_and_each_its_own(answers):
    """No rank has another's numbers, whatever the order of the answers."""
    pods = [str(number) for number in range(100)]
    found = ask(*pods)
    assert answers["most"] == 16
    assert {pod: use.gpus for pod, use in found.items()} == {
        pod: (Gpu(0, int(pod), 10, 20),) for pod in pods
    }


@pytest.mark.usefixtures("answers")
def test_ranks_that_hang_hold_up_nobody():
    """Each for its own time, all of them for no longer than is said."""
    pods = [*(f"hangs-{number}" for number in range(14)), *map(str, range(30))]
    started = time.monotonic()
    found = ask(*pods, rank_seconds=1, all_seconds=20)
    assert time.monotonic() - started < 4
    assert {found[pod].note for pod in pods[:14]} == {"no answer within 1 s"}
    assert all(found[pod].gpus for pod in pods[14:])


@pytest.mark.usefixtures("answers")
def test_connections_that_never_open_end_with_the_whole():
    """Nothing waits for their threads."""
    started = time.monotonic()
    found = ask(*(f"opens-{number}" for number in range(40)), "7", all_seconds=1)
    assert time.monotonic() - started < 3
    assert {use.note for use in found.values()} == {"no answer within 1 s"}


@pytest.mark.usefixtures("answers")
def test_what_is_refused_is_said():
    """In few words where they are known, else in the server's."""
    found = ask("forbidden", "gone", "cut", "5")
    assert found["forbidden"].note == "you may not run commands in pods (pods/exec)"
    assert found["gone"].note == 'pods "gone" not found'
    assert found["cut"].note == "https://server: the connection was lost"
    assert found["5"].note == ""
    assert ask() == {}


def test_what_the_script_prints():
    """Two looks at the counters, in any number of ports; what makes no sense is left out."""
    use = gpu_use.read(
        "gpu 0, 99, 40000, 81559\ngpu 1, [N/A], 1, 81559\n"
        "at 100.00\nefa tx_bytes 1000000000\nefa tx_bytes 5\nefa rx_bytes 0\n"
        "at 102.00\nefa tx_bytes 3000000000\nefa tx_bytes 2000000005\nefa rx_bytes 0\n"
        "nccl Provider is efa\nnccl Using network AWS Libfabric\nnonsense\nat x\nefa y z\n"
    )
    assert use.gpus == (Gpu(0, 99, 40000, 81559), Gpu(1, None, 1, 81559))
    assert (use.efa_sent_gb_s, use.efa_received_gb_s) == (2.0, 0.0)
    assert use.efa == "2.0/0.0 GB/s"
    assert use.networks == ("efa", "AWS Libfabric")
    assert use.note == ""


def test_a_reset_counter_and_no_counters():
    """A device that was reset has sent nothing less than nothing."""
    use = gpu_use.read("at 1\nefa tx_bytes 9\nefa rx_bytes 9\nat 2\nefa tx_bytes 1\nefa rx_bytes 1")
    assert (use.efa_sent_gb_s, use.efa_received_gb_s) == (0, 0)
    alone = gpu_use.read("at 1\nat 2\nnccl Using network Socket\n")
    assert (alone.efa_sent_gb_s, alone.efa) == (None, "Socket")
    assert gpu_use.read("").efa == ""


def test_a_driver_that_is_gone():
    """Its words stand in the place of numbers."""
    use = gpu_use.read("gpu NVIDIA-SMI has failed because it couldn't\ngpu \nat 1\nat 2\n")
    assert use.gpus == ()
    assert use.note == "NVIDIA-SMI has failed because it couldn't"
