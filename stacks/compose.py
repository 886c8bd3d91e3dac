"""The stacks of one cluster, in the order in which they need each other."""

from collections.abc import Mapping

import aws_cdk as cdk

from megatron_eks.plan.cluster import ClusterPlan
from megatron_eks.plan.images import ImageContext
from stacks.cluster import ClusterStack
from stacks.images import ImagesStack
from stacks.job_role import associate
from stacks.network import NetworkStack
from stacks.place import existing_place
from stacks.storage import StorageStack


def build(app: cdk.App, plan: ClusterPlan, contexts: Mapping[str, ImageContext]) -> None:
    """Add every stack of a cluster to an app."""
    made = "Network" in plan.stacks
    place = NetworkStack(app, plan).place if made else existing_place(plan.network)
    storage = StorageStack(app, plan, place)
    ImagesStack(app, plan, contexts)
    if place is not None and "Cluster" in plan.stacks:
        ClusterStack(app, plan, place, storage.job_role)
    else:
        associate(storage, plan, cluster=plan.eks_name, role=storage.job_role)
