"""Plan and checks of `kind: torchrun`: a program of the user's, once for each GPU."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, has_errors, warning
from megatron_eks.config.job import FsdpJob, MegatronJob, TorchrunJob
from megatron_eks.config.training import Checkpoint, FsdpData, MegatronData, MegatronTraining
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs import environment, pods
from megatron_eks.plan.jobs.job import ARCHIVE, CONFIG_DIRECTORY, JobPlan
from megatron_eks.plan.jobs.layout import check_layout
from megatron_eks.plan.jobs.memory import verdict
from megatron_eks.plan.jobs.models import check_model, model_shape
from megatron_eks.plan.jobs.resources import gpu_instance
from megatron_eks.plan.jobs.runtime import check_gpus
from megatron_eks.plan.jobs.sources import outside
from megatron_eks.plan.jobs.training import at_fewest_nodes, job_memory

# On the pod's own volume, and a name that says in tracebacks whose files these are.
_UNPACKED = "/tmp/code"  # noqa: S108 -- in the pod
_FORMS = ("script", "module", "command")
_OF_DATA = "/data"
_IN_COMMON = ("name", "pool", "nodes", "gpus_per_node", "runtime", "model", "training")

# What starts ranks itself, behind what only sets the stage for it: env, VARIABLE=..., timeout 60.
_LAUNCHER = re.compile(
    r"\s*(?:(?:exec|env|nohup|numactl|timeout \S+|\w+=\S*|-\S+)\s+)*(?:\S*/)?"
    r"(torchrun|deepspeed|mpirun|mpiexec|srun|accelerate(?:-launch|\s+launch)"
    r"|python[\d.]*(?:\s+-[A-Za-z]+)*?\s+-m\s+(?:torch\.distributed\.(?:run|launch)"
    r"|accelerate\.commands\.(?:launch|accelerate_cli\s+launch)|deepspeed\.launcher\.\w+))(?!\S)"
)
_SHELL = re.compile(r"(?:\S*/)?(?:ba|da|z)?sh")
_STARTS = re.compile(r"[;&|(\n]")


def check(job: TorchrunJob, cluster: ClusterConfig) -> Findings:
    """Yield what is wrong with a job file; what its folder holds is judged where it is read."""
    yield from check_gpus(job, cluster)
    yield from _program(job)
    if job.checkpoint is not None:
        yield from outside([(("checkpoint", "directory"), job.checkpoint.directory)], cluster)
        if job.checkpoint.keep_last is None and job.checkpoint.s3_uri is None:
            found = "neither keep_last nor s3_uri is given, so nobody looks after checkpoints"
            yield warning(Code.NO_MEANING, ("checkpoint",), found, "add one of both, or remove it")
    yield from _prediction(job, cluster)


def _program(job: TorchrunJob) -> Findings:
    given = [name for name in _FORMS if getattr(job.program, name) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "nothing says what each rank runs"
        path: Path = ("program", given[-1]) if given else ("program",)
        yield Finding(Code.OWN_PROGRAM, path, found, f"give one of {', '.join(_FORMS)}")
    elif job.program.command is not None and job.program.args:
        found, remedy = "a command has its arguments with it", "add them to the list of command"
        yield Finding(Code.NO_MEANING, ("program", "args"), found, remedy)
    elif launcher := _launcher(job):
        found = f"torchrun starts it once for each GPU, and each would start ranks by {launcher!r}"
        remedy = "name the program that the launcher is to start: [python3, /opt/train.py]"
        if given == ["module"]:
            remedy = "name the program that the launcher is to start, as script, module or command"
        yield Finding(Code.OWN_PROGRAM, ("program", given[0]), found, remedy)
    if code_folder(job) is None and job.code.exclude:
        found = "no folder goes to the pods"
        yield Finding(Code.NO_MEANING, ("code", "exclude"), found, "add code.path, or remove it")


def _launcher(job: TorchrunJob) -> str | None:
    """Return what starts ranks of its own in each rank: the program, or a command of its shell."""
    words = list(job.program.command or ())
    if job.program.module is not None:
        words = ["python", "-m", job.program.module, *job.program.args]
    commands = [" ".join(words)]
    if words and _SHELL.fullmatch(words[0]):
        commands = [each for word in words[1:] for each in _STARTS.split(word)]
    found = next(filter(None, map(_LAUNCHER.match, commands)), None)
    return found[1] if found else None


def _prediction(job: TorchrunJob, cluster: ClusterConfig) -> Findings:
    """Yield what keeps a prediction from being made, and what it says of memory.

    The estimate is that of another program, so that it warns and refuses nothing.
    """
    if (job.model is None) is not (job.training is None):
        missing = "model" if job.model is None else "training"
        found = f"without {missing} nothing is predicted"
        yield warning(Code.NO_MEANING, (), found, f"add {missing}, or remove the other")
    known, instance = _known_kind(job), gpu_instance(job, cluster)
    if known is None or job.model is None:
        return
    found_in_model = [*check_model(job.model)]
    yield from found_in_model
    if instance is None or has_errors(found_in_model):
        return
    model = model_shape(job.model)
    if isinstance(known, MegatronJob):
        layout = [*check_layout(known, model, instance)]
        yield from layout
        if has_errors(layout):
            return
    smallest = at_fewest_nodes(known)
    remedy = partial(str, "use smaller batches or more nodes, if your program is no thriftier")
    for each in verdict(
        job_memory(smallest, model, instance), instance, ("training",), remedy, job.runtime.elastic
    ):
        yield warning(each.code, each.path, f"{each.found}, as {known.kind} has it", each.remedy)


def _known_kind(job: TorchrunJob) -> MegatronJob | FsdpJob | None:
    if job.model is None or job.training is None:
        return None
    directory = job.checkpoint.directory if job.checkpoint else _OF_DATA
    common = {name: getattr(job, name) for name in _IN_COMMON}
    common["checkpoint"] = Checkpoint(directory=directory)
    if isinstance(job.training, MegatronTraining):
        data = MegatronData(prefix=_OF_DATA, tokenizer=_OF_DATA)
        common["parallelism"] = job.parallelism
        return MegatronJob.model_construct(kind="megatron", data=data, **common)
    torch_data = FsdpData(dataset=_OF_DATA, tokenizer=_OF_DATA)
    return FsdpJob.model_construct(kind="fsdp", data=torch_data, **common)


def code_folder(job: TorchrunJob) -> str | None:
    """Return the folder that goes to the pods, below the job file's; None where none does."""
    if job.code.path is not None:
        return job.code.path
    script = job.program.script
    return None if script is None else script.rpartition("/")[0] or "."


