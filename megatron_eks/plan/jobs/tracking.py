"""`runtime.tracking`: Weights & Biases and MLflow, told by variables, with keys from Secrets.

Sources: Weights & Biases, "Environment variables"; MLflow, mlflow/environment_variables.py;
Megatron-LM core_v0.19, training/global_vars.py; Megatron-Bridge 0.6, training/config.py.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Level, Path, warning
from megatron_eks.config.job import (
    Job,
    MegatronBridgeJob,
    MegatronJob,
    MegatronRun,
    Run,
    TorchRun,
    TorchrunJob,
)
from megatron_eks.config.runtime import Mlflow, SecretKey
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.egress import has_no_way_out
from megatron_eks.plan.cluster.observability import METRICS_PORT
from megatron_eks.plan.jobs.job import Training
from megatron_eks.plan.jobs.resources import job_gpus
from megatron_eks.plan.jobs.training import step_tokens, steps
from megatron_eks.programs.exporter.event_files import VARIABLE
from megatron_eks.programs.exporter.plan import Plan

KEY = "WANDB_API_KEY"
_SECRET_KEY = "token"  # noqa: S105 -- the name of a key, as `meks secret set` writes it
_FOLDER = "/tmp"  # noqa: S108 -- on the pod's own volume
_PLACE: Path = ("runtime", "tracking")

_STARTS = 2
_OPTION, _OVERRIDE = "--wandb-project", "logger.wandb_project"
# Each of these needs no key, or says where there is one.
_KEYED = re.compile(r"WANDB_(API_KEY|MODE|DISABLED|IDENTITY_TOKEN_FILE|CONFIG_DIR)|NETRC")


def variables(job: Job) -> Mapping[str, str]:
    """Return what both libraries read; each start is a run of its own, in the job's group."""
    tracking = job.runtime.tracking
    found: dict[str, str] = {}
    if tracking and tracking.wandb:
        names = {"WANDB_NAME": job.name, "WANDB_RUN_GROUP": job.name, "WANDB_DIR": _FOLDER}
        # Without reports of its own errors to its makers; MLflow's below.
        names["WANDB_ERROR_REPORTING"] = "false"
        found |= names | {"WANDB_PROJECT": tracking.wandb.project}
    if tracking and tracking.mlflow:
        found["MLFLOW_TRACKING_URI"] = _server(tracking.mlflow)
        found["MLFLOW_EXPERIMENT_NAME"] = tracking.mlflow.experiment
        found["MLFLOW_DISABLE_TELEMETRY"] = "true"
        if tracking.mlflow.uri:
            # SageMaker's plugin (sagemaker_mlflow 0.5) takes an address for an ARN, of which MLflow
            # warns at each request.
            found["MLFLOW_LOGGING_LEVEL"] = "ERROR"
    return found


def keys(job: Job) -> Mapping[str, SecretKey]:
    """Return all variables of a job whose values are in Secrets."""
    tracking = job.runtime.tracking
    wandb = tracking.wandb if tracking else None
    own = {KEY: SecretKey(secret=wandb.secret, key=_SECRET_KEY)} if wandb else {}
    return own | job.runtime.secret_env


def options(job: Job) -> Iterator[tuple[str, ...]]:
    """Yield Megatron-LM's own options."""
    if (tracking := job.runtime.tracking) and tracking.wandb:
        yield "--wandb-project", tracking.wandb.project
        yield "--wandb-exp-name", job.name
        yield "--wandb-save-dir", _FOLDER


def overrides(job: Job) -> Mapping[str, str]:
    """Return Megatron-Bridge's own settings."""
    named = ((option.removeprefix("--").replace("-", "_"), word) for option, word in options(job))
    found = {f"logger.{name}": word for name, word in named}
    if (tracking := job.runtime.tracking) and (mlflow := tracking.mlflow):
        found |= {
            "logger.mlflow_tracking_uri": _server(mlflow),
            "logger.mlflow_experiment": mlflow.experiment,
            "logger.mlflow_run_name": job.name,
        }
    return found


def trackers(job: Job) -> tuple[str, ...]:
    """Return what our own trainers send their figures to."""
    tracking = job.runtime.tracking
    names = ("wandb", "mlflow") if tracking else ()
    return tuple(name for name in names if getattr(tracking, name))


def check_tracking(job: Job, cluster: ClusterConfig) -> Findings:
    """Yield trackers that would get nothing, or end the run."""
    tracking = job.runtime.tracking
    yield from _unkeyed(job)
    if tracking is None:
        return
    if not isinstance(job, (MegatronRun, TorchRun, TorchrunJob)):
        found = f"tracking has no meaning for {job.kind}"
        yield Finding(Code.NO_MEANING, _PLACE, found, "remove it")
        return
    if not trackers(job):
        yield Finding(Code.TRACKING, _PLACE, "it names no tracker", "add wandb or mlflow")
    if tracking.wandb:
        if KEY in job.runtime.secret_env:
            found = f"{KEY} stands in runtime.secret_env as well"
            yield Finding(Code.TRACKING, (*_PLACE, "wandb", "secret"), found, "keep one of both")
        env = job.runtime.env
        if has_no_way_out(cluster) and not {"WANDB_BASE_URL", "WANDB_MODE"} & env.keys():
            found = "pods reach nothing but AWS in the region, and api.wandb.ai is outside"
            remedy = "set runtime.env: {WANDB_MODE: offline}, or WANDB_BASE_URL to a server inside"
            yield Finding(Code.TRACKING, (*_PLACE, "wandb"), found, remedy)
    if tracking.mlflow:
        yield from _mlflow(tracking.mlflow, cluster)


