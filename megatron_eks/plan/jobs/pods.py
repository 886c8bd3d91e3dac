"""The pods of a job, as every kind builds them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from megatron_eks.catalog.images import is_ours
from megatron_eks.catalog.instances import MIB_PER_GIB
from megatron_eks.catalog.program_places import PACKAGE, UNPACKED, ZIP
from megatron_eks.config.job import GpuJob, Job, MegatronRun, Run
from megatron_eks.config.outputs import Image, is_digest
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.platform import TRAINING_PRIORITY, VALIDATION_PRIORITY
from megatron_eks.plan.jobs import tracking
from megatron_eks.plan.jobs.checkpoints import GRACE_FLOOR_SECONDS, grace_seconds, plan_saving
from megatron_eks.plan.jobs.environment import shows_efa
from megatron_eks.plan.jobs.job import (
    CONFIG_DIRECTORY,
    ETCD_RUN_ID,
    RECORD,
    TRAINING_APP,
    JobPlan,
    Rendezvous,
    SecretFile,
    Training,
    workload_of,
)
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.resources import (
    Resources,
    gpu_resources,
    gpus_per_node,
    job_gpus,
    wished,
)
from megatron_eks.plan.jobs.tracking import plan_metrics
from megatron_eks.plan.jobs.training import job_layout, job_memory, job_speed, step_tokens, steps
from megatron_eks.predict.goodput import goodput

Images = Mapping[str, Image]


_DAY_SECONDS = 24 * 3600

_TOKEN_DIRECTORY = "/var/run/secrets/huggingface"  # noqa: S105 -- a path
_TOKEN_KEY = "token"  # noqa: S105 -- the name of a key

TEAM = "MEKS_TEAM"
"""The variable by which a command tells the charts whose pod it starts."""

SHARED_APP = "shared-files"
"""Value of the label `app` on such pods, and the start of their names."""

# Small enough for a place beside whatever runs on a system node: transfers and checksums of a few
# files at once.
_CPU_MILLIS, _MEMORY_MIB, _SCRATCH_GIB = 500, 2 * MIB_PER_GIB, 1

# A terabyte at the rate that the default file system has takes half an hour.
_DEADLINE_SECONDS = 6 * 3600

# What a program needs to say how far it came.
_GRACE_SECONDS = 30
_KIND = "shared_files"


@dataclass(frozen=True)
class Program:
    """What a pod runs: one of our programs, its arguments, and what it reads."""

    name: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    secrets: tuple[SecretFile, ...] = ()
    before: tuple[str, ...] = ()
    """What starts torchrun, where something does."""

    @property
    def words(self) -> tuple[str, str]:
        """How the images' Python and torchrun start it."""
        return _module(self.name)


def log_directory(job: Job, cluster: ClusterPlan) -> str:
    """Return where what a job prints is kept, and what its ranks write beside it."""
    return f"{cluster.storage.lustre.settings.mount_path}/logs/{job.name}"


def guard_args(job: GpuJob, cluster: ClusterPlan) -> tuple[str, ...]:
    """Return what a training program on several nodes has to know about network and peers.

    The nodes of a job that meets anew by itself, through c10d or etcd, come and go.
    """
    if job.nodes == 1:
        return ()
    instance = cluster.pool(job.pool).instance
    resources = gpu_resources(
        instance, gpus_per_node(job, instance), nodes=job.nodes, shm_gib=job.runtime.shm_gib
    )
    args: tuple[str, ...] = ()
    if resources.efa and shows_efa(job.runtime.env):
        args += ("--expect-efa", str(resources.efa))
        args += ("--expect-gpu-direct",) if instance.gpu_direct_rdma else ()
    if job.runtime.rendezvous == "static":
        args += ("--heartbeats", f"{log_directory(job, cluster)}/heartbeats")
    return args


def token_file(secret: str | None) -> SecretFile | None:
    """Return where a Hugging Face token is mounted, if there is one."""
    return SecretFile(secret, _TOKEN_KEY, _TOKEN_DIRECTORY) if secret else None


def config_file(
    program: str, job: GpuJob, blocks: Iterable[str]
) -> tuple[str, Mapping[str, str | bytes]]:
    """Return the path of a program's configuration, which is blocks of the job file, and itself."""
    values = {
        **job.model_dump(mode="json", include=set(blocks), exclude_none=True),
        "runtime": {"distributed_timeout_minutes": job.runtime.distributed_timeout_minutes},
    }
    name = f"{program}.json"
    return f"{CONFIG_DIRECTORY}/{name}", {name: json.dumps(values, indent=1) + "\n"}