def script_within(job: TorchrunJob) -> str | None:
    """Return the script as seen from the folder that goes to the pods."""
    folder, script = code_folder(job), job.program.script
    return script if script is None or folder == "." else script.removeprefix(f"{folder}/")


def plan(job: TorchrunJob, cluster: ClusterPlan, images: pods.Images) -> JobPlan:
    """Plan a job that has passed the checks; its code is added where its folder was read."""
    known = _known_kind(job)
    program = pods.Program(
        name="torchrun_rank",
        args=(
            *pods.guard_args(job, cluster),
            f"--distributed-timeout-minutes={job.runtime.distributed_timeout_minutes}",
            *_words(job),
        ),
        env=environment.environment(job, environment.collectives(pods.log_directory(job, cluster))),
        before=("python3", "-m", f"{PACKAGE}.torchrun_node", *_node(job), "--"),
    )
    training = pods.plan_training(known, cluster) if known is not None else None
    estimated = f"as for kind {known.kind}" if known else "unknown without model and training"
    return replace(
        pods.ranks(job, cluster, images, program, training=training), estimated=estimated
    )


def _words(job: TorchrunJob) -> Iterator[str]:
    own, folder = job.program, code_folder(job)
    if folder is not None:
        yield f"--directory={_UNPACKED}"
    if own.script is not None:
        yield f"--script={script_within(job)}"
    elif own.module is not None:
        yield f"--module={own.module}"
    yield "--"
    yield from own.command or own.args


def _node(job: TorchrunJob) -> Iterator[str]:
    if code_folder(job) is not None:
        yield f"--code={CONFIG_DIRECTORY}/{ARCHIVE}"
        yield f"--directory={_UNPACKED}"
    if (kept := job.checkpoint) is not None:
        yield f"--checkpoints={kept.directory}"
        yield f"--complete-marker={kept.complete_marker}"
        yield from [f"--keep-last={kept.keep_last}"] if kept.keep_last else []
        yield from [f"--s3-uri={kept.s3_uri}"] if kept.s3_uri else []
