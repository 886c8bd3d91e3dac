"""The device plugins: they offer a node's GPUs and EFA interfaces to the scheduler."""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog import pins
from megatron_eks.charts.pods import node_agent, sizes
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.platform import PlatformPlan

_NAME, _SOCKETS = "device-plugins", "/var/lib/kubelet/device-plugins"


class NvidiaDevicePlugin(cdk8s.Chart):
    """A DaemonSet on every node with an NVIDIA driver."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        sockets = k8s.HostPathVolumeSource(path=_SOCKETS, type="Directory")
        volumes = [k8s.Volume(name=_NAME, host_path=sockets)]
        node_agent(self, _container(platform), volumes, taint=platform.gpu_taint)


def _container(platform: PlatformPlan) -> k8s.Container:
    """Describe the plugin with the mounts and rights of upstream's static manifest.

    It runs as root, because the kubelet's socket belongs to root, but with no capability at all.
    """
    return k8s.Container(
        name="nvidia-device-plugin",
        image=platform.egress.image(pins.NVIDIA_DEVICE_PLUGIN_IMAGE),
        image_pull_policy="IfNotPresent",
        command=["nvidia-device-plugin"],
        env=[
            # The container runtime of the AMI hands the driver to containers that ask like this.
            k8s.EnvVar(name="NVIDIA_VISIBLE_DEVICES", value="all"),
            k8s.EnvVar(name="NVIDIA_DRIVER_CAPABILITIES", value="compute,utility"),
            # A node whose driver does not answer shows a failing pod, not a silent zero GPUs.
            k8s.EnvVar(name="FAIL_ON_INIT_ERROR", value="true"),
            # On, it would put /dev/infiniband into GPU pods, which is the EFA plugin's to give.
            k8s.EnvVar(name="MOFED_ENABLED", value="false"),
        ],
        resources=sizes("10m", "64Mi", limit="256Mi"),
        security_context=k8s.SecurityContext(
            allow_privilege_escalation=False, capabilities=k8s.Capabilities(drop=["ALL"])
        ),
        volume_mounts=[k8s.VolumeMount(name=_NAME, mount_path=_SOCKETS)],
    )


# What AWS's chart mounts, each at its own path; the plugin's source is not public, so nothing is
# left out (aws/eks-charts, aws-efa-k8s-device-plugin 0.5.30).
_HOST_PATHS = {
    _NAME: (_SOCKETS, None),
    "infiniband": ("/dev/infiniband/", None),
    "neuron": ("/opt/aws/neuron/", "DirectoryOrCreate"),
}


class EfaDevicePlugin(cdk8s.Chart):
    """A DaemonSet on the instance types that have EFA; elsewhere the plugin would only exit."""

    def __init__(self, scope: Construct, chart_id: str, *, plan: ClusterPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        platform = plan.platform
        image = pins.efa_device_plugin_image(plan.region)
        node_agent(
            self,
            _efa_container(image),
            [
                k8s.Volume(name=name, host_path=k8s.HostPathVolumeSource(path=path, type=kind))
                for name, (path, kind) in _HOST_PATHS.items()
            ],
            taint=platform.gpu_taint,
            affinity=k8s.Affinity(node_affinity=_on(platform.efa_instance_types)),
            host_network=True,
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


def _efa_container(image: str) -> k8s.Container:
    return k8s.Container(
        name="aws-efa-k8s-device-plugin",
        image=image,
        image_pull_policy="IfNotPresent",
        resources=sizes("10m", "20Mi"),
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
