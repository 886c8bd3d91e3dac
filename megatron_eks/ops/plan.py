"""`meks plan`: what will exist, what it costs, and whether the jobs fit."""

import sys
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain
from pathlib import Path

from megatron_eks.catalog.pricing import AS_OF, EFS_USD_PER_GIB_MONTH
from megatron_eks.config.errors import Finding, dotted
from megatron_eks.ops import carried
from megatron_eks.ops.output import formatted, paragraph, table, usd
from megatron_eks.ops.plan_jobs import job_tables
from megatron_eks.ops.plan_json import plan_as_json
from megatron_eks.plan.cluster.capacity import CapacityPlan
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.lustre import CHANGES
from megatron_eks.plan.cluster.storage import EFS_MOUNT_PATH
from megatron_eks.plan.cost import cluster_cost
from megatron_eks.project import Project, load_project


def run(cluster_file: Path, output: str, today: date) -> int:
    """Print the plan of a cluster and its jobs; raise ConfigError when there is none."""
    project = load_project(cluster_file, today)
    allowed = carried.allowed(project)
    lines = chain(_sections(project), _allowed(allowed))
    sys.stdout.write(formatted(output, lines, lambda: plan_as_json(project, allowed)))
    sys.stderr.writelines(f"{finding}\n" for finding in (*project.warnings, *project.preview))
    return 0


def _sections(project: Project) -> Iterator[str]:
    plan = project.cluster
    yield f"Cluster {plan.name}: EKS {plan.kubernetes_version} in {plan.region}"
    yield ""
    yield from _network(plan)
    yield ""
    pools = [
        (
            pool.name,
            pool.instance.name,
            pool.zone,
            f"0-{pool.max_nodes}",
            f"{pool.max_nodes * pool.instance.gpus} x {pool.instance.gpu.name}",
            str(pool.instance.efa_interfaces),
            str(pool.max_pods),
        )
        for pool in plan.pools
    ]
    yield from table(("POOL", "TYPE", "ZONE", "NODES", "GPUS", "EFA/NODE", "MAX PODS"), pools)
    for pool in plan.pools:
        if pool.capacity.kind != "on_demand":
            yield f"{pool.name}: {_capacity(pool.capacity)}"
    yield ""
    if "Cluster" in plan.stacks:
        yield from _system(plan)
    yield from _storage(plan)
    for verb, uris in (("read", plan.data_access.reads), ("write", plan.data_access.writes)):
        for uri in uris:
            yield f"Jobs {verb} {uri}"
    if plan.image_source is not None:
        yield f"Images from {plan.image_source.url}, branch {plan.image_source.branch}"
    for image in plan.images:
        yield f"Image {image.repository}:{image.tag}"
    for note in plan.notes:
        yield f"To see to: {note}"
    yield ""
    yield from _cost(project)
    if project.jobs:
        yield ""
        yield from job_tables(project.jobs, project.cluster)


def _allowed(findings: Sequence[Finding]) -> Iterator[str]:
    """One paragraph for each thing that somebody allows, with the reason given."""
    if findings:
        yield ""
        yield "ALLOWED ON PURPOSE"
    for each in findings:
        place = f"{each.code} {each.file}:{each.line} {dotted(each.path)}"
        for line in (place, each.found, each.remedy):
            yield from paragraph(line, "" if line is place else "  ", "  ")


def _network(plan: ClusterPlan) -> Iterator[str]:
    existing = plan.network.existing
    if existing is not None:
        subnets = existing.private_subnets.items()
        yield from table((f"ZONE OF {existing.vpc_id}", "PRIVATE SUBNET"), [*subnets])
    if plan.eks_name != plan.name:
        yield f"EKS cluster {plan.eks_name}, which exists"
    if not plan.network.subnets:
        return
    rows = [
        (
            subnet.zone,
            subnet.private_cidr,
            subnet.public_cidr,
            "yes" if subnet.zone in plan.network.nat_zones else "",
        )
        for subnet in plan.network.subnets
    ]
    yield from table(("ZONE", "PRIVATE SUBNET", "PUBLIC SUBNET", "NAT"), rows)


def _system(plan: ClusterPlan) -> Iterator[str]:
    yield f"System nodes: {plan.system_nodes.count} x {plan.system_nodes.instance_type}"
    chosen = [addon.name for addon in plan.addons if addon.version is None]
    if chosen:
        yield f"EKS chooses the version of {', '.join(chosen)}"


def _storage(plan: ClusterPlan) -> Iterator[str]:
    storage = plan.storage
    end = ", exists already" if storage.existing else ", retained" if storage.retain else ""
    for lustre in storage.file_systems:
        kind = "" if lustre.persistent else " SCRATCH_2"
        yield (
            f"FSx for Lustre{kind}{' over EFA' if lustre.efa else ''}: {lustre.capacity_gib} GiB, "
            f"{lustre.throughput_mb_s:,.0f} MB/s, in {lustre.zone}, at {lustre.mount_path}{end}"
        )
    for repository in storage.lustre.repositories:
        yield f"  {storage.lustre.mount_path}{repository.path} shows {repository.s3_uri}"
    if not storage.existing:
        for effect, keys in CHANGES.items():
            yield f"  {effect}: {', '.join(keys)}"
    if storage.efs:
        yield f"EFS in all zones, at {EFS_MOUNT_PATH}{', retained' if storage.retain else ''}"


def _capacity(capacity: CapacityPlan) -> str:
    kind = capacity.kind.replace("_", " ")
    named = capacity.reservation_id or capacity.reservation_group
    reservation = f" {named}" if named else ""
    end = f", until {capacity.ends_at.isoformat(' ', 'minutes')}" if capacity.ends_at else ""
    return f"{kind}{reservation}{end}"


def _cost(project: Project) -> Iterator[str]:
    cost = cluster_cost(project.cluster)
    rows = [
        (price.item, f"{price.count:g}", usd(price.usd_per_hour, digits=5), usd(price.total))
        for price in (*cost.standing, *cost.gpu_nodes)
    ]
    rows.append(("Sum without GPU nodes", "", "", usd(cost.idle_usd_per_hour)))
    rows.append(("Sum with all GPU nodes", "", "", usd(cost.full_usd_per_hour)))
    yield from table(("BILLED BY THE HOUR", "COUNT", "USD EACH", "USD/HOUR"), rows, right=(1, 2, 3))
    yield f"List prices of {AS_OF}, without volumes, traffic, logs, builds and S3."
    if project.cluster.storage.efs:
        yield f"EFS: {EFS_USD_PER_GIB_MONTH:.2f} USD a month for each GiB that it holds, in the US."
    yield from cost.notes