def _unkeyed(job: Job) -> Findings:
    """Warn of a run that ends at each start: its last rank calls wandb.init, which wants a key."""
    if any(_KEYED.fullmatch(name) for name in (*job.runtime.env, *keys(job))):
        return
    places: list[Path] = []
    if isinstance(job, MegatronJob):
        words = [word.partition("=")[0] for word in job.extra_args]
        places = [("extra_args", index) for index, word in enumerate(words) if word == _OPTION]
    elif isinstance(job, MegatronBridgeJob) and job.overrides.get(_OVERRIDE):
        places = [("overrides", _OVERRIDE)]
    for place in places:
        found = "W&B asks for a key, and no terminal answers"
        remedy = "use runtime.tracking, or runtime.secret_env: {WANDB_API_KEY: {secret, key}}"
        yield warning(Code.VARIABLE_MISSING, place, found, remedy)


def _server(mlflow: Mlflow) -> str:
    """Return what MLflow calls a tracking URI; with its plugin an ARN is one."""
    return mlflow.arn or mlflow.uri or ""


def _mlflow(mlflow: Mlflow, cluster: ClusterConfig) -> Findings:
    place: Path = (*_PLACE, "mlflow")
    if mlflow.arn is not None:
        if mlflow.uri is not None:
            yield Finding(Code.TRACKING, (*place, "uri"), "arn names a server too", "keep one")
        if has_no_way_out(cluster):
            found = "pods reach nothing but AWS's endpoints in the VPC, and this is none of them"
            remedy = "make an interface endpoint of SageMaker's MLflow, or use a NAT gateway"
            yield warning(Code.TRACKING, (*place, "arn"), found, remedy)
    elif mlflow.uri is None:
        yield Finding(Code.TRACKING, place, "no server is named", "add uri: https://..., or arn")
    elif problem := _address(mlflow.uri):
        yield Finding(Code.TRACKING, (*place, "uri"), *problem)


def _address(uri: str) -> tuple[str, str, Level] | None:
    parts = urlsplit(uri)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return f"{uri!r} is no address of a server", "use https://HOST", Level.ERROR
    if parts.username or parts.password:
        remedy = "name a Secret: runtime.secret_env: {MLFLOW_TRACKING_PASSWORD: {secret, key}}"
        return "a password in a file ends in logs", remedy, Level.ERROR
    if parts.scheme == "http" or parts.netloc.rpartition(":")[2].isdecimal():
        found = f"{uri}: the platform's network policies let pods out over HTTPS (443) alone"
        remedy = "let the server answer there, or add a NetworkPolicy of your own for its port"
        return found, remedy, Level.WARNING
    return None


def plan_metrics(job: Job, cluster: ClusterPlan, training: Training | None) -> Plan | None:
    """Return it for a run that makes steps; None for others, and where nobody is to be told."""
    sends = isinstance(job, MegatronJob) and "mlflow" in trackers(job)
    is_watched = cluster.observability is not None
    if not isinstance(job, MegatronRun | TorchRun | TorchrunJob) or not (is_watched or sends):
        return None
    port = METRICS_PORT if is_watched else 0
    plan = Plan(job.name, job.kind, port, nodes=job.nodes, mlflow=sends or None)
    if isinstance(job, TorchrunJob):
        saved = job.checkpoint.directory if job.checkpoint else None
        gpus = job_gpus(job, cluster.pool(job.pool).instance)
        plan = replace(plan, event_files=job.runtime.env.get(VARIABLE, saved), gpus=gpus)
    if training and isinstance(job, Run):
        plan = replace(
            plan,
            steps=steps(job)[1],
            tokens=step_tokens(job, training.layout.gpus),
            log_interval=job.training.log_interval,
            save_interval=job.checkpoint.interval,
        )
    if isinstance(job, TorchRun):
        plan = replace(plan, metrics_file=f"{job.checkpoint.directory}/metrics.jsonl")
    if training and (speed := training.speed) and (goodput := training.goodput):
        seconds, rate = speed.step_seconds, speed.tokens_per_second_per_gpu
        plan = replace(
            plan,
            peak_seconds=speed.mfu * seconds,
            step_seconds=seconds,
            step_seconds_low=seconds * rate / speed.high,
            step_seconds_high=seconds * rate / speed.low,
            goodput=goodput.expected,
            start_seconds=_STARTS * goodput.restart_seconds,
        )
    return plan
