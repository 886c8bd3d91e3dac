"""`meks plan`: what will exist, what it costs, and whether the jobs fit."""

import sys
from typing import TYPE_CHECKING

from megatron_eks.catalog.pricing import AS_OF
from megatron_eks.ops.output import structured, table
from megatron_eks.ops.plan_json import plan_as_json
from megatron_eks.plan.cost import cluster_cost
from megatron_eks.predict.memory import GIB, OVERHEAD_BYTES, parameters
from megatron_eks.project import Project, load_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date
    from pathlib import Path

    from megatron_eks.plan.capacity import CapacityPlan
    from megatron_eks.plan.job import JobPlan


def run(cluster_file: "Path", output: str, today: "date") -> int:
    """Print the plan of a cluster and its jobs; raise ConfigError when there is none."""
    project = load_project(cluster_file, today)
    if output == "table":
        sys.stdout.write("\n".join(_sections(project)) + "\n")
    else:
        sys.stdout.write(structured(plan_as_json(project), output))
    sys.stderr.writelines(f"{finding}\n" for finding in (*project.warnings, *project.preview))
    return 0


def _sections(project: Project) -> "Iterator[str]":
    plan = project.cluster
    lustre = plan.storage.lustre
    yield f"Cluster {plan.name}: EKS {plan.kubernetes_version} in {plan.region}"
    yield ""
    subnets = [
        (
            subnet.zone,
            subnet.private_cidr,
            subnet.public_cidr,
            "yes" if subnet.zone in plan.network.nat_zones else "",
        )
        for subnet in plan.network.subnets
    ]
    yield from table(("ZONE", "PRIVATE SUBNET", "PUBLIC SUBNET", "NAT"), subnets)
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
    yield f"System nodes: {plan.system_nodes.count} x {plan.system_nodes.instance_type}"
    yield (
        f"FSx for Lustre: {lustre.capacity_gib} GiB, {lustre.throughput_mb_s:,.0f} MB/s, "
        f"in {lustre.zone}, at {lustre.mount_path}" + (", retained" if plan.storage.retain else "")
    )
    for image in plan.images:
        yield f"Image {image.repository}:{image.tag}"
    yield ""
    yield from _cost(project)
    for job in project.jobs:
        yield ""
        yield from _job(job)


def _capacity(capacity: "CapacityPlan") -> str:
    kind = capacity.kind.replace("_", " ")
    reservation = f" {capacity.reservation_id}" if capacity.reservation_id else ""
    end = f", until {capacity.ends_at.isoformat(' ', 'minutes')}" if capacity.ends_at else ""
    return f"{kind}{reservation}{end}"


def _cost(project: Project) -> "Iterator[str]":
    cost = cluster_cost(project.cluster)
    rows = [
        (price.item, f"{price.count:g}", _usd(price.usd_per_hour, digits=5), _usd(price.total))
        for price in (*cost.standing, *cost.gpu_nodes)
    ]
    rows.append(("Sum without GPU nodes", "", "", _usd(cost.idle_usd_per_hour)))
    rows.append(("Sum with all GPU nodes", "", "", _usd(cost.full_usd_per_hour)))
    yield from table(("BILLED BY THE HOUR", "COUNT", "USD EACH", "USD/HOUR"), rows, right=(1, 2, 3))
    yield f"List prices of {AS_OF}, without volumes, traffic, logs, builds and S3."
    yield from cost.notes


def _job(job: "JobPlan") -> "Iterator[str]":
    layout, memory = job.layout, job.memory
    yield f"Job {job.name}: {job.nodes} x {job.pool.instance.name}, {job.gpus} GPUs"
    yield (
        f"  {parameters(job.model) / 1e9:.2f} B parameters; "
        f"tensor {layout.tensor} x pipeline {layout.pipeline} x "
        f"context {layout.context} x data {layout.data}"
    )
    checkpoint_gb = job.checkpoint_bytes / 1e9
    yield f"  {job.tokens / 1e9:.1f} B tokens; a checkpoint takes {checkpoint_gb:.0f} GB"
    rows = [
        (
            str(stage.stage),
            _gib(stage.weights_bytes),
            _gib(stage.optimizer_bytes),
            _gib(stage.activations_bytes),
            _gib(stage.logits_bytes),
            _gib(OVERHEAD_BYTES),
            _gib(stage.total_bytes),
            f"{_gib(memory.capacity_bytes)} ({stage.total_bytes / memory.capacity_bytes:.0%})",
        )
        for stage in memory.stages
    ]
    header = ("STAGE", "WEIGHTS", "OPTIMIZER", "ACTIVATIONS", "LOGITS", "OTHER", "GIB/GPU", "OF")
    for line in table(header, rows, right=range(1, 8)):
        yield f"  {line}"
    yield "  Gradients count as weights; OTHER is CUDA, NCCL and the allocator."


def _gib(count: int) -> str:
    return f"{count / GIB:.1f}"


def _usd(price: float | None, digits: int = 2) -> str:
    return "unknown" if price is None else f"{price:,.{digits}f}"
