"""The pod that reaches the shared file system for a command, where no job's pod is needed."""

from dataclasses import replace
from typing import TYPE_CHECKING

from megatron_eks.catalog.instances import MIB_PER_GIB
from megatron_eks.config.job import Job
from megatron_eks.plan.jobs.common import Images, Program, task
from megatron_eks.plan.quotas import VALIDATION_PRIORITY
from megatron_eks.plan.resources import cpu_resources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from megatron_eks.plan.cluster import ClusterPlan
    from megatron_eks.plan.job import JobPlan

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


def plan_shared(
    cluster: "ClusterPlan", images: Images, program: str, args: "Sequence[str]"
) -> "JobPlan":
    """Plan one run of one of our programs on the system nodes."""
    known = next((name for name, image in images.items() if not image.preview), "megatron")
    job = Job(schema_version=1, kind=_KIND, name=SHARED_APP, image=known)
    run = Program(program, tuple(args), {}, {})
    resources = cpu_resources(_CPU_MILLIS, _MEMORY_MIB, _SCRATCH_GIB)
    return replace(
        task(job, cluster, images, run, resources=resources),
        deadline_seconds=_DEADLINE_SECONDS,
        grace_seconds=_GRACE_SECONDS,
        priority_class=VALIDATION_PRIORITY,
    )
