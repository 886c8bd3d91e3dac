"""How long `meks status JOB` takes of a job on 256 nodes, beside its requests alone.

`python -m benchmarks.status`: the real API server with a job that the real operator has made, and
nodes that KWOK plays. The same requests, in the same order and as many at once, are sent without
anybody reading their answers; both in turn.
"""

import contextlib
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.operator_scale import Scale
from benchmarks.timing import ROOT, Row, verdict
from megatron_eks.kubernetes.client import ApiError, wait_for
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.jobs import status, status_view
from megatron_eks.ops.output import structured, table
from megatron_eks.plan.cluster.pools import POOL_LABEL
from megatron_eks.project import load_project

NODES = 256
RUNS = 11
MOST_SECONDS = 1.0

_NAME = "wide"
_SECONDS = 300


def rows() -> list[Row]:
    """Measure, and return what, how much, the bar, and whether it holds."""
    with tempfile.TemporaryDirectory() as folder:
        scale = Scale(Path(folder), NODES)
        try:
            _start(scale)
            whole, bare, computing = _measure(scale)
        finally:
            scale.plane.stop()
    found = f"{whole:.2f} s, its requests alone {bare:.2f} s (ratio {whole / bare:.1f})"
    # What else runs on the machine takes part in the times, and not in the processor's seconds.
    bar = f"{computing:.2f} s of computing beside them, at most {MOST_SECONDS:g}"
    return [(f"status of {NODES} ranks", found, bar, verdict(holds=computing <= MOST_SECONDS))]


def _start(scale: Scale) -> None:
    scale.operator.start()
    for each in scale.objects(_NAME, "pytorchjob"):
        scale.client.apply(each)
    wait_for("the pods", scale.all_run, _SECONDS)


def _measure(scale: Scale) -> tuple[float, float, float]:
    """Return medians: seconds of a status, of its requests, and of computing beside them."""
    project = load_project(ROOT / "cluster.yaml", datetime.now(tz=UTC).date())
    whole, bare, computing = [], [], []
    for _ in range(RUNS):
        begun, used = time.perf_counter(), time.process_time()
        state = status.read(scale.client, project, _NAME)
        text = structured(status_view.as_json(state), "json")
        text += "\n".join(status_view.lines(state))
        whole.append(time.perf_counter() - begun)
        used = time.process_time() - used
        if text.count('"Running"') != NODES + 1:
            raise SystemExit("not all ranks are shown as running")
        begun, idle = time.perf_counter(), time.process_time()
        _requests(scale)
        bare.append(time.perf_counter() - begun)
        computing.append(used - (time.process_time() - idle))
    return statistics.median(whole), statistics.median(bare), statistics.median(computing)


def _requests(scale: Scale) -> None:
    connection, folder = scale.client.connection, f"/api/v1/namespaces/{scale.namespace}/pods"
    job = f"/apis/kubeflow.org/v1/namespaces/{scale.namespace}/pytorchjobs/{_NAME}"
    connection.exchange("GET", job, None, {})
    targets = [
        f"/api/v1/nodes?labelSelector={POOL_LABEL}%3Dp4d",
        f"{folder}?labelSelector=training.kubeflow.org%2Fjob-name%3D{_NAME}",
    ]
    with ThreadPoolExecutor() as workers:
        list(workers.map(lambda each: connection.exchange("GET", each, None, {}), targets))
        ends = ("master-0", f"worker-{NODES - 2}", "master-0")
        list(workers.map(lambda pod: _log(scale, f"{folder}/{_NAME}-{pod}/log"), ends))


def _log(scale: Scale, path: str) -> None:
    # There is no kubelet; logs have connections of their own all the same.
    with contextlib.suppress(ApiError, UnreachableError):
        list(scale.client.stream(path, {"container": "pytorch"}, _SECONDS))


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table(("WHAT", "MEDIAN", "BAR", ""), rows()))
