"""What a job is once it is planned: its pods, and how they are run."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from megatron_eks.catalog.models import ModelShape
from megatron_eks.catalog.workloads import AnyWorkload, Workload
from megatron_eks.config.job import GpuJob
from megatron_eks.config.outputs import Image
from megatron_eks.config.runtime import SecretKey
from megatron_eks.plan.cluster.pools import PoolPlan
from megatron_eks.plan.cluster.queues import queue_labels
from megatron_eks.plan.jobs.resources import Resources
from megatron_eks.predict.conversion import Conversion
from megatron_eks.predict.goodput import Goodput
from megatron_eks.predict.layout import Layout
from megatron_eks.predict.memory import MemoryEstimate
from megatron_eks.predict.throughput import Speed
from megatron_eks.programs.exporter.plan import Plan as MetricsPlan

MIB = 1024**2

RECORD = "record"
"""The program that starts all others, and keeps what they print."""

ETCD_RUN_ID = "etcd_run_id"
"""The program that starts torchrun where nodes meet in etcd."""

ARCHIVE = "code.tar.gz"
"""The folder of a program of the user's, among the files of its job."""

CONFIG_DIRECTORY = "/etc/megatron-eks"
"""Where the files of a job are mounted."""

TRAINING_APP = "megatron-training"
"""Value of the label `app` on every training pod."""

JOB_LABEL = "megatron-eks/job"
"""On a job and on what is made for it beside it: its name."""

# Torch's store: the training operator's default. On the host network a node has it once, which is
# enough, because there one pod fills a node.
MASTER_PORT = 23456


class LateFiles(Mapping[str, str | bytes]):
    """Files of a job that are read when somebody asks for the first one."""

    def __init__(self, read: Callable[[], Mapping[str, str | bytes]]) -> None:
        self._read = cache(read)

    def __getitem__(self, name: str) -> str | bytes:
        """Return the content of one."""
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        """Go through their names."""
        return iter(self._read())

    def __len__(self) -> int:
        """Tell how many there are."""
        return len(self._read())


@dataclass(frozen=True)
class SecretFile:
    """One key of a Kubernetes Secret, as a file."""

    secret: str
    key: str
    directory: str

    @property
    def path(self) -> str:
        """Where the program finds it."""
        return f"{self.directory}/{self.key}"


@dataclass(frozen=True)
class Rendezvous:
    """Ranks that meet through torchrun's agents, of which there may be more or fewer."""

    backend: Literal["c10d", "etcd"]
    min_nodes: int
    max_nodes: int
    max_restarts: int
    """How often the agents start their ranks again before a pod fails."""


@dataclass(frozen=True)
class Training:
    """What a run makes of which model."""

    model: ModelShape
    layout: Layout
    memory: MemoryEstimate
    speed: Speed | None
    """None where the GPU's peak is unknown."""
    checkpoint_bytes: int
    tokens: int
    """Tokens of the whole run."""
    goodput: Goodput | None = None
    """None where the speed is unknown."""
    epochs: float | None = None
    """How often the run sees its corpus; None where nobody says what that holds."""


@dataclass(frozen=True)
class JobPlan:
    """One job."""

    name: str
    kind: str
    app: str
    """Value of the label `app` on its pods."""
    workload: AnyWorkload
    pool: PoolPlan | None
    """None: on the system nodes."""
    nodes: int
    """Pods that run together."""
    image: Image
    launcher: tuple[str, ...]
    """What starts the program: what keeps its output, then Python, or torchrun for ranks."""
    program: tuple[str, ...]
    """The program, as its launcher takes it; how ranks meet stands between the two."""
    args: tuple[str, ...]
    env: Mapping[str, str]
    resources: Resources
    log_directory: str
    restarts: int
    """How often all pods may start again."""
    ttl_seconds: int
    grace_seconds: int
    """Time between SIGTERM and SIGKILL: long enough for a last checkpoint."""
    priority_class: str
    team: str | None = None
    """Whose it is, where a cluster has teams."""
    queue: str = ""
    """In which it waits until all of its pods have a place; empty: in none."""
    gang: bool = False
    """Whether the pods are ranks of one run, which meet, and of which none goes on alone."""
    deadline_seconds: int | None = None
    """How long it may take in all, the wait for nodes included."""
    host_network: bool = False
    ipc_lock: bool = False
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Contents by file name, mounted in CONFIG_DIRECTORY."""
    secrets: tuple[SecretFile, ...] = ()
    secret_env: Mapping[str, SecretKey] = field(default_factory=dict)
    """Variables whose values Kubernetes takes from Secrets."""
    rendezvous: Rendezvous | None = None
    """None: the rank of each node is known beforehand."""
    training: Training | None = None
    estimated: str = ""
    """Whose estimate stands for a program of the user's, or that there is none."""
    conversion: Conversion | None = None
    metrics: MetricsPlan | None = None
    """What its exporter knows beforehand; None: its pods have none."""

    @property
    def is_scraped(self) -> bool:
        """Whether a Prometheus asks its pods."""
        return self.metrics is not None and self.metrics.port > 0

    @property
    def most_nodes(self) -> int:
        """The pods that there may be at once."""
        return self.rendezvous.max_nodes if self.rendezvous else self.nodes

    @property
    def processes_per_node(self) -> int:
        """One for each GPU; a pod without a GPU runs one program."""
        return max(1, self.resources.gpus)

    @property
    def secret_entries(self) -> tuple[SecretFile | SecretKey, ...]:
        """What has to be in the namespace before the pods."""
        return (*self.secrets, *self.secret_env.values())

    @property
    def queue_labels(self) -> Mapping[str, str]:
        """Labels of its object; queues count devices, and a job without any needs no place."""
        counted = self.resources.gpus or self.resources.efa
        return queue_labels(self.queue, self.priority_class) if counted else {}

    @property
    def gpus(self) -> int:
        """GPUs of the whole job."""
        return self.nodes * self.resources.gpus

    @property
    def workers(self) -> int:
        """Nodes besides the master's; ranks that meet by themselves have no master."""
        return self.nodes if self.rendezvous else self.nodes - 1


def workload_of(job: GpuJob, default: Workload) -> AnyWorkload:
    """Return what runs the ranks of a job: its own choice, or what the platform has."""
    return job.runtime.workload or ("job" if job.kind == "ddp" else default)
