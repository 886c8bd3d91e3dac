"""Why nodes do not come, in plain words and with remedies, and when reserved ones do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from botocore.client import BaseClient

from megatron_eks.config.codes import Code
from megatron_eks.ops.aws.causes import NODES, Cause, first_of
from megatron_eks.ops.aws.session import if_there
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.console import Console, duration
from megatron_eks.ops.failure import NOT_FOUND, Failure
from megatron_eks.plan.cluster.pools import PoolPlan

UNKNOWN_CODE = "CODE"
"""Stands for the code of a quota that sources disagree about."""

# Service Quotas, EC2: quotas count vCPUs by the first letters of the type. Sources disagree about
# p6 on spot, so its quota has no code here.
_ON_DEMAND = {
    "p": ("Running On-Demand P instances", "L-417A185B"),
    "g": ("Running On-Demand G and VT instances", "L-DB2E81BA"),
}
_SPOT = {
    "p4": ("All P4, P3 and P2 Spot Instance Requests", "L-7212CCBC"),
    "p5": ("All P5 Spot Instance Requests", "L-C4BD4855"),
    "p6": ("P6 Spot Instance Requests", UNKNOWN_CODE),
    "g": ("All G and VT Spot Instance Requests", "L-3819A6DF"),
}


def explain(message: str, pool: PoolPlan, nodes: int) -> Cause:
    """Say what a message of EC2, Auto Scaling or EKS means for a pool."""
    reason = first_of(NODES, message)
    quota, code = quota_of(pool)
    facts: dict[str, object] = {
        "kind": pool.instance.name,
        "message": message,
        "nodes": nodes,
        "quota": quota,
        "quota_code": code,
        "reservation": pool.capacity.reservation_id,
        "vcpus": pool.instance.vcpus * nodes,
        "zone": pool.zone,
    }
    found, remedy = reason.found.format(**facts), reason.remedy.format(**facts)
    return replace(reason, found=found, remedy=remedy)


def offers_of(types: Iterable[str], ec2: BaseClient) -> dict[str, tuple[str, ...]]:
    """Return the zones of the region that offer each of some instance types."""
    found: dict[str, list[str]] = {name: [] for name in types}
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": list(found)}]
    )
    for page in pages:
        for each in page["InstanceTypeOfferings"]:
            found[each["InstanceType"]].append(str(each["Location"]))
    return {name: tuple(sorted(zones)) for name, zones in found.items()}


def quota_of(pool: PoolPlan) -> tuple[str, str]:
    """Return name and code of the quota that counts a pool's vCPUs."""
    quotas = _SPOT if pool.capacity.kind == "spot" else _ON_DEMAND
    return next(
        found for letters, found in quotas.items() if pool.instance.name.startswith(letters)
    )


# What neither is nor will become usable (EC2 API, CapacityReservation, State).
OVER = {"expired", "cancelled", "failed", "payment-failed", "unsupported"}
_HOUR = 3600


def start_of(pool: PoolPlan, tools: Tools) -> datetime | None:
    """Return when a pool's reservation starts; None for one that has no start of its own."""
    reservation = str(pool.capacity.reservation_id)
    first = described(reservation, tools.aws.client("ec2"))
    if first is None:
        text = f"this account has no reservation {reservation} in {tools.aws.region}"
        remedy = f"correct capacity.id of {pool.name}"
        raise Failure(Code.NO_CAPACITY, text, remedy, exit_code=NOT_FOUND)
    if first.state in OVER:
        text = f"{reservation} is {first.state}"
        raise Failure(Code.NO_CAPACITY, text, f"name another in capacity.id of {pool.name}")
    return first.starts


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation or Capacity Block."""

    id: str
    state: str
    instance_type: str
    zone: str
    count: int
    starts: datetime | None
    ends: datetime | None
    is_block: bool = False


def described(number: str, ec2: BaseClient) -> Reservation | None:
    """Return what EC2 says of a reservation; None where the account has none of that id."""
    found = if_there(
        ec2.describe_capacity_reservations,
        "InvalidCapacityReservationId",
        CapacityReservationIds=[number],
    )
    if not found or not found["CapacityReservations"]:
        return None
    each: Mapping[str, Any] = found["CapacityReservations"][0]
    return Reservation(
        id=number,
        state=str(each.get("State", "")),
        instance_type=str(each.get("InstanceType", "")),
        zone=str(each.get("AvailabilityZone", "")),
        count=int(each.get("TotalInstanceCount", 0)),
        starts=each.get("StartDate"),
        ends=each.get("EndDate"),
        is_block=each.get("ReservationType") == "capacity-block",
    )


def wait_until(moment: datetime, console: Console) -> None:
    """Wait, and tell from time to time how long it still takes."""
    console.say(f"waiting until {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")
    while (left := (moment - console.clock.now()).total_seconds()) > 0:
        console.say(f"  {duration(left)} left")
        console.clock.sleep(min(left, _HOUR if left > 2 * _HOUR else _HOUR / 12))
