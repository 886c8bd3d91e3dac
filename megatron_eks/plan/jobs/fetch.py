"""Plan and checks of `kind: fetch`: a model, a tokenizer or data onto the shared file system."""

from megatron_eks.catalog.instances import MIB_PER_GIB
from megatron_eks.catalog.models import PRESETS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings
from megatron_eks.config.job import FetchJob
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs import environment
from megatron_eks.plan.jobs.arguments import options
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.pods import Images, Program, task, token_file
from megatron_eks.plan.jobs.resources import Resources, system_resources
from megatron_eks.plan.jobs.runtime import check_task
from megatron_eks.plan.jobs.sources import from_the_hub, is_repository, outside

_SOURCES = ("model", "tokenizer", "s3_uri")
# Streams of a few files at once.
_CPU_MILLIS, _MEMORY_MIB = 4000, 8 * MIB_PER_GIB


def check(job: FetchJob, cluster: ClusterConfig) -> Findings:
    """Yield what keeps the files from coming, or from being found."""
    yield from check_task(job, cluster)
    given = [name for name in _SOURCES if getattr(job, name) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "no source is given"
        remedy = f"give one of {', '.join(_SOURCES)}"
        yield Finding(Code.FETCH_SOURCE, (given[-1],) if given else (), found, remedy)
    for name in ("model", "tokenizer"):
        value = getattr(job, name)
        if value is None:
            continue
        if is_repository(value) and value not in PRESETS:
            yield from from_the_hub(job, (name,), value, cluster)
            continue
        what = "is a preset of this project, and" if value in PRESETS else "is"
        found = f"{value!r} {what} no name of a Hugging Face repository"
        yield Finding(Code.FETCH_SOURCE, (name,), found, "use OWNER/NAME, as its page has it")
    if job.token_secret and job.s3_uri:
        yield Finding(Code.NO_MEANING, ("token_secret",), "S3 takes no such token", "remove it")
    yield from outside([(("directory",), job.directory)], cluster)


def plan(job: FetchJob, cluster: ClusterPlan, images: Images) -> JobPlan:
    """Plan a job that has passed the checks."""
    token = token_file(job.token_secret)
    source = next(name for name in _SOURCES if getattr(job, name) is not None)
    program = Program(
        name="fetch",
        args=options(
            **{source: getattr(job, source)},
            directory=job.directory,
            token_file=token.path if token else None,
        ),
        env=environment.environment(job),
        secrets=(token,) if token else (),
    )
    half = system_resources(cluster.system_nodes.instance_type)
    resources = Resources(_CPU_MILLIS, _MEMORY_MIB) if job.pool else half
    return task(job, cluster, images, program, resources=resources)
