"""A cluster of three teams with many simulated nodes and a few real ones, and jobs for it."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import yaml

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WITH_PODS, WORKLOADS, AnyWorkload, templates
from megatron_eks.demo.images import stand_in_images
from megatron_eks.demo.nodes import gpu_node, system_nodes
from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Client, Object, wait_for
from megatron_eks.localcloud.kubernetes import nodes
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.controllers import follow
from megatron_eks.localcloud.kubernetes.kubelet.fleet import Fleet
from megatron_eks.ops.jobs.submit import create
from megatron_eks.plan.cluster.platform import TRAINING_PRIORITY
from megatron_eks.plan.jobs.job import JOB_LABEL
from megatron_eks.project import ROOT, load_project
from megatron_eks.synthesis import synthesise_manifests
from tests.charts import rendered

TEAMS = ("nlp", "speech", "vision")
KINDS: tuple[AnyWorkload, ...] = ("pytorchjob", "jobset", "trainjob", "job")
GPUS = 8

# Agents would be three pods on each node, and controllers are processes here.
_WITHOUT = {"DaemonSet", "Deployment"}
_SECONDS = 900
_AT_ONCE = 8

# What jobs consist of, or become.
_OF_JOBS = (
    *((each.api_version, each.kind) for each in WORKLOADS.values()),
    *(("v1", kind) for kind in ("ConfigMap", "Pod", "Service")),
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    (kueue.API_VERSION, "Workload"),
)


def write(folder: Path, sizes: Sequence[int], scripts: Mapping[str, str], count: int) -> Path:
    """Write a cluster with simulated pools of these sizes and a pool of two real nodes.

    Each team has a job, and one that owns no real node has `count` of two real ranks.
    """
    cluster = yaml.safe_load((ROOT / "examples/two-teams/cluster.yaml").read_text())
    (pool,) = cluster["gpu_pools"]
    # A zone has addresses for some hundreds of nodes.
    simulated = [
        {**pool, "name": f"p4d-{zone[-1]}", "availability_zone": zone, "max_nodes": size}
        for zone, size in zip(cluster["availability_zones"], sizes, strict=True)
    ]
    share = GPUS * (sum(sizes) + 2) // len(TEAMS)
    roles = "arn:aws:iam::111122223333:role"
    cluster |= {
        "name": "crowd",
        "gpu_pools": [*simulated, {**pool, "name": "real", "max_nodes": 2}],
        "platform": {"kueue": True, "workload": "trainjob"},
        "teams": [{"name": e, "role_arns": [f"{roles}/{e}"], "gpus": share} for e in TEAMS],
    }
    (folder / "jobs").mkdir(parents=True)
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    for name, text in scripts.items():
        (folder / "jobs" / name).write_text(text)
    names = {each: each for each in TEAMS}
    # Jobs of two teams that borrowed these nodes lost them in turns before they had started.
    names |= {f"real-{number}": TEAMS[0] for number in range(count)}
    for number, (name, team) in enumerate(names.items()):
        saved = f"/shared/checkpoints/{name}"
        job = {
            "schema_version": 1,
            "kind": "torchrun",
            "name": name,
            "team": team,
            "pool": "real",
            "nodes": 2,
            "gpus_per_node": 1,
            "program": {"script": "train.py", "args": [f"--directory={saved}"]},
            "checkpoint": {"directory": saved, "complete_marker": "complete"},
            "runtime": {"workload": KINDS[number % 3]},
        }
        (folder / "jobs" / f"{name}.yaml").write_text(yaml.safe_dump(job))
    return folder / "cluster.yaml"


@dataclass(frozen=True)
class Wish:
    """A job on whole nodes of a pool."""

    name: str
    team: str
    kind: AnyWorkload
    pool: int
    nodes: int
    seconds: int
    """How long its pods run."""
    priority: str = TRAINING_PRIORITY
    queued: bool = True


class Crowd:
    """A control plane with the platform of such a cluster, its queues and its nodes."""

    def __init__(self, programs: Mapping[str, Path], cluster_file: Path, folder: Path) -> None:
        dist = cluster_file.with_name("dist")
        synthesise_manifests(cluster_file, dist)
        self.project = load_project(cluster_file, datetime.now(tz=UTC).date())
        # A thousand nodes that say every ten seconds that they are there would be half of the load.
        self.plane = ControlPlane(programs, folder, node_grace_seconds=600)
        self.fleet = Fleet(self.plane, stand_in_images())
        self._platform = dist / "platform"
        self._before: set[tuple[str, str, str]] = set()
        self._pods_before = 0

    @property
    def client(self) -> Client:
        """An administrator's client."""
        return self.plane.client

    def start(self) -> None:
        """Start everything, and return when all nodes are ready."""
        self.plane.start()
        follow(self.plane, self._platform)
        for each in manifests.read(self._platform):
            if each["kind"] not in _WITHOUT:
                self.client.apply(each)
        *simulated, real = self.project.cluster.pools
        processes = [system_nodes(self.project.cluster)[0], gpu_node(real, 0), gpu_node(real, 1)]
        self.fleet.start(*map(nodes.as_process, processes))
        others = [gpu_node(pool, n) for pool in simulated for n in range(pool.max_nodes)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.client.create, others))
        count = len(others) + len(processes)

        def ready() -> bool:
            found = self.client.list("v1", "Node")
            return len(found) == count and all(map(nodes.is_ready, found))

        wait_for("the nodes", ready, _SECONDS, pause=2)
        folders = lambda: len([*self.fleet.shared.glob("*/teams/*")]) == len(TEAMS)  # noqa: E731
        wait_for("the folders of teams", folders, _SECONDS, pause=2)
        self._before = self._named()
        self._pods_before = sum(kind == "Pod" for kind, _, _ in self._before)

    def render(self, wishes: Iterable[Wish]) -> dict[str, list[Object]]:
        """Return the objects of each job, by name, as the charts render them."""
        pools, plans = self.project.cluster.pools, {job.name: job for job in self.project.jobs}
        wanted = {each.name: each for each in wishes}
        planned = [
            replace(
                plans[each.team],
                name=each.name,
                workload=each.kind,
                pool=pools[each.pool],
                nodes=each.nodes,
                priority_class=each.priority,
                resources=replace(plans[each.team].resources, gpus=GPUS, efa=4),
                queue=each.team if each.queued else "",
            )
            for each in wanted.values()
        ]
        found = _by_job(rendered.jobs(*planned, plan=self.project.cluster))
        for name, objects in found.items():
            makers = (each for each in objects if each["kind"] in WITH_PODS)
            for _, template in (pair for each in makers for pair in templates(each)):
                notes = template["metadata"].setdefault("annotations", {})
                notes["localcloud/complete-after"] = f"{wanted[name].seconds}s"
                # Where nodes are real, the same by a process.
                (container,) = template["spec"]["containers"]
                container |= {"command": ["sleep", str(wanted[name].seconds)], "args": []}
        return found

    def render_real(self) -> dict[str, list[Object]]:
        """Return the objects of the jobs that really train."""
        plans = [job for job in self.project.jobs if job.name.startswith("real-")]
        return _by_job(rendered.jobs(*plans, plan=self.project.cluster))

    def apply(self, jobs: Mapping[str, list[Object]]) -> None:
        """Start jobs, several at once as people of several teams do."""

        def start(objects: list[Object]) -> None:
            *beside, job = sorted(objects, key=lambda each: each["kind"] in WORKLOADS)
            create(self.client, beside, job)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(start, jobs.values()))

    def delete(self, jobs: Mapping[str, list[Object]]) -> None:
        """Delete what was applied, and return when nothing of any job is left."""

        def end(each: Object) -> None:
            name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
            self.client.delete(each["apiVersion"], each["kind"], name, namespace, missing_ok=True)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(end, (each for objects in jobs.values() for each in objects)))
        wait_for("the end of all pods", lambda: self.pods()[0] == 0, _SECONDS, pause=2)
        wait_for("the end of all", lambda: not self.left(), _SECONDS, pause=2)

    def pods(self) -> tuple[int, int]:
        """Return how many pods there are of jobs, and whether some do not run; asks for few."""
        total, waiting = -self._pods_before, 0
        for team in TEAMS:
            path = f"/api/v1/namespaces/{team}/pods"
            found = self.client.request("GET", path, query={"limit": "1"})
            total += len(found["items"]) + found["metadata"].get("remainingItemCount", 0)
            query = {"limit": "1", "fieldSelector": "status.phase=Pending"}
            waiting += len(self.client.request("GET", path, query=query)["items"])
        return total, waiting

    def left(self) -> set[tuple[str, str, str]]:
        """Return what there is beside the platform's own: kind, namespace and name."""
        return self._named() - self._before

    def _named(self) -> set[tuple[str, str, str]]:
        return {
            (kind, team, each["metadata"]["name"])
            for version, kind in _OF_JOBS
            for team in TEAMS
            for each in self.client.list(version, kind, team)
        }


def _by_job(objects: Iterable[Object]) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for each in objects:
        found.setdefault(each["metadata"]["labels"][JOB_LABEL], []).append(each)
    return found
