"""One cluster whose nodes really run pods, with the platform of the default cluster applied."""

import contextlib
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from megatron_eks.catalog.program_places import UNPACKED
from megatron_eks.demo.images import megatron, stand_in_images, torch
from megatron_eks.demo.nodes import system_nodes
from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import ApiError, Client, Object, wait_for
from megatron_eks.localcloud.aws.keys import Keys
from megatron_eks.localcloud.aws.server import LocalAws
from megatron_eks.localcloud.kubernetes import nodes
from megatron_eks.localcloud.kubernetes.controllers import CONTROLLERS, Kueue
from megatron_eks.localcloud.kubernetes.kubelet.fleet import Fleet
from megatron_eks.localcloud.kubernetes.kubelet.images import Image, interpreter
from megatron_eks.localcloud.kubernetes.kubelet.rootfs import Mount
from megatron_eks.localcloud.kubernetes.operator import Operator, operator_file
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.annex.kubelet.cluster import Cluster
from tests.charts import rendered
from tests.programs.s3_world import s3_server

__all__ = ["s3_server"]

_PYTHON = Path(sys.executable).resolve()
_PROGRAMS = Path(__file__).with_name("programs")

# Ranks that start at once, for tests that are not about torch.
_SMALL = Image(
    "small",
    mounts=[Mount(str(_PROGRAMS / "small"), "/opt/small", read_only=True), *interpreter(_PYTHON)],
    environment={"PATH": "/opt/small:/usr/bin:/bin", "PYTHON": str(_PYTHON)},
)

# The real start of Megatron, with a Megatron whose ranks wait for lost peers.
_REAL = torch("gang")
_GANG = replace(
    _REAL, mounts=[*_REAL.mounts, Mount(str(_PROGRAMS / "megatron"), "/opt/megatron-lm")]
)

# What a user builds: PyTorch, and nothing of ours.
_OWN = replace(
    _REAL,
    repository="mine",
    mounts=[each for each in _REAL.mounts if not each.target.startswith(UNPACKED)],
    environment={**_REAL.environment, "PYTHONPATH": ""},
)

# One with Python, and no torch.
_BARE = Image("bare", [*interpreter(_PYTHON)], environment={"PATH": f"{_PYTHON.parent}:/usr/bin"})

# A lost node is noticed within this; on EKS after 50 s, as by Kubernetes itself.
_GRACE_SECONDS, _EKS_GRACE_SECONDS = 6, 50
_HEARTBEAT_SECONDS = 1.5
_BACK_OFF_SECONDS = 0.5


@pytest.fixture(scope="session")
def cluster(start_plane, emitted, plan, s3_server, tmp_path_factory) -> Cluster:
    """Start a cluster of one system node and four GPU nodes."""
    plane = start_plane(tmp_path_factory.mktemp("processes"), node_grace_seconds=_GRACE_SECONDS)
    chart = operator_file(emitted / "platform")
    operator = Operator(plane, manifests.read_file(chart))
    operator.install()
    # moto's own server takes any keys.
    aws = LocalAws(f"http://127.0.0.1:{s3_server[1]}", Keys.new())
    fleet = Fleet(
        plane,
        aws=aws,
        images=[
            torch("megatron-training", _PROGRAMS / "torch" / "megatron_eks"),
            megatron(runs.MEGATRON),
            _SMALL,
            _GANG,
            _OWN,
            _BARE,
            *stand_in_images(),
        ],
        back_off_seconds=_BACK_OFF_SECONDS,
        heartbeat_seconds=_HEARTBEAT_SECONDS,
    )
    found = Cluster(plane, fleet, aws, operator, plan)
    fleet.start(nodes.as_process(system_nodes(plan)[0]))
    for _ in range(jobs.NODES):
        found.add_gpu_node()
    for file in sorted((emitted / "platform").glob("*.yaml")):
        if file != chart:
            for each in manifests.read_file(file):
                found.client.apply(each)
    return found


