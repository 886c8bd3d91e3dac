"""How long a job on a thousand nodes takes to run, with the controllers' limits of our charts.

`python -m benchmarks.operator_scale`: the real control plane, scheduler and controllers; KWOK plays
the kubelets. On one cluster with one job after another, in turns: a PyTorchJob with the chart's own
limits and with the best ones found by hand, and a JobSet and a TrainJob beside a bare Indexed Job.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import cdk8s

from benchmarks.timing import ROOT, verdict
from megatron_eks.catalog.workloads import WITH_PODS, WORKLOADS, AnyWorkload, templates
from megatron_eks.charts.composition import build_jobs
from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Client, Object, wait_for
from megatron_eks.localcloud.kubernetes import build, nodes
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.controllers import CONTROLLERS
from megatron_eks.ops.jobs.submit import create
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
_JOB = "megatron-cpt-techpulse"
# The pods of a Job would succeed at once.
_ENDS = "localcloud/complete-after"
_SECONDS = 300
_POLL_SECONDS = 0.5

Row = tuple[str, str, str, str]


class Scale:
    """One cluster with many nodes, on which one job after another runs."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self.plane = ControlPlane(build.programs(os.environ, print), folder / "cluster")
        file = folder / "cluster.yaml"
        text = (ROOT / "cluster.yaml").read_text() + "platform: {workload: trainjob}\n"
        file.write_text(text)
        shutil.copytree(ROOT / "jobs", folder / "jobs")
        self._platform = folder / "dist" / "platform"
        synthesise_manifests(file, folder / "dist")
        project = load_project(file, datetime.now(tz=UTC).date())
        self._plan = project.cluster
        (self._job,) = (each for each in project.jobs if each.name == _JOB)
        self.namespace = self._plan.platform.namespace
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
        files = [each.file(self._platform) for each in CONTROLLERS]
        self.operator, *others = (
            each(self.plane, manifests.read_file(file))
            for each, file in zip(CONTROLLERS, files, strict=True)
            if file
        )
        for controller in (self.operator, *others):
            controller.install()
        self.operator.stop()
        (pool,) = self._plan.pools
        for each in manifests.read(self._platform):
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

    def run(
        self, name: str, workload: AnyWorkload, flags: Sequence[str] = ()
    ) -> tuple[float, dict[str, float]]:
        """Run one job; return seconds until all its pods run, and peak MiB of each process."""
        if workload == "pytorchjob":
            self.operator.start(*flags)
        *beside, job = objects = self.objects(name, workload)
        started = time.monotonic()
        create(self.client, beside, job)
        while not self.all_run():
            # Half a second more or less; asking all the time would be a part of the load.
            time.sleep(_POLL_SECONDS)
        seconds = time.monotonic() - started
        memory = {name: peak_mib(pid) for name, pid in self.plane.processes.pids.items()}
        if workload == "pytorchjob":
            self.operator.stop()
        for each in reversed(objects):
            place = each["metadata"]["name"], each["metadata"]["namespace"]
            self.client.delete(each["apiVersion"], each["kind"], *place)
        self.client.request("DELETE", self._pods, query={"gracePeriodSeconds": "0"})
        self.client.request("DELETE", self._pods.replace("/pods", "/services"))
        wait_for("the end of the pods", lambda: not self._listed(limit="1")["items"], _SECONDS)
        return seconds, memory

    def objects(self, name: str, workload: AnyWorkload) -> list[Object]:
        """Return a job on all nodes as the charts render it, itself last; its pods do not end."""
        app = cdk8s.App()
        job = replace(self._job, name=name, nodes=self.count, workload=workload)
        (chart,) = build_jobs(app, self._plan, [job]).values()
        found: list[Object] = cdk8s.Testing.synth(chart)
        found.sort(key=lambda each: each["kind"] in WORKLOADS)
        for each in found:
            for _, template in templates(each) if each["kind"] in WITH_PODS else ():
                template["metadata"].setdefault("annotations", {})[_ENDS] = f"{_SECONDS * 10}s"
        return found

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
    variants: dict[str, tuple[AnyWorkload, Sequence[str]]] = {
        "PyTorchJob": ("pytorchjob", ()),
        "best by hand": ("pytorchjob", BEST_BY_HAND),
        "JobSet": ("jobset", ()),
        "TrainJob": ("trainjob", ()),
        "bare Job": ("job", ()),
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    peak: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        scale = Scale(Path(folder), NODES)
        try:
            for turn in range(RUNS):
                for number, (name, variant) in enumerate(variants.items()):
                    took, memory = scale.run(f"job-{turn}-{number}", *variant)
                    seconds[name].append(took)
                    peak = {**peak, **{e: max(mib, peak.get(e, 0)) for e, mib in memory.items()}}
        finally:
            scale.plane.stop()
    took_of = {name: statistics.median(each) for name, each in seconds.items()}
    memory_row = ", ".join(f"{name} {mib:.0f}" for name, mib in peak.items())
    pairs = {"PyTorchJob": "best by hand", "JobSet": "bare Job", "TrainJob": "bare Job"}
    return [
        *(_beside(name, took_of[name], other, took_of[other]) for name, other in pairs.items()),
        ("peak memory, MiB", f"{sum(peak.values()):.0f}", memory_row, ""),
    ]


def _beside(name: str, seconds: float, other: str, bare: float) -> Row:
    share = seconds / bare
    return (
        f"{NODES} pods of a {name} running",
        f"{seconds:.1f} s ({other} {bare:.1f} s)",
        f"ratio {share:.2f}, at most {RATIO}",
        verdict(holds=share <= RATIO),
    )


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table(("WHAT", "MEDIAN", "BAR", ""), rows()))
