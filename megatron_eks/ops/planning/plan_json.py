"""The plan as JSON: the same content as the tables, with units in the names."""

from dataclasses import asdict

from megatron_eks.catalog.pricing import AS_OF
from megatron_eks.config.load import Json
from megatron_eks.ops.output import picked
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.lustre import CHANGES
from megatron_eks.plan.cluster.queues import QueuePlan
from megatron_eks.plan.cluster.teams import TeamPlan
from megatron_eks.plan.cost import cluster_cost, job_cost
from megatron_eks.plan.jobs.job import JobPlan, Training
from megatron_eks.predict.memory import OVERHEAD_BYTES, MemoryEstimate
from megatron_eks.predict.parameters import parameters
from megatron_eks.project import Project

SIZES = ("tensor", "pipeline", "context", "expert", "data")
"""Of a layout, as they are shown."""


def plan_as_json(project: Project) -> Json:
    """Return the plan as plain JSON values."""
    cost = cluster_cost(project.cluster)
    return {
        "cluster": _cluster(project.cluster),
        "cost": {
            "currency": "USD",
            "prices_as_of": AS_OF.isoformat(),
            **picked(cost, "idle_per_hour=idle_usd_per_hour", "full_per_hour=full_usd_per_hour"),
            "notes": list(cost.notes),
            "items": [
                picked(price, "item", "count", "each_per_hour=usd_per_hour", "per_hour=total")
                for price in (*cost.standing, *cost.gpu_nodes)
            ],
        },
        "jobs": [job_as_json(job, project.cluster) for job in project.jobs],
        "preview": bool(project.preview),
        "warnings": [dict(finding.as_json()) for finding in (*project.warnings, *project.preview)],
        "allowed": [dict(finding.as_json()) for finding in project.allowed],
    }


def _cluster(plan: ClusterPlan) -> Json:
    return {
        **picked(plan, "name", "region", "kubernetes_version", "eks_cluster=eks_name"),
        "stacks": [plan.stack(part) for part in plan.stacks],
        "vpc_id": plan.network.existing.vpc_id if plan.network.existing else None,
        "subnets": [asdict(subnet) for subnet in plan.network.subnets],
        "system_nodes": picked(plan.system_nodes, "instance_type", "count"),
        "gpu_pools": [
            {
                "name": pool.name,
                "instance_type": pool.instance.name,
                "availability_zone": pool.zone,
                "max_nodes": pool.max_nodes,
                "max_gpus": pool.max_nodes * pool.instance.gpus,
                "gpu": pool.instance.gpu.name,
                "efa_interfaces_per_node": pool.instance.efa_interfaces,
                "network_interfaces": [asdict(interface) for interface in pool.interfaces],
                **picked(pool, "max_pods", "ami_release", "placement_group"),
                "capacity": {
                    "type": pool.capacity.kind,
                    "reservation_id": pool.capacity.reservation_id
                    or pool.capacity.reservation_group,
                    "ends_at": ends_at.isoformat() if (ends_at := pool.capacity.ends_at) else None,
                },
            }
            for pool in plan.pools
        ],
        "storage": _storage(plan),
        "data_access": {
            "reads": list(plan.data_access.reads),
            "writes": list(plan.data_access.writes),
        },
        **({"teams": [_team(each) for each in plan.teams]} if plan.is_shared else {}),
        **({"queues": [_queue(each) for each in plan.queues]} if plan.platform.kueue else {}),
        "images": {image.name: f"{image.repository}:{image.tag}" for image in plan.images},
        "mirrored_images": [plan.platform.egress.image(uri) for uri in plan.third_party_images]
        if plan.platform.egress.mirror
        else [],
        "addons": {addon.name: addon.version for addon in plan.addons},
        "notes": list(plan.notes),
    }


def _team(team: TeamPlan) -> Json:
    shown = ("name", "namespace", "gpus", "may_borrow", "priority", "uid", "folder")
    return {
        **picked(team, *shown, "bucket_prefix=prefix"),
        "role_arns": [*team.role_arns],
        "reads": [*team.data_access.reads],
        "writes": [*team.data_access.writes],
    }


def _queue(queue: QueuePlan) -> Json:
    name = queue.team.name if queue.team else None
    return {"name": name, "shares": [asdict(share) for share in queue.shares]}


def _storage(plan: ClusterPlan) -> Json:
    storage = plan.storage
    file_systems: list[Json] = [
        {
            **picked(lustre, "capacity_gib", "throughput_mb_s", "availability_zone=zone"),
            "mount_path": lustre.settings.mount_path,
            "deployment": lustre.deployment.lower(),
            "efa": lustre.settings.efa,
            "claim": lustre.claim,
        }
        for lustre in storage.file_systems
    ]
    return {
        "lustre": file_systems[0],
        "file_systems": file_systems,
        **picked(storage, "existing", "efs", "retain"),
        "changes": {effect: dict(keys) for effect, keys in CHANGES.items()},
    }


def job_as_json(job: JobPlan, plan: ClusterPlan) -> Json:
    """Return one job of the plan."""
    cost = job_cost(job, plan)
    return {
        **picked(job, "name", "kind"),
        "pool": job.pool.name if job.pool else None,
        **picked(job, "nodes", "gpus"),
        "image": job.image.uri,
        **(_training(job.training) if job.training else {}),
        **({"estimated": job.estimated} if job.estimated else {}),
        **({"conversion": dict(asdict(job.conversion))} if job.conversion else {}),
        **({"cost": dict(asdict(cost))} if cost else {}),
        "resources": dict(asdict(job.resources)),
    }


def _training(training: Training) -> dict[str, Json]:
    return {
        "parameters": parameters(training.model),
        "parallelism": picked(training.layout, *SIZES),
        **picked(training, "tokens", "epochs", "checkpoint_bytes"),
        "throughput": dict(asdict(training.speed)) if training.speed else None,
        "goodput": dict(asdict(training.goodput)) if training.goodput else None,
        "memory": memory_as_json(training.memory),
    }


def memory_as_json(memory: MemoryEstimate) -> dict[str, Json]:
    """Return what a run takes of each GPU, by pipeline stage."""
    return {
        **picked(memory, "per_gpu_bytes", "capacity_bytes"),
        "overhead_bytes": OVERHEAD_BYTES,
        "stages": [{**asdict(stage), "total_bytes": stage.total_bytes} for stage in memory.stages],
    }
