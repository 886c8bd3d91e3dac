"""The NVIDIA device plugin: it offers a node's GPUs to the scheduler."""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from charts.pods import GPU_NODES, NODE_CRITICAL, gpu_toleration, node_agent, quantity
from megatron_eks.catalog import pins
from megatron_eks.plan.platform import PlatformPlan

_NAME = "nvidia-device-plugin"
_SOCKETS = "/var/lib/kubelet/device-plugins"


class NvidiaDevicePlugin(cdk8s.Chart):
    """A DaemonSet on every node with an NVIDIA driver."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        labels = {"app.kubernetes.io/name": _NAME}
        node_agent(self, _NAME, labels=labels, pod=_pod(platform))


def _pod(platform: PlatformPlan) -> k8s.PodSpec:
    sockets = k8s.HostPathVolumeSource(path=_SOCKETS, type="Directory")
    return k8s.PodSpec(
        containers=[_container(platform)],
        volumes=[k8s.Volume(name="device-plugins", host_path=sockets)],
        node_selector=GPU_NODES,
        tolerations=[gpu_toleration(platform.gpu_taint)],
        priority_class_name=NODE_CRITICAL,
        automount_service_account_token=False,
    )


def _container(platform: PlatformPlan) -> k8s.Container:
    """Describe the plugin with the mounts and rights of upstream's static manifest.

    It runs as root, because the kubelet's socket belongs to root, but with no capability at all.
    """
    return k8s.Container(
        name=_NAME,
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
        resources=k8s.ResourceRequirements(
            requests={"cpu": quantity("10m"), "memory": quantity("64Mi")},
            limits={"memory": quantity("256Mi")},
        ),
        security_context=k8s.SecurityContext(
            allow_privilege_escalation=False, capabilities=k8s.Capabilities(drop=["ALL"])
        ),
        volume_mounts=[k8s.VolumeMount(name="device-plugins", mount_path=_SOCKETS)],
    )
