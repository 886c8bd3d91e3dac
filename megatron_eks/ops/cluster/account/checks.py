"""All checks of an account, in the order in which they are shown."""

from megatron_eks.ops.checks import Check, Result, judged
from megatron_eks.ops.cluster.account import (
    account_checks,
    capacity_checks,
    deployed_checks,
    network_checks,
)
from megatron_eks.ops.cluster.account.facts import Subject


def _brings(subject: Subject) -> bool:
    plan = subject.plan
    return bool(plan.network.existing or plan.storage.existing or plan.storage.kms_key_arn)


def _has_cluster(subject: Subject) -> bool:
    return subject.facts.cluster is not None or "Cluster" not in subject.plan.stacks


def _has_network(subject: Subject) -> bool:
    return subject.facts.cluster is not None or subject.plan.network.existing is not None


def _has_file_system(subject: Subject) -> bool:
    return any(not each.preview for each in subject.outputs.file_systems)


def _has_images(subject: Subject) -> bool:
    built = any(not each.preview for each in subject.outputs.images.values())
    return built or subject.facts.cluster is not None


def _has_access(subject: Subject) -> bool:
    return subject.outputs.job_role is not None and bool(subject.plan.data_access.buckets)


def _has_reservations(subject: Subject) -> bool:
    return any(pool.capacity.reservation_id for pool in subject.plan.pools)


CHECKS: tuple[Check[Subject], ...] = (
    Check("identity", account_checks.identity),
    Check("permissions", account_checks.permissions),
    Check("names", lambda subject: subject.facts.taken),
    Check("quotas", account_checks.quotas),
    Check("zones offer the types", capacity_checks.offered),
    Check("reservations and Capacity Blocks", capacity_checks.reservations, _has_reservations),
    Check("Kubernetes version supported", deployed_checks.support),
    Check("what the file brings along", network_checks.brought, _brings),
    Check("rules of existing groups", network_checks.rules, _brings),
    Check("free addresses", network_checks.addresses, _has_network),
    Check("default security group", network_checks.default_group, _has_network),
    Check("file systems", deployed_checks.file_systems, _has_file_system),
    Check("images", deployed_checks.images, _has_images),
    Check("S3 for jobs", deployed_checks.job_access, _has_access),
    Check("EKS cluster", deployed_checks.cluster, _has_cluster),
    Check("API endpoint from here", deployed_checks.endpoint, _has_cluster),
    Check("add-ons", deployed_checks.addons, _has_cluster),
    Check("node groups", deployed_checks.node_groups, _has_cluster),
)


def results(subject: Subject) -> list[Result]:
    """Make all checks; one that lacks what it needs says so."""
    return judged(CHECKS, subject, subject.facts.unknown)
