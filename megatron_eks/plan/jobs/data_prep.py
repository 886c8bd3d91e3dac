"""Plan and checks of `kind: data_prep`: JSONL into Megatron's indexed format, on CPUs."""

from dataclasses import replace
from fnmatch import fnmatchcase

from megatron_eks.catalog.instances import MIB_PER_GIB
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, warning
from megatron_eks.config.job import DataPrepJob
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs import environment
from megatron_eks.plan.jobs.arguments import options
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.pods import Images, Program, task
from megatron_eks.plan.jobs.resources import task_node
from megatron_eks.plan.jobs.runtime import check_task
from megatron_eks.plan.jobs.sources import check_tokenizer, outside

# A chunk of text with its tokens, and a tokenizer, for each worker.
_MIB_PER_WORKER = 4 * MIB_PER_GIB

# Forms of data sets that people have, and the program does not read.
OTHER_FORMS = (".parquet", ".csv", ".tsv", ".arrow", ".zip", ".tar", ".bin", ".idx")
_FILES = (".bin", ".idx", ".json", ".jsonl")
_MOST_PODS = 100_000  # Kubernetes, pkg/apis/batch/validation: maxParallelismForIndexedJob


def check(job: DataPrepJob, cluster: ClusterConfig) -> Findings:
    """Yield what keeps the data from being read or found again."""
    yield from check_task(job, cluster)
    for index, source in enumerate(job.input):
        path = ("input", index)
        if "://" not in source:
            yield from outside([(path, source)], cluster)
        elif not source.startswith("s3://"):
            remedy = "bring it to S3, or to the file system, and name it there"
            yield Finding(Code.DATA_SOURCE, path, f"{source} is no path or S3 URI", remedy)
        if source.endswith(OTHER_FORMS):
            found = f"{source} does not hold a JSON object on each line"
            yield Finding(Code.DATA_SOURCE, path, found, "write it as JSONL first")
    places = [(("output_prefix",), job.output_prefix), (("tokenizer",), job.tokenizer)]
    yield from outside(places, cluster)
    for key in ("input", "json_keys"):
        entries = getattr(job, key)
        for index, entry in enumerate(entries):
            if entry in entries[:index]:
                found = f"{entry!r} is listed twice, and its documents would be in the data twice"
                yield warning(Code.DATA_SOURCE, (key, index), found, "list it once")
    yield from check_tokenizer(("tokenizer",), job.tokenizer)
    if job.shards > _MOST_PODS:
        found = f"{job.shards} pods, and an Indexed Job has at most {_MOST_PODS}"
        yield Finding(Code.TOO_MANY_NODES, ("shards",), found, f"use at most {_MOST_PODS}")
    yield from _output(job)


def _output(job: DataPrepJob) -> Findings:
    prefix, made = job.output_prefix, f"{job.output_prefix}_{job.json_keys[0]}_document.bin"
    if prefix.endswith((*_FILES, "_document")):
        remedy = f"use {prefix.rpartition('.')[0]}: a prefix, and no file"
        if prefix.endswith("_document"):
            remedy = "leave out the key and _document: they are added"
        yield Finding(Code.DATA_SOURCE, ("output_prefix",), f"the data set would be {made}", remedy)
    for index, source in enumerate(job.input):
        # It would take in the data set itself once a pod that was lost starts again.
        if "://" not in source and source != made and fnmatchcase(made, source):
            found = f"{source} takes in {made}, which this job writes"
            remedy = "name the end of the input too, such as *.jsonl, or write elsewhere"
            yield warning(Code.DATA_SOURCE, ("input", index), found, remedy)


def plan(job: DataPrepJob, cluster: ClusterPlan, images: Images) -> JobPlan:
    """Plan a job that has passed the checks; each pod takes its share of the input by its index."""
    offered = task_node(job, cluster)
    cores = offered.cpu_millis // 1000
    memory = min(offered.memory_mib, cores * _MIB_PER_WORKER)
    resources = replace(offered, memory_mib=memory) if job.pool else offered
    program = Program(
        name="prepare_data",
        args=(
            "--input",
            *job.input,
            *options(output_prefix=job.output_prefix, tokenizer=job.tokenizer),
            *(word for key in job.json_keys for word in options(json_key=key)),
            *options(append_eod=job.append_eod, add_bos=job.add_bos, on_bad_line=job.on_bad_line),
            # A pod that comes again goes on where the one before it was lost.
            *options(workers=cores, shards=job.shards, resume=True),
        ),
        env=environment.environment(job),
    )
    return task(job, cluster, images, program, resources=resources, pods=job.shards)
