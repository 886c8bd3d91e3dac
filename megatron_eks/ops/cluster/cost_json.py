"""What `meks cost -o json` prints; docs/schemas/cost.json is its schema."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from megatron_eks.catalog.pricing import AS_OF
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.plan.cost import NodeCost

if TYPE_CHECKING:
    from megatron_eks.ops.cluster.cost import CostNow, JobCostNow

SCHEMA_VERSION = 1


def as_json(found: "CostNow", findings: Iterable[Finding]) -> Json:
    """Return it as docs/schemas/cost.json has it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "cluster": found.project.cluster.name,
        "region": found.project.cluster.region,
        "at": found.at.isoformat(),
        "prices_as_of": AS_OF.isoformat(),
        "usd_per_hour": found.usd_per_hour,
        "nodes": [_node_json(each) for each in found.nodes],
        "standing": [
            {
                "item": each.item,
                "count": each.count,
                "usd_each": each.usd_per_hour,
                "usd_per_hour": each.total,
            }
            for each in found.standing
        ],
        "jobs": None if found.jobs is None else [_job_json(each) for each in found.jobs],
        "findings": [dict(finding.as_json()) for finding in findings],
        "notes": [*found.notes],
    }


def _node_json(each: NodeCost) -> Json:
    return {
        "pool": each.pool,
        "instance_type": each.instance_type,
        "capacity": each.capacity,
        "count": each.count,
        "idle": each.idle,
        "not_joined": each.not_joined,
        "usd_each": each.usd_each,
        "usd_per_hour": each.usd_per_hour,
        "idle_usd_per_hour": each.idle_usd_per_hour,
        "since": each.since.isoformat(),
        "usd_so_far": each.usd_so_far,
    }


def _job_json(each: "JobCostNow") -> Json:
    held, basis = each.holdings, "measured" if each.measured else "predicted"
    return {
        "name": held.name,
        "phase": held.phase,
        "pool": held.pool,
        "ranks": len(held.ranks),
        "started": held.started.isoformat() if held.started else None,
        "ended": held.ended.isoformat() if held.ended else None,
        "node_hours": each.spending.node_hours,
        "usd_per_hour": each.spending.usd_per_hour,
        "usd_so_far": each.spending.usd_so_far,
        "seconds_left": each.seconds_left,
        "usd_left": each.usd_left,
        "left_is": basis if each.seconds_left is not None else None,
    }
