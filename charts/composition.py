"""Which charts exist: each is a file, named in the order of application."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import cdk8s

from megatron_eks.charts.platform.dcgm_exporter import DcgmExporter
from megatron_eks.charts.platform.device_plugins import EfaDevicePlugin, NvidiaDevicePlugin
from megatron_eks.charts.platform.etcd import Etcd
from megatron_eks.charts.platform.job_records import JobRecords
from megatron_eks.charts.platform.jobset_controller import JobSetController
from megatron_eks.charts.platform.kueue_controller import KueueController
from megatron_eks.charts.platform.kueue_queues import KueueQueues
from megatron_eks.charts.platform.namespaces import Certificates, Namespaces, Quotas
from megatron_eks.charts.platform.network_policies import NetworkPolicies
from megatron_eks.charts.platform.pool_scaler import PoolScaler
from megatron_eks.charts.platform.storage import Storage
from megatron_eks.charts.platform.teams import TeamAccess, Teams
from megatron_eks.charts.platform.trainer_controller import Trainer
from megatron_eks.charts.platform.training_operator import TrainingOperator
from megatron_eks.charts.training.batch_job import PlannedJob
from megatron_eks.charts.validation.nvidia_smi import NvidiaSmi
from megatron_eks.config.outputs import CLUSTER_ANNOTATION, Outputs
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.teams import TeamPlan
from megatron_eks.plan.jobs.job import JobPlan

Charts = Mapping[str, cdk8s.Chart]
"""Charts by id, which is the name of their file; asking a chart for its id is a slow call."""

Makers = dict[str, Callable[[str], cdk8s.Chart]]
"""What makes a chart of an id, by id."""


def build_platform(app: cdk8s.App, plan: ClusterPlan, outputs: Outputs) -> Charts:
    """Add what runs in the cluster before any job; nothing here starts one."""
    platform = plan.platform
    makers = _of_namespace(app, plan, outputs)
    makers["30-nvidia-device-plugin"] = lambda name: NvidiaDevicePlugin(
        app, name, platform=platform
    )
    if platform.efa_instance_types:
        makers["31-efa-device-plugin"] = lambda name: EfaDevicePlugin(app, name, plan=plan)
    if platform.dcgm_exporter:
        makers["32-dcgm-exporter"] = lambda name: DcgmExporter(app, name, platform=platform)
    makers["40-training-operator"] = lambda name: TrainingOperator(app, name, platform=platform)
    kinds = {each.kind for each in platform.workloads}
    if "JobSet" in kinds:
        makers["42-jobset-controller"] = lambda name: JobSetController(app, name, platform=platform)
    if "TrainJob" in kinds:
        makers["43-trainer-controller"] = lambda name: Trainer(app, name, platform=platform)
    if platform.kueue:
        makers["44-kueue-controller"] = lambda name: KueueController(app, name, platform=platform)
        makers["60-kueue-queues"] = lambda name: KueueQueues(app, name, plan=plan)
    if plan.scaled_pools:
        makers["61-pool-scaler"] = lambda name: PoolScaler(app, name, plan=plan)
    if plan.is_shared:
        makers["13-teams"] = lambda name: Teams(app, name, plan=plan)
    for each in plan.teams if plan.is_shared else ():
        makers |= _of_team(app, plan.of_team(each.name), each, outputs)
    charts = {name: make(name) for name, make in makers.items()}
    _name_cluster(charts.values(), plan)
    return charts


def _of_namespace(app: cdk8s.App, plan: ClusterPlan, outputs: Outputs) -> Makers:
    """Return what each namespace of jobs has."""
    platform = plan.platform
    makers: Makers = {
        "00-namespaces": lambda name: Namespaces(app, name, plan=plan),
        "10-network-policies": lambda name: NetworkPolicies(app, name, platform=platform),
        "11-quotas": lambda name: Quotas(app, name, platform=platform),
        "20-storage": lambda name: Storage(app, name, plan=plan, outputs=outputs),
        "41-job-records": lambda name: JobRecords(app, name, plan=plan),
    }
    if platform.egress.ca_bundle is not None:
        makers["12-certificates"] = lambda name: Certificates(app, name, platform=platform)
    if platform.etcd:
        makers["50-etcd"] = lambda name: Etcd(app, name, platform=platform)
    return makers


def _of_team(app: cdk8s.App, plan: ClusterPlan, team: TeamPlan, outputs: Outputs) -> Makers:
    """Return what a team has: its people's rights, and the charts of a namespace of its own."""
    makers: Makers = {"14-access": lambda name: TeamAccess(app, name, team=team)}
    if not plan.platform.first:
        makers |= _of_namespace(app, plan, outputs)
    return {f"{name}-{team.name}": make for name, make in makers.items()}


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