def ranks(
    job: GpuJob,
    cluster: ClusterPlan,
    images: Images,
    program: Program,
    *,
    training: Training | None = None,
    restarts: int | None = None,
) -> JobPlan:
    """Plan a job whose nodes run torchrun, which starts the program once for each GPU.

    `restarts` is for kinds that gain nothing by another try; others restart as often as the file
    says.
    """
    pool = cluster.pool(job.pool)
    gpus = gpus_per_node(job, pool.instance)
    in_etcd: tuple[str, ...] = ("python3", *_module(ETCD_RUN_ID))
    in_etcd = in_etcd if job.runtime.rendezvous == "etcd" else ()
    launcher = (*program.before, *in_etcd, job.runtime.torchrun_path)
    checkpoint_bytes = training.checkpoint_bytes if training else 0
    resources = gpu_resources(pool.instance, gpus, nodes=job.nodes, shm_gib=job.runtime.shm_gib)
    return replace(
        task(job, cluster, images, program, resources=resources, pods=job.nodes),
        app=TRAINING_APP,
        workload=workload_of(job, cluster.platform.workload),
        launcher=_recorded(job, cluster, *launcher),
        gang=True,
        restarts=job.runtime.gang_restarts if restarts is None else restarts,
        grace_seconds=grace_seconds(checkpoint_bytes, cluster.storage.lustre),
        host_network=job.runtime.host_network,
        ipc_lock=job.runtime.ipc_lock,
        rendezvous=_rendezvous(job),
        training=training,
        metrics=plan_metrics(job, cluster, training),
    )


def task(
    job: Job,
    cluster: ClusterPlan,
    images: Images,
    program: Program,
    *,
    resources: Resources,
    pods: int = 1,
) -> JobPlan:
    """Plan a job of programs that need no GPU and do not talk to each other."""
    return JobPlan(
        name=job.name,
        kind=job.kind,
        app=job.kind.replace("_", "-"),
        workload="job",
        pool=cluster.pool(job.pool) if job.pool else None,
        nodes=pods,
        image=job_image(job, images),
        launcher=_recorded(job, cluster, "python3"),
        program=program.words,
        args=program.args,
        # What every pod needs behind a proxy; a program's own variables win.
        env=dict(sorted({**dict(cluster.platform.egress.pod_variables), **program.env}.items())),
        resources=wished(resources, job.runtime),
        log_directory=log_directory(job, cluster),
        restarts=job.runtime.gang_restarts,
        ttl_seconds=job.runtime.keep_days * _DAY_SECONDS,
        priority_class=job.runtime.priority_class or TRAINING_PRIORITY,
        team=cluster.platform.team,
        queue=cluster.queue_in(cluster.platform.namespace),
        grace_seconds=GRACE_FLOOR_SECONDS,
        files=program.files,
        secrets=program.secrets,
        secret_env=dict(sorted(tracking.keys(job).items())),
    )


def plan_training(job: Run, cluster: ClusterPlan) -> Training:
    """Return what a run makes of its model on the GPUs that it takes."""
    instance, model = cluster.pool(job.pool).instance, model_shape(job.model)
    gpus, speed = job_gpus(job, instance), job_speed(job, model, instance)
    saving = plan_saving(job, model, cluster.storage.lustre)
    tokens = steps(job)[1] * step_tokens(job, gpus)
    corpus: float | None = job.data.corpus_tokens
    if corpus and isinstance(job, MegatronRun):
        # Of the shares only the first is for training.
        corpus = corpus * job.data.split[0] / sum(job.data.split)
    return Training(
        model=model,
        layout=job_layout(job, gpus),
        memory=job_memory(job, model, instance),
        speed=speed,
        goodput=goodput(job.nodes, gpus, speed.step_seconds, saving) if speed else None,
        checkpoint_bytes=saving.checkpoint_bytes,
        tokens=tokens,
        epochs=tokens / corpus if corpus else None,
    )


def _recorded(job: Job, cluster: ClusterPlan, *words: str) -> tuple[str, ...]:
    """Start a program so that what it prints outlives its pod, for as long as the job may."""
    keep = log_directory(job, cluster), str(job.runtime.keep_days)
    # What starts below it finds these programs by -m as well.
    return ("python3", _programs(job), RECORD, *keep, *words)


def _programs(job: Job) -> str:
    return UNPACKED if is_ours(job.image) else f"{CONFIG_DIRECTORY}/{ZIP}"


def _module(program: str) -> tuple[str, str]:
    return "-m", f"{PACKAGE}.{program}"


def job_image(job: Job, images: Images) -> Image:
    """Return what a job's pods pull."""
    return Image(job.image, preview=False) if is_digest(job.image) else images[job.image]


def _rendezvous(job: GpuJob) -> Rendezvous | None:
    runtime = job.runtime
    if runtime.rendezvous == "static":
        return None
    elastic = runtime.elastic
    return Rendezvous(
        backend=runtime.rendezvous,
        min_nodes=elastic.min_nodes if elastic else job.nodes,
        max_nodes=elastic.max_nodes if elastic else job.nodes,
        max_restarts=runtime.gang_restarts,
    )


def plan_shared(
    cluster: ClusterPlan, images: Images, program: str, args: Sequence[str], own: str = ""
) -> JobPlan:
    """Plan one run of one of our programs on the system nodes, in an image of the user's if named.

    That gets the programs as its jobs do.
    """
    ours = (name for name, image in images.items() if is_ours(name) and not image.preview)
    job = Job(schema_version=1, kind=_KIND, name=SHARED_APP, image=own or next(ours, "megatron"))
    run = Program(program, tuple(args), {})
    resources = Resources(_CPU_MILLIS, _MEMORY_MIB, scratch_gib=_SCRATCH_GIB)
    return replace(
        task(job, cluster, images, run, resources=resources),
        # Its command reads what it prints, and nobody looks for it later.
        launcher=("python3", _programs(job)),
        program=(program,),
        deadline_seconds=_DEADLINE_SECONDS,
        grace_seconds=_GRACE_SECONDS,
        priority_class=VALIDATION_PRIORITY,
    )