@pytest.fixture(scope="session")
def other_kinds(cluster: Cluster) -> None:
    """Run the controllers of other kinds of jobs beside the training operator."""
    files = rendered.platform_files("trainjob")
    for controller in CONTROLLERS[1:]:
        if controller.name in files:
            controller(cluster.plane, files[controller.name]).install()
    for each in files["job-records"]:
        cluster.client.apply(each)


@pytest.fixture(scope="session")
def kueue(cluster: Cluster, other_kinds: None) -> Client:  # noqa: ARG001 -- it asks for their kinds
    """Run Kueue beside all controllers of jobs; jobs without its label it leaves alone."""
    files = rendered.platform_files("trainjob", kueue=True)
    Kueue(cluster.plane, files["kueue-controller"]).install()
    return cluster.client


@pytest.fixture
def submit(cluster: Cluster) -> Iterator[Callable[[Object], Object]]:
    """Return a function that applies a job, which is deleted with its pods after the test."""
    applied: list[Object] = []

    def apply(manifest: Object) -> Object:
        applied.append(manifest)
        return jobs.apply(cluster.client, manifest)

    yield apply
    for job in applied:
        jobs.delete(cluster.client, job)
    while cluster.lost:
        cluster.client.delete("v1", "Node", cluster.lost.pop())


@pytest.fixture
def as_on_eks(cluster: Cluster) -> Iterator[None]:
    """Notice a lost node as late as EKS does."""
    cluster.plane.notice_lost_nodes_after(_EKS_GRACE_SECONDS)
    yield
    cluster.plane.notice_lost_nodes_after(_GRACE_SECONDS)


@pytest.fixture
def start(cluster: Cluster, submit: Callable[[Object], Object]) -> Callable[[Object], runs.Run]:
    """Return a function that submits a job of `runs.job`."""

    def begin(job: Object) -> runs.Run:
        submit(job)
        return runs.Run(job, cluster.shared() / "logs" / job["metadata"]["name"])

    return begin


@pytest.fixture
def run_pod(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., Object]]:
    """Return a function that creates a pod of one shell script, deleted after the test."""
    client, names = cluster.client, itertools.count()
    # No test meets another's pods, which may be going still.
    prefix = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:50]
    made: list[Object] = []

    def create(
        script: str,
        *,
        container: Object | None = None,
        labels: Object | None = None,
        **spec: object,
    ) -> Object:
        only: Object = {
            "name": "main",
            "image": "busybox",
            "command": ["sh", "-ec", script],
            **(container or {}),
        }
        pod: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{prefix}-{next(names)}",
                "namespace": "default",
                "labels": labels or {},
            },
            "spec": {"restartPolicy": "Never", "containers": [only], **spec},
        }
        made.append(client.create(pod))
        return made[-1]

    yield create
    for pod in made:
        with contextlib.suppress(ApiError):
            cluster.force_delete(pod)


@pytest.fixture
def ended(cluster: Cluster) -> Callable[..., Object]:
    """Return a function that waits for a pod's end, in a phase, and returns it."""

    def wait(pod: Object, phase: str = "Succeeded") -> Object:
        def found() -> Object | None:
            now = cluster.now(pod)
            return now if now["status"]["phase"] in {"Succeeded", "Failed"} else None

        now: Object = wait_for("the pod's end", found, 60)
        if now["status"]["phase"] != phase:
            pytest.fail(f"{now['status']}\n{cluster.logs(pod, 'main')}")
        return now

    return wait


@pytest.fixture
def state(cluster: Cluster) -> Callable[..., Object]:
    """Return a function that waits until a pod's only container is in a state, and returns it."""

    def wait(pod: Object, kind: str, reason: str | None = None) -> Object:
        def found() -> Object | None:
            (status,) = cluster.now(pod)["status"].get("containerStatuses", [{"state": {}}])
            met = status["state"].get(kind)
            return status if met is not None and reason in {None, met.get("reason")} else None

        return wait_for(f"a container to be {kind} {reason}", found, 60)

    return wait
