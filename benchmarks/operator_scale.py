"""How long a job on a thousand nodes takes to run, with the operator's limits of our chart.

`python -m benchmarks.operator_scale`: the real control plane, scheduler and operator; KWOK plays
the kubelets. The operator is started in turn with the chart's own limits and with the best ones
found by hand, on one cluster with one job after another.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.timing import ROOT, verdict
from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Client, Object, wait_for
from megatron_eks.localcloud.kubernetes import build, nodes
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.operator import Operator, operator_file
from megatron_eks.ops.output import table
from megatron_eks.plan.cluster.pools import PoolPlan
from megatron_eks.project import load_project
from megatron_eks.synthesis import synthesise_manifests

NODES = 1000
RUNS = 2
RATIO = 1.2

# The quickest of those tried by hand: more requests, more threads, both, without limits.
BEST_BY_HAND = ("--kube-api-qps=1000", "--kube-api-burst=2000", "--controller-threads=16")

# The platform without pods of its own: three agents a node would be measured instead of the job.
_WITHOUT = {"DaemonSet", "Deployment", "Job"}
_JOB = "megatron-cpt-techpulse.k8s.yaml"
_SECONDS = 300
_POLL_SECONDS = 0.5

Row = tuple[str, str, str, str]


class Scale:
    """One cluster with many nodes, on which one job after another runs."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self.plane = ControlPlane(build.programs(os.environ, print), folder / "cluster")
        synthesise_manifests(ROOT / "cluster.yaml", folder / "dist")
        self._dist = folder / "dist"
        found = manifests.read_file(self._dist / "jobs" / _JOB)
        (self._job,) = (each for each in found if each["kind"] == "PyTorchJob")
        self.namespace = self._job["metadata"]["namespace"]
        self._pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self.plane.start()
        try:
            self._fill()
        except BaseException:
            self.plane.stop()
            raise

    @property
    def client(self) -> Client:
        """An administrator's client."""
        return self.plane.client

    def _fill(self) -> None:
        platform = self._dist / "platform"
        chart = manifests.read_file(operator_file(platform))
        self.operator = Operator(self.plane, chart)
        self.operator.install()
        self.operator.stop()
        plan = load_project(ROOT / "cluster.yaml", datetime.now(tz=UTC).date()).cluster
        (pool,) = plan.pools
        for each in manifests.read(platform):
            if each["kind"] not in _WITHOUT:
                self.client.apply(self._enlarged(each, pool))
        for number in range(self.count):
            self.client.create(gpu_node(replace(pool, max_nodes=self.count), number))
        everyone = lambda: all(map(nodes.is_ready, self.client.list("v1", "Node")))  # noqa: E731
        wait_for("the nodes", everyone, _SECONDS)

    def _enlarged(self, manifest: Object, pool: PoolPlan) -> Object:
        """Give a quota for the shipped pool room for all nodes; counting it is part of the work."""
        if manifest["kind"] == "ResourceQuota":
            hard = manifest["spec"]["hard"]
            manifest["spec"]["hard"] = {
                name: amount * self.count // pool.max_nodes for name, amount in hard.items()
            }
        return manifest

    def run(self, name: str, flags: Sequence[str]) -> tuple[float, dict[str, float]]:
        """Run one job; return seconds until all its pods run, and peak MiB of each process."""
        self.operator.start(*flags)
        job = self.job(name)
        started = time.monotonic()
        self.client.apply(job)
        while not self.all_run():
            # Half a second more or less; asking all the time would be a part of the load.
            time.sleep(_POLL_SECONDS)
        seconds = time.monotonic() - started
        memory = {name: peak_mib(pid) for name, pid in self.plane.processes.pids.items()}
        self.operator.stop()
        self.client.delete(job["apiVersion"], job["kind"], name, self.namespace)
        self.client.request("DELETE", self._pods, query={"gracePeriodSeconds": "0"})
        services = f"/api/v1/namespaces/{self.namespace}/services"
        self.client.request("DELETE", services)
        wait_for("the end of the pods", lambda: not self._listed(limit="1")["items"], _SECONDS)
        return seconds, memory

    def job(self, name: str) -> Object:
        """Return a job on all nodes."""
        job = {**self._job, "metadata": {**self._job["metadata"], "name": name}}
        job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = self.count - 1
        return job

    def all_run(self) -> bool:
        """Ask for no more than a pod, so that asking costs the server nothing."""
        first = self._listed(limit="1")
        total = len(first["items"]) + first["metadata"].get("remainingItemCount", 0)
        pending = self._listed(limit="1", fieldSelector="status.phase=Pending")
        return total == self.count and not pending["items"]

    def _listed(self, **query: str) -> Object:
        return self.client.request("GET", self._pods, query=query)


def peak_mib(pid: int) -> float:
    """Return the most memory that a process ever held."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def rows() -> list[Row]:
    """Measure, and return what, how much, the bar, and whether it holds."""
    variants = {"chart": (), "best by hand": BEST_BY_HAND}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    peak: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        scale = Scale(Path(folder), NODES)
        try:
            for turn in range(RUNS):
                for number, (name, flags) in enumerate(variants.items()):
                    took, memory = scale.run(f"job-{turn}-{number}", flags)
                    seconds[name].append(took)
                    peak = {each: max(mib, peak.get(each, 0)) for each, mib in memory.items()}
        finally:
            scale.plane.stop()
    chart, best = (statistics.median(seconds[name]) for name in variants)
    found = f"{chart:.1f} s (best by hand {best:.1f} s)"
    memory_row = ", ".join(f"{name} {mib:.0f}" for name, mib in peak.items())
    share = chart / best
    return [
        (
            f"{NODES} pods running",
            found,
            f"ratio {share:.2f}, at most {RATIO}",
            verdict(holds=share <= RATIO),
        ),
        ("peak memory, MiB", f"{sum(peak.values()):.0f}", memory_row, ""),
    ]


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table(("WHAT", "MEDIAN", "BAR", ""), rows()))
