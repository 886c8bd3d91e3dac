"""Which charts exist: each is a file, named in the order of application."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import cdk8s

from megatron_eks.charts.platform.dcgm_exporter import DcgmExporter
from megatron_eks.charts.platform.device_plugins import EfaDevicePlugin, NvidiaDevicePlugin
from megatron_eks.charts.platform.etcd import Etcd
from megatron_eks.charts.platform.job_controller import JobController
from megatron_eks.charts.platform.job_records import JobRecords
from megatron_eks.charts.platform.jobset_controller import jobset_controller
from megatron_eks.charts.platform.kueue_controller import kueue_controller
from megatron_eks.charts.platform.kueue_queues import KueueQueues
from megatron_eks.charts.platform.namespaces import Certificates, Namespaces, Quotas
from megatron_eks.charts.platform.network_policies import NetworkPolicies
from megatron_eks.charts.platform.pool_scaler import PoolScaler
from megatron_eks.charts.platform.storage import Storage
from megatron_eks.charts.platform.teams import TeamAccess, Teams
from megatron_eks.charts.platform.trainer_controller import trainer
from megatron_eks.charts.platform.training_operator import training_operator
from megatron_eks.charts.training.batch_job import PlannedJob
from megatron_eks.charts.validation.nvidia_smi import NvidiaSmi
from megatron_eks.config.outputs import CLUSTER_ANNOTATION, Outputs
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.teams import TeamPlan
from megatron_eks.plan.jobs.job import JobPlan

Charts = Mapping[str, cdk8s.Chart]
"""Charts by id, which is the name of their file; asking a chart for its id is a slow call."""

Makers = dict[str, Callable[[cdk8s.App, str], cdk8s.Chart]]
"""What makes a chart of an id, by id."""


def build_platform(app: cdk8s.App, plan: ClusterPlan, outputs: Outputs) -> Charts:
    """Add what runs in the cluster before any job; nothing here starts one."""
    platform, kinds = plan.platform, {each.kind for each in plan.platform.workloads}
    controller = partial(JobController, platform=platform)
    makers = _of_namespace(plan, outputs) | _wanted(
        ("30-nvidia-device-plugin", True, partial(NvidiaDevicePlugin, platform=platform)),
        ("31-efa-device-plugin", platform.efa_instance_types, partial(EfaDevicePlugin, plan=plan)),
        ("32-dcgm-exporter", platform.dcgm_exporter, partial(DcgmExporter, platform=platform)),
        ("40-training-operator", True, partial(controller, of=training_operator)),
        ("42-jobset-controller", "JobSet" in kinds, partial(controller, of=jobset_controller)),
        ("43-trainer-controller", "TrainJob" in kinds, partial(controller, of=trainer)),
        ("44-kueue-controller", platform.kueue, partial(controller, of=kueue_controller)),
        ("60-kueue-queues", platform.kueue, partial(KueueQueues, plan=plan)),
        ("61-pool-scaler", plan.scaled_pools, partial(PoolScaler, plan=plan)),
        ("13-teams", plan.is_shared, partial(Teams, plan=plan)),
    )
    for each in plan.teams if plan.is_shared else ():
        makers |= _of_team(plan.of_team(each.name), each, outputs)
    charts = {name: make(app, name) for name, make in makers.items()}
    _name_cluster(charts.values(), plan)
    return charts


def _of_namespace(plan: ClusterPlan, outputs: Outputs) -> Makers:
    platform = plan.platform
    brings_certificates = platform.egress.ca_bundle is not None
    return _wanted(
        ("00-namespaces", True, partial(Namespaces, plan=plan)),
        ("10-network-policies", True, partial(NetworkPolicies, platform=platform)),
        ("11-quotas", True, partial(Quotas, platform=platform)),
        ("20-storage", True, partial(Storage, plan=plan, outputs=outputs)),
        ("41-job-records", True, partial(JobRecords, plan=plan)),
        ("12-certificates", brings_certificates, partial(Certificates, platform=platform)),
        ("50-etcd", platform.etcd, partial(Etcd, platform=platform)),
    )


def _of_team(plan: ClusterPlan, team: TeamPlan, outputs: Outputs) -> Makers:
    """Return what a team has: its people's rights, and the charts of a namespace of its own."""
    makers: Makers = {"14-access": partial(TeamAccess, team=team)}
    if not plan.platform.first:
        makers |= _of_namespace(plan, outputs)
    return {f"{name}-{team.name}": make for name, make in makers.items()}


def _wanted(*charts: tuple[str, object, Callable[[cdk8s.App, str], cdk8s.Chart]]) -> Makers:
    """Return the charts for which there is a reason, which comes behind their names."""
    return {name: make for name, reason, make in charts if reason}


def build_validation(app: cdk8s.App, plan: ClusterPlan, jobs: Sequence[JobPlan]) -> Charts:
    """Add what proves each pool: does a GPU answer, and the jobs that measure."""
    names = {f"nvidia-smi-{pool.name}": pool for pool in plan.pools}
    queue = plan.queue_in(plan.platform.namespace)
    answers = {
        name: NvidiaSmi(app, name, pool=pool, platform=plan.platform, queue=queue)
        for name, pool in names.items()
    }
    _name_cluster(answers.values(), plan)
    return {**answers, **build_jobs(app, plan, jobs)}


def build_jobs(app: cdk8s.App, plan: ClusterPlan, jobs: Sequence[JobPlan]) -> Charts:
    """Add each job as a chart, hence a file, of its own."""
    return {
        job.name: PlannedJob(app, job.name, job=job, platform=plan.of_team(job.team).platform)
        for job in jobs
    }


def _name_cluster(charts: Iterable[cdk8s.Chart], plan: ClusterPlan) -> None:
    """Let every object carry its cluster's name; jobs bring it, which saves jsii calls."""
    for chart in charts:
        for each in chart.node.find_all():
            if isinstance(each, cdk8s.ApiObject):
                each.metadata.add_annotation(CLUSTER_ANNOTATION, plan.name)
