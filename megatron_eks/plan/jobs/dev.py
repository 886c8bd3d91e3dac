"""Plan of `meks dev`: one pod with a job's image, code, mounts and variables, to work in."""

from collections.abc import Mapping
from dataclasses import replace

from megatron_eks.catalog.program_places import PACKAGE, ZIP
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


def plan_dev(
    job: JobPlan,
    cluster: ClusterPlan,
    programs: Mapping[str, bytes],
    *,
    gpus: int,
    hours: float,
    idle_minutes: float,
) -> JobPlan:
    """Plan the pod, which ends after its hours; without a GPU it takes half of a system node."""
    pool, half = job.pool if gpus else None, system_resources(cluster.system_nodes.instance_type)
    name, logs = f"{DEV_APP}-{job.name}", job.log_directory.rpartition("/")[0]
    code = (f"--code={CONFIG_DIRECTORY}/{ARCHIVE}", f"--directory={DEV_CODE}")
    return replace(
        job,
        name=name,
        app=DEV_APP,
        workload="job",
        pool=pool,
        nodes=1,
        launcher=(*DEV_PROGRAM[:2], RECORD, f"{logs}/{name}", "7", "python3"),
        program=("-m", f"{PACKAGE}.{DEV_PROGRAM[2]}"),
        args=(
            f"--idle-minutes={idle_minutes:g}",
            *(["--gpus"] if gpus else []),
            *(code if {ARCHIVE, f"{ARCHIVE}.s3"} & job.files.keys() else ()),
        ),
        files={**job.files, **programs},
        resources=gpu_resources(pool.instance, gpus, nodes=1, shm_gib=None) if pool else half,
        restarts=0,
        ttl_seconds=_TTL_SECONDS,
        # It takes no GPU from a training, and a training may take its.
        priority_class=VALIDATION_PRIORITY,
        gang=False,
        deadline_seconds=max(_SHORTEST_SECONDS, int(hours * 3600)),
    )
