"""A smoke test of one pool: does a pod get a GPU whose driver answers."""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog import pins
from megatron_eks.charts.pods import (
    count,
    gpu_toleration,
    quantity,
    unprivileged_container,
    unprivileged_pod,
)
from megatron_eks.plan.cluster.platform import VALIDATION_PRIORITY, PlatformPlan
from megatron_eks.plan.cluster.pools import POOL_LABEL, PoolPlan
from megatron_eks.plan.cluster.queues import queue_labels

_NAME = "nvidia-smi"

# A finished Job cannot run again, so it goes; until then its log can be read.
_KEPT_SECONDS = 3600

# It gives up where the pool stays without nodes, instead of taking a GPU from a job days later.
_DEADLINE_SECONDS = 900


class NvidiaSmi(cdk8s.Chart):
    """A Job that prints the GPU of one node of the pool."""

    def __init__(
        self,
        scope: Construct,
        chart_id: str,
        *,
        pool: PoolPlan,
        platform: PlatformPlan,
        queue: str = "",
    ) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        labels = {"app": _NAME}
        k8s.KubeJob(
            self,
            _NAME,
            metadata=k8s.ObjectMeta(
                name=chart_id,
                namespace=platform.namespace,
                labels={**labels, **queue_labels(queue, VALIDATION_PRIORITY)},
            ),
            spec=k8s.JobSpec(
                backoff_limit=1,
                active_deadline_seconds=_DEADLINE_SECONDS,
                ttl_seconds_after_finished=_KEPT_SECONDS,
                template=k8s.PodTemplateSpec(
                    metadata=k8s.ObjectMeta(labels=labels), spec=_pod(pool, platform)
                ),
            ),
        )


def _pod(pool: PoolPlan, platform: PlatformPlan) -> k8s.PodSpec:
    one_gpu = {"nvidia.com/gpu": count(1), "memory": quantity("256Mi")}
    container = k8s.Container(
        name=_NAME,
        image=platform.egress.image(pins.CUDA_IMAGE),
        image_pull_policy="IfNotPresent",
        command=["nvidia-smi"],
        resources=k8s.ResourceRequirements(
            requests={**one_gpu, "cpu": quantity("100m")}, limits=one_gpu
        ),
        security_context=unprivileged_container(),
    )
    return k8s.PodSpec(
        containers=[container],
        node_selector={POOL_LABEL: pool.name},
        tolerations=[gpu_toleration(platform.gpu_taint)],
        priority_class_name=VALIDATION_PRIORITY,
        security_context=unprivileged_pod(platform.pod_uid),
        restart_policy="Never",
        automount_service_account_token=False,
        enable_service_links=False,
    )
