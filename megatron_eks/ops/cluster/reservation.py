"""When a reservation or Capacity Block starts, and waiting for that."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from botocore.client import BaseClient

from megatron_eks.config.codes import Code
from megatron_eks.ops.aws.session import if_there
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.console import Console, duration
from megatron_eks.ops.failure import NOT_FOUND, Failure
from megatron_eks.plan.cluster.pools import PoolPlan

# What neither is nor will become usable (EC2 API, CapacityReservation, State).
OVER = {"expired", "cancelled", "failed", "payment-failed", "unsupported"}
_STEPS = ((2 * 3600, 3600), (15 * 60, 300), (120, 60), (0, 15))
"""How often the time left is told, by how much is left."""


def start_of(pool: PoolPlan, tools: Tools) -> datetime | None:
    """Return when a pool's reservation starts; None for one that has no start of its own."""
    reservation = str(pool.capacity.reservation_id)
    first = described(reservation, tools.aws.client("ec2"))
    if first is None:
        text = f"this account has no reservation {reservation} in {tools.aws.region}"
        remedy = f"correct capacity.id of {pool.name}"
        raise Failure(Code.NO_CAPACITY, text, remedy, exit_code=NOT_FOUND)
    state = str(first.get("State", ""))
    if state in OVER:
        text = f"{reservation} is {state}"
        raise Failure(Code.NO_CAPACITY, text, f"name another in capacity.id of {pool.name}")
    return utc(first.get("StartDate"))


def described(number: str, ec2: BaseClient) -> Mapping[str, Any] | None:
    """Return what EC2 says of a reservation; None where the account has none of that id."""
    found = if_there(
        ec2.describe_capacity_reservations,
        "InvalidCapacityReservationId",
        CapacityReservationIds=[number],
    )
    return next(iter(found["CapacityReservations"]), None) if found else None


def utc(moment: object) -> datetime | None:
    """Return a time of AWS's; None where it gives none."""
    return moment.astimezone(UTC) if isinstance(moment, datetime) else None


def wait_until(moment: datetime, console: Console) -> None:
    """Wait, and tell from time to time how long it still takes."""
    console.say(f"waiting until {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")
    while (left := (moment - console.clock.now()).total_seconds()) > 0:
        step = next(step for limit, step in _STEPS if left > limit)
        console.say(f"  {duration(left)} left")
        console.clock.sleep(min(left, step))
