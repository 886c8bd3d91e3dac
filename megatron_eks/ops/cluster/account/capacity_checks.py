"""Checks of whether a pool's nodes can be had: zones, reservations, Capacity Blocks."""

from collections.abc import Iterator
from datetime import timedelta

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.ops.cluster.account.facts import Reservation, Subject
from megatron_eks.ops.cluster.reservation import OVER
from megatron_eks.ops.console import duration
from megatron_eks.plan.cluster.pools import PoolPlan

# EC2 begins to end a block's instances half an hour before its end, EKS scales down ten minutes
# earlier (EKS User Guide, "Create a managed node group with Capacity Blocks for ML").
_SCALED_DOWN_BEFORE = timedelta(minutes=40)
_SOON = timedelta(hours=6)
_INACCURACY = timedelta(minutes=1)


def offered(subject: Subject) -> Iterator[Finding]:
    """Compare each pool's zone with those that offer its type."""
    offers, region = subject.facts.offered, subject.plan.region
    for index, pool in enumerate(subject.plan.pools):
        name = pool.instance.name
        zones = offers.get(name)
        if zones is None or pool.zone in zones:
            continue
        path: Path = ("gpu_pools", index, "availability_zone")
        if not zones:
            found = f"no zone of {region} offers {name}"
            remedy = "take another region or type: aws ec2 describe-instance-type-offerings"
        else:
            found = f"{pool.zone} does not offer {name}"
            remedy = f"use {' or '.join(zones)}"
        yield Finding(Code.TYPE_NOT_OFFERED, path, found, remedy)
    system = subject.plan.system_nodes.instance_type
    zones = offers.get(system)
    # One zone is enough for them.
    elsewhere = zones is not None and set(zones).isdisjoint(subject.plan.availability_zones)
    if "Cluster" in subject.plan.stacks and elsewhere:
        found = f"none of the cluster's zones offers {system}"
        remedy = "use another type of the same size"
        yield Finding(Code.TYPE_NOT_OFFERED, ("system_nodes", "instance_type"), found, remedy)


def reservations(subject: Subject) -> Iterator[Finding]:
    """Compare each pool's reservation with the pool."""
    for index, pool in enumerate(subject.plan.pools):
        number = pool.capacity.reservation_id
        if number is None or number not in subject.facts.reservations:
            continue
        path: Path = ("gpu_pools", index, "capacity", "id")
        found = subject.facts.reservations[number]
        if found is None:
            text = f"this account has no reservation {number} in {subject.plan.region}"
            remedy = "correct it: aws ec2 describe-capacity-reservations"
            yield Finding(Code.RESERVATION, path, text, remedy)
        else:
            yield from _mismatches(pool, found, path)
            yield from _window(subject, pool, found, path[:-1])


def _mismatches(pool: PoolPlan, found: Reservation, path: Path) -> Iterator[Finding]:
    if found.state in OVER:
        text, remedy = f"{found.id} is {found.state}", "name another reservation"
        yield Finding(Code.RESERVATION, path, text, remedy)
        return
    if found.instance_type != pool.instance.name:
        text = f"{found.id} is for {found.instance_type}, and the pool for {pool.instance.name}"
        yield Finding(Code.RESERVATION, path, text, "make both the same")
    if found.zone != pool.zone:
        text = f"{found.id} is in {found.zone}, and the pool in {pool.zone}"
        remedy = f"write availability_zone: {found.zone}"
        yield Finding(Code.RESERVATION, path, text, remedy)
    if found.count < pool.max_nodes:
        text = f"{found.id} has {found.count} instances, and the pool takes up to {pool.max_nodes}"
        yield Finding(Code.RESERVATION, path, text, f"write max_nodes: {found.count}")


def _window(subject: Subject, pool: PoolPlan, found: Reservation, path: Path) -> Iterator[Finding]:
    """Look at the time in which a block's instances run."""
    if found.state in OVER:
        return
    code, now = Code.RESERVATION_WINDOW, subject.now
    if found.state != "active" and found.starts is not None and found.starts > now:
        text = f"{found.id} starts at {found.starts:%Y-%m-%d %H:%M} UTC"
        remedy = f"wait for it: meks scale {pool.name} {pool.max_nodes} --at start"
        yield Finding(code, path, text, remedy, Level.WARNING)
    if found.ends is None:
        return
    left = found.ends - _SCALED_DOWN_BEFORE - now
    if left <= timedelta(0):
        text = f"{found.id} ends at {found.ends:%Y-%m-%d %H:%M} UTC, and takes no nodes any more"
        yield Finding(code, path, text, "name another block")
    elif left < _SOON:
        text = f"nodes of {found.id} go in {duration(left.total_seconds())}"
        remedy = "start nothing that cannot end, or save, before that"
        yield Finding(code, path, text, remedy, Level.WARNING)
    ends_at = pool.capacity.ends_at
    if ends_at is not None and abs(ends_at - found.ends) > _INACCURACY:
        text = f"the file says it ends at {ends_at:%Y-%m-%d %H:%M} UTC, EC2 says"
        text += f" {found.ends:%Y-%m-%d %H:%M} UTC"
        remedy = f"write ends_at: {found.ends:%Y-%m-%dT%H:%M:%SZ}"
        yield Finding(code, (*path, "ends_at"), text, remedy)
