"""What checks of an account are given: facts, what is wanted, and the time."""

from dataclasses import dataclass
from datetime import datetime

from megatron_eks.config.outputs import Outputs
from megatron_eks.ops.aws.preflight.facts import Facts
from megatron_eks.plan.cluster import ClusterPlan


@dataclass(frozen=True)
class Subject:
    """An account, and the cluster that is or will be in it."""

    facts: Facts
    plan: ClusterPlan
    outputs: Outputs
    now: datetime
