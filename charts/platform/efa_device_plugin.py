"""The EFA device plugin: it offers a node's EFA interfaces to the scheduler."""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from charts.pods import NODE_CRITICAL, gpu_toleration, node_agent, quantity
from megatron_eks.catalog import pins
from megatron_eks.plan.cluster import ClusterPlan

_NAME = "aws-efa-k8s-device-plugin"

# What AWS's chart mounts, each at its own path; the plugin's source is not public, so nothing is
# left out (aws/eks-charts, aws-efa-k8s-device-plugin 0.5.30).
_HOST_PATHS = {
    "device-plugins": ("/var/lib/kubelet/device-plugins", None),
    "infiniband": ("/dev/infiniband/", None),
    "neuron": ("/opt/aws/neuron/", "DirectoryOrCreate"),
}


class EfaDevicePlugin(cdk8s.Chart):
    """A DaemonSet on the instance types that have EFA; elsewhere the plugin would only exit."""

    def __init__(self, scope: Construct, chart_id: str, *, plan: ClusterPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        labels = {"app.kubernetes.io/name": _NAME}
        node_agent(self, _NAME, labels=labels, pod=_pod(plan))


def _pod(plan: ClusterPlan) -> k8s.PodSpec:
    platform = plan.platform
    image = platform.egress.pinned(pins.efa_device_plugin_image(plan.region))
    return k8s.PodSpec(
        containers=[_container(image)],
        volumes=[
            k8s.Volume(name=name, host_path=k8s.HostPathVolumeSource(path=path, type=kind))
            for name, (path, kind) in _HOST_PATHS.items()
        ],
        affinity=k8s.Affinity(node_affinity=_on(platform.efa_instance_types)),
        tolerations=[gpu_toleration(platform.gpu_taint)],
        priority_class_name=NODE_CRITICAL,
        host_network=True,
        automount_service_account_token=False,
    )


def _on(instance_types: tuple[str, ...]) -> k8s.NodeAffinity:
    requirement = k8s.NodeSelectorRequirement(
        key="node.kubernetes.io/instance-type", operator="In", values=list(instance_types)
    )
    term = k8s.NodeSelectorTerm(match_expressions=[requirement])
    return k8s.NodeAffinity(
        required_during_scheduling_ignored_during_execution=k8s.NodeSelector(
            node_selector_terms=[term]
        )
    )


def _container(image: str) -> k8s.Container:
    return k8s.Container(
        name=_NAME,
        image=image,
        image_pull_policy="IfNotPresent",
        resources=k8s.ResourceRequirements(
            requests={"cpu": quantity("10m"), "memory": quantity("20Mi")}
        ),
        # As AWS ships it since 0.5.13; whether this version works with less, nobody has published.
        security_context=k8s.SecurityContext(
            privileged=True,
            allow_privilege_escalation=True,
            run_as_non_root=False,
            run_as_user=0,
        ),
        volume_mounts=[
            k8s.VolumeMount(name=name, mount_path=path) for name, (path, _) in _HOST_PATHS.items()
        ],
    )
