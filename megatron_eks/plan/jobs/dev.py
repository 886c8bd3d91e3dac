"""Plan of `meks dev`: one pod with a job's image, code, mounts and variables, to work in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from megatron_eks.catalog.program_options import PACKAGE, ZIP
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.platform import VALIDATION_PRIORITY
from megatron_eks.plan.jobs.job import ARCHIVE, CONFIG_DIRECTORY, RECORD, JobPlan
from megatron_eks.plan.jobs.resources import gpu_resources, system_resources

DEV_APP = "dev"
"""Value of the label `app` on such pods, and the start of their names."""
DEV_PROGRAM = ("python3", f"{CONFIG_DIRECTORY}/{ZIP}", "dev")
"""What is started in such a pod, in whatever image."""
DEV_CODE = "/tmp/code"  # noqa: S108 -- on the pod's own volume
"""Where the job's folder is."""

_SHORTEST_SECONDS = 60
_TTL_SECONDS = 24 * 3600
_KEEP_DAYS = "7"


@dataclass(frozen=True)
class DevWish:
    """What somebody wants to work with."""

    gpus: int
    hours: float
    """After them the pod ends, whatever runs in it; the wait for a node counts."""
    idle_minutes: float
    """So long nobody is connected and nothing is computed before it ends earlier."""


def dev_name(job: str) -> str:
    """Return the name of the pod's Job."""
    return f"{DEV_APP}-{job}"


def plan_dev(
    job: JobPlan, cluster: ClusterPlan, programs: Mapping[str, bytes], wish: DevWish
) -> JobPlan:
    """Plan the pod; without a GPU it takes half of a system node."""
    name, directory = dev_name(job.name), job.log_directory.rpartition("/")[0]
    resources = system_resources(cluster.system_nodes.instance_type)
    if wish.gpus and job.pool:
        resources = gpu_resources(job.pool.instance, wish.gpus, nodes=1, shm_gib=None)
    code = (f"--code={CONFIG_DIRECTORY}/{ARCHIVE}", f"--directory={DEV_CODE}")
    return replace(
        job,
        name=name,
        kind=DEV_APP,
        app=DEV_APP,
        workload="job",
        pool=job.pool if wish.gpus else None,
        nodes=1,
        launcher=(*DEV_PROGRAM[:2], RECORD, f"{directory}/{name}", _KEEP_DAYS, "python3"),
        program=("-m", f"{PACKAGE}.{DEV_PROGRAM[2]}"),
        args=(
            f"--idle-minutes={wish.idle_minutes:g}",
            *(["--gpus"] if wish.gpus else []),
            *(code if ARCHIVE in job.files else ()),
        ),
        files={**job.files, **programs},
        resources=resources,
        log_directory=f"{directory}/{name}",
        restarts=0,
        ttl_seconds=_TTL_SECONDS,
        # It takes no GPU from a training, and a training may take its.
        priority_class=VALIDATION_PRIORITY,
        gang=False,
        deadline_seconds=max(_SHORTEST_SECONDS, int(wish.hours * 3600)),
        host_network=False,
        ipc_lock=False,
        rendezvous=None,
        training=None,
        estimated="",
        conversion=None,
    )
