"""Who may talk to whom: nobody, then what every job needs.

Policies hold for TCP and UDP of the pod network. EFA traffic bypasses the operating system and
with it every policy: the nodes' security group governs it.
"""

from collections.abc import Sequence

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from charts.network import addresses, dns, ports
from megatron_eks.plan.job import TRAINING_APP
from megatron_eks.plan.platform import PlatformPlan

_EVERY_POD = k8s.LabelSelector()
_BOTH_WAYS = ["Ingress", "Egress"]

# On every pod that the operator makes (kubeflow/trainer v1.9.4, pkg/apis/kubeflow.org/v1).
_OPERATORS_PODS = "training.kubeflow.org/job-name"
# On every pod of an Indexed Job (Kubernetes, "Well-Known Labels").
_INDEXED_PODS = "batch.kubernetes.io/job-completion-index"

# Where pods fetch their credentials (EKS User Guide, "Understand how EKS Pod Identity works").
_POD_IDENTITY_AGENT = "169.254.170.23/32"

# The node's own credentials live in this range, at 169.254.169.254.
_LINK_LOCAL = "169.254.0.0/16"


class NetworkPolicies(cdk8s.Chart):
    """Default deny in both namespaces, and the exceptions that all jobs share."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        self._deny_all(platform.namespace)
        self._deny_all(platform.system_namespace)
        self._allow(platform.namespace, "allow-dns", to=dns(), ports=ports(53, "UDP", "TCP"))
        agent = addresses(_POD_IDENTITY_AGENT)
        self._allow(platform.namespace, "allow-pod-identity", to=agent, ports=ports(80, "TCP"))
        # S3, container registries and Hugging Face have no fixed addresses.
        web = addresses("0.0.0.0/0", _LINK_LOCAL)
        self._allow(platform.namespace, "allow-https", to=web, ports=ports(443, "TCP"))
        if platform.egress.proxy_ports:
            reached = [port for each in platform.egress.proxy_ports for port in ports(each, "TCP")]
            self._allow(platform.namespace, "allow-proxy", to=web, ports=reached)
        self._ranks(platform.namespace, "allow-ranks", _OPERATORS_PODS)
        self._ranks(platform.namespace, "allow-indexed-ranks", _INDEXED_PODS)

    def _ranks(self, namespace: str, name: str, label: str) -> None:
        """Allow every port between ranks; torch and NCCL pick theirs at random.

        One policy for all jobs of a sort: a namespace is one team's, and a policy a job would cost
        every file an object and a third of its time.
        """
        ranks = k8s.LabelSelector(
            match_labels={"app": TRAINING_APP},
            match_expressions=[k8s.LabelSelectorRequirement(key=label, operator="Exists")],
        )
        peers = [k8s.NetworkPolicyPeer(pod_selector=ranks)]
        k8s.KubeNetworkPolicy(
            self,
            name,
            metadata=k8s.ObjectMeta(name=name, namespace=namespace),
            spec=k8s.NetworkPolicySpec(
                pod_selector=ranks,
                policy_types=_BOTH_WAYS,
                ingress=[k8s.NetworkPolicyIngressRule(from_=peers)],
                egress=[k8s.NetworkPolicyEgressRule(to=peers)],
            ),
        )

    def _deny_all(self, namespace: str) -> None:
        k8s.KubeNetworkPolicy(
            self,
            f"{namespace}-default-deny",
            metadata=k8s.ObjectMeta(name="default-deny", namespace=namespace),
            spec=k8s.NetworkPolicySpec(pod_selector=_EVERY_POD, policy_types=_BOTH_WAYS),
        )

    def _allow(
        self,
        namespace: str,
        name: str,
        *,
        to: k8s.NetworkPolicyPeer,
        ports: Sequence[k8s.NetworkPolicyPort],
    ) -> None:
        k8s.KubeNetworkPolicy(
            self,
            name,
            metadata=k8s.ObjectMeta(name=name, namespace=namespace),
            spec=k8s.NetworkPolicySpec(
                pod_selector=_EVERY_POD,
                policy_types=["Egress"],
                egress=[k8s.NetworkPolicyEgressRule(to=[to], ports=ports)],
            ),
        )
