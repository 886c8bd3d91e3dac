"""The plan of who comes first on a full node, and of how much the namespace of jobs may hold."""

from dataclasses import dataclass
from typing import Literal

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig

TRAINING_PRIORITY = "megatron-training"
VALIDATION_PRIORITY = "megatron-validation"

SYSTEM_PRIORITIES = ("system-cluster-critical", "system-node-critical")
"""Kubernetes' own classes, above every other; pods of any namespace may name them."""

# Pods without a GPU, such as shards of data preparation, beside one pod for each GPU.
_PODS_WITHOUT_GPU = 100


@dataclass(frozen=True)
class PriorityClassPlan:
    """One class of pods."""

    name: str
    value: int
    """Higher comes first; a pod without a class has 0, Kubernetes' own start at two billion."""
    preempts: bool
    """Whether a pod that finds no place takes that of a lower one."""
    description: str


@dataclass(frozen=True)
class QuotaPlan:
    """A limit on what the pods of some priority classes may hold together."""

    name: str
    hard: tuple[tuple[str, int], ...]
    """Resources, each with its limit."""
    classes: tuple[str, ...] = ()
    """Empty: every pod counts."""
    operator: Literal["In", "NotIn"] = "In"


PRIORITY_CLASSES = (
    PriorityClassPlan(
        name=TRAINING_PRIORITY,
        value=100_000,
        preempts=True,
        description="Training jobs; on a full node they take the place of checks.",
    ),
    PriorityClassPlan(
        name=VALIDATION_PRIORITY,
        value=1_000,
        preempts=False,
        description="Checks of nodes, which wait for a free GPU and give way to training.",
    ),
)


def plan_quotas(config: ClusterConfig) -> tuple[QuotaPlan, ...]:
    """Limit the namespace to what all pools have at their largest.

    Training and everything else are counted apart: a quota refuses a pod before the scheduler
    sees it, so a check that holds one GPU would keep out the pod that is entitled to its place.
    """
    pools = [(INSTANCES[pool.instance_type], pool.max_nodes) for pool in config.gpu_pools]
    gpus = sum(instance.gpus * nodes for instance, nodes in pools)
    efa = sum(instance.efa_interfaces * nodes for instance, nodes in pools)
    devices = (("requests.nvidia.com/gpu", gpus), ("requests.vpc.amazonaws.com/efa", efa))
    return (
        QuotaPlan("training", devices, (TRAINING_PRIORITY,)),
        QuotaPlan("all-but-training", devices, (TRAINING_PRIORITY,), "NotIn"),
        QuotaPlan("pods", (("pods", gpus + _PODS_WITHOUT_GPU),)),
        # Nothing of a job may push a device plugin or the network off its node.
        QuotaPlan("no-system-priority", (("pods", 0),), SYSTEM_PRIORITIES),
    )
