"""Why nodes do not come: reasons of EC2, Auto Scaling and EKS in plain words, and remedies."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from botocore.client import BaseClient

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


@dataclass(frozen=True)
class Reason:
    """Why a launch failed."""

    found: str
    remedy: str
    waiting_helps: bool = False
    """Whether Auto Scaling may succeed at a later try without anybody doing anything."""


_KNOWN: tuple[tuple[str, Reason], ...] = (
    (
        r"VcpuLimitExceeded|vCPU capacity|MaxSpotInstanceCount|InstanceLimit",
        Reason(
            "the account's quota is too small for {nodes} x {kind}, {vcpus} vCPUs",
            "ask for {vcpus} or more of {quota!r}: aws service-quotas "
            "request-service-quota-increase --service-code ec2 --quota-code {quota_code} "
            "--desired-value {vcpus}",
        ),
    ),
    (
        r"ReservationCapacityExceeded|[Cc]apacity ?[Rr]eservation",
        Reason(
            "the reservation {reservation} has no room: {message}",
            "look at its state, type, zone and free instances: aws ec2 "
            "describe-capacity-reservations",
        ),
    ),
    (
        r"InsufficientInstanceCapacity|sufficient .*capacity|no Spot capacity",
        Reason(
            "EC2 has no free {kind} in {zone} now",
            "Auto Scaling goes on trying; a reservation or Capacity Block is certain, another "
            "zone takes another pool",
            waiting_helps=True,
        ),
    ),
    (
        r"InsufficientFreeAddresses",
        Reason(
            "the subnet in {zone} has no free addresses",
            "give nodes back, or take a larger network.vpc_cidr for a new cluster",
        ),
    ),
    (
        r"NodeCreationFailure|failed to join",
        Reason(
            "nodes started and did not join the cluster",
            "read what one printed: aws ec2 get-console-output; without a NAT gateway look at "
            "network.interface_endpoints",
        ),
    ),
    (
        r"AccessDenied|not authorized|UnauthorizedOperation|service-linked",
        Reason(
            "AWS may not start instances for you: {message}",
            "ask who administers the account for the permission that it names",
        ),
    ),
)
_UNKNOWN = Reason("{message}", "look at the node group in the EKS console", waiting_helps=True)


def explain(message: str, pool: PoolPlan, nodes: int) -> Reason:
    """Say what a message of EC2, Auto Scaling or EKS means for a pool."""
    reason = next((each for pattern, each in _KNOWN if re.search(pattern, message)), _UNKNOWN)
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
    return Reason(reason.found.format(**facts), reason.remedy.format(**facts), reason.waiting_helps)


def offers_of(types: Iterable[str], ec2: BaseClient) -> dict[str, tuple[str, ...]]:
    """Return the zones of the region that offer each of some instance types."""
    found: dict[str, list[str]] = {name: [] for name in types}
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": list(found)}],
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
