"""`meks status --nodes`: what runs in the containers of ranks, and ranks that do not answer."""

import time
from functools import partial

import pytest

from megatron_eks.ops.jobs import gpu_use, overview, status, status_view, watching
from tests import schemas
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.consoles import console, written

pytestmark = pytest.mark.control_plane

_COUNTERS = "/shared/logs/devices/efa"

# At most half a gigabyte a second out and a quarter in, over two ports.
_SCRIPT = f"""
if [ "$PET_NODE_RANK" = 0 ]; then
  n=0
  for port in rdmap0 rdmap1; do mkdir -p {_COUNTERS}/$port/ports/1/hw_counters; done
  mkdir -p "$(dirname "$NCCL_DEBUG_FILE")"
  echo 'NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 4 nics)' \\
    > "$(echo "$NCCL_DEBUG_FILE" | sed 's/%[hp]/1/g')"
  while true; do
    n=$((n + 25000000))
    for port in rdmap0 rdmap1; do
      folder={_COUNTERS}/$port/ports/1/hw_counters
      echo $n > $folder/next; mv $folder/next $folder/tx_bytes
      echo $((n / 2)) > $folder/next; mv $folder/next $folder/rx_bytes
    done
    sleep 0.1
  done
fi
sleep 300
"""


@pytest.fixture
def three(cluster, submit, monkeypatch):
    """Run three ranks, of which one has devices, one hangs and one has lost its driver."""
    ask = partial(gpu_use.ask, rank_seconds=6, devices=str(_COUNTERS))
    monkeypatch.setattr(gpu_use, "ask", ask)
    job = runs.job("devices", 3, image=runs.SMALL)
    for pod in jobs.pod_specs(job):
        (container,) = pod["containers"]
        container |= {"command": ["sh", "-c", _SCRIPT], "args": []}
    submit(job)
    jobs.wait_for_pods(cluster.client, job, 3, "Running")
    time.sleep(1)
    return job


@pytest.fixture
def shown(cluster):
    """Return a function that prints what is seen."""

    def call(see, output):
        told = console()
        assert watching.show(cluster.client, see, watching.Options(output), told) == 0
        return written(told)

    return call


@pytest.mark.usefixtures("three")
def test_devices_by_rank_and_ranks_that_do_not_answer(cluster, loaded, shown):
    """One that hangs holds up neither the others nor the command."""
    started = time.monotonic()
    state = status.read(cluster.client, loaded, "devices", nodes=True)
    assert time.monotonic() - started < 15
    see = lambda: status_view.view(state)  # noqa: E731
    found = schemas.read("status", shown(see, "json"))
    ranks = {rank["rank"]: (node, rank) for node in found["nodes"] for rank in node["ranks"]}
    assert [ranks[number][0]["node"] for number in range(3)] == [
        each["node"] for each in found["ranks"]
    ]
    assert {node["state"] for node, _ in ranks.values()} == {"ready"}
    good = ranks[0][1]
    assert good["gpus"] == [
        {"index": 0, "use_percent": 97, "memory_used_mib": 36000, "memory_total_mib": 40960},
        {"index": 1, "use_percent": 3, "memory_used_mib": None, "memory_total_mib": 40960},
    ]
    # A busy machine counts slower than it was told to.
    assert 0.02 < good["efa_sent_gb_s"] < 0.6
    assert good["efa_received_gb_s"] == pytest.approx(good["efa_sent_gb_s"] / 2, rel=0.2)
    assert good["networks"] == ["efa"]
    assert ranks[1][1]["note"] == "no answer within 6 s"
    assert ranks[2][1]["note"].startswith("NVIDIA-SMI has failed")
    table = shown(see, "table")
    assert "3-97 %  35.2 of 40.0 GiB  0." in table
    assert "devices rank 1: no answer within 6 s" in table


@pytest.mark.usefixtures("three")
def test_nodes_of_the_cluster(cluster, loaded, shown):
    """Those without a rank are there too."""
    found = overview.read(cluster.client, loaded.cluster, nodes=True)
    told = schemas.read("status", shown(lambda: overview.view(found), "json"))
    by_ranks = sorted(len(node["ranks"]) for node in told["nodes"])
    assert by_ranks[-3:] == [1, 1, 1]
    assert by_ranks[0] == 0
    assert {node["pool"] for node in told["nodes"]} == {"p4d"}
