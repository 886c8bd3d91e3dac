"""A small etcd in which ranks meet that are told to: `rendezvous: etcd`.

One member without a disk: agents that lose it end, their pods start again, and the ranks meet anew.
Torch speaks the second version of its interface, which etcd 3.6 no longer has.
"""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog import pins
from megatron_eks.charts.network import policy, ports
from megatron_eks.charts.pods import (
    one_pod,
    quantity,
    sizes,
    unprivileged_container,
    unprivileged_pod,
)
from megatron_eks.plan.cluster.platform import ETCD_PORT, ETCD_SERVICE, PlatformPlan
from megatron_eks.plan.jobs.job import TRAINING_APP

_LABELS = {"app": ETCD_SERVICE}
_DATA = "/data"


class Etcd(cdk8s.Chart):
    """A Deployment of one pod, its Service, and who may reach it."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        metadata = k8s.ObjectMeta(name=ETCD_SERVICE, namespace=platform.namespace, labels=_LABELS)
        # Two members that know nothing of each other would part the ranks of a job.
        one_pod(self, metadata, _LABELS, _pod(platform))
        k8s.KubeService(
            self,
            "service",
            metadata=metadata,
            spec=k8s.ServiceSpec(selector=_LABELS, ports=[k8s.ServicePort(port=ETCD_PORT)]),
        )
        self._policies(platform.namespace)

    def _policies(self, namespace: str) -> None:
        ranks = k8s.LabelSelector(match_labels={"app": TRAINING_APP})
        etcd = k8s.LabelSelector(match_labels=_LABELS)
        client = ports(ETCD_PORT, "TCP")
        to = [k8s.NetworkPolicyPeer(pod_selector=etcd)]
        out = [k8s.NetworkPolicyEgressRule(to=to, ports=client)]
        policy(self, "allow-ranks-to-etcd", namespace=namespace, pods=ranks, egress=out)
        peers = [k8s.NetworkPolicyPeer(pod_selector=ranks)]
        into = [k8s.NetworkPolicyIngressRule(from_=peers, ports=client)]
        policy(self, "allow-etcd-from-ranks", namespace=namespace, pods=etcd, ingress=into)


def _pod(platform: PlatformPlan) -> k8s.PodSpec:
    address = f"http://0.0.0.0:{ETCD_PORT}"
    port = k8s.IntOrString.from_number(ETCD_PORT)
    container = k8s.Container(
        name=ETCD_SERVICE,
        image=platform.egress.image(pins.ETCD_IMAGE),
        image_pull_policy="IfNotPresent",
        command=["etcd"],
        args=[
            "--enable-v2",
            f"--data-dir={_DATA}",
            f"--listen-client-urls={address}",
            # Clients are told this address as the member's own, so it is the Service's.
            f"--advertise-client-urls=http://{ETCD_SERVICE}:{ETCD_PORT}",
        ],
        ports=[k8s.ContainerPort(container_port=ETCD_PORT)],
        readiness_probe=k8s.Probe(http_get=k8s.HttpGetAction(path="/health", port=port)),
        resources=sizes("100m", "128Mi", limit="256Mi"),
        security_context=unprivileged_container(),
        volume_mounts=[k8s.VolumeMount(name="data", mount_path=_DATA)],
    )
    data = k8s.EmptyDirVolumeSource(size_limit=quantity("1Gi"))
    return k8s.PodSpec(
        # No toleration: it runs on the system nodes.
        containers=[container],
        volumes=[k8s.Volume(name="data", empty_dir=data)],
        security_context=unprivileged_pod(platform.pod_uid),
        automount_service_account_token=False,
        enable_service_links=False,
    )
