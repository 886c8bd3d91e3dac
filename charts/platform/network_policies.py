"""Who may talk to whom: nobody, then what every job needs.

Ranks reach those of their own job by a policy in the job's file (charts/training/objects.py).

Policies hold for TCP and UDP of the pod network. EFA traffic bypasses the operating system and
with it every policy: the nodes' security group governs it.
"""

from collections.abc import Sequence

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.charts.network import addresses, dns, policy, ports, scrapers
from megatron_eks.plan.cluster.observability import METRICS_PORT
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.jobs.job import TRAINING_APP

_EVERY_POD = k8s.LabelSelector()
# Where pods fetch their credentials (EKS User Guide, "Understand how EKS Pod Identity works").
_POD_IDENTITY_AGENT = "169.254.170.23/32"

# The node's own credentials live in this range, at 169.254.169.254.
_LINK_LOCAL = "169.254.0.0/16"


def _services(platform: PlatformPlan) -> tuple[str, ...]:
    """Return the range of Services; one that is only guessed may be the VPC's own."""
    return platform.service_cidrs if len(platform.service_cidrs) == 1 else ()


class NetworkPolicies(cdk8s.Chart):
    """Default deny where jobs are and in our own namespace, and what all jobs may reach."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        system = (platform.system_namespace,) if platform.first else ()
        for namespace in (platform.namespace, *system):
            construct_id, name = f"{namespace}-default-deny", "default-deny"
            policy(self, construct_id, namespace=namespace, pods=_EVERY_POD, name=name)
        self._allow(platform.namespace, "allow-dns", to=dns(), ports=ports(53, "UDP", "TCP"))
        agent = addresses(_POD_IDENTITY_AGENT)
        self._allow(platform.namespace, "allow-pod-identity", to=agent, ports=ports(80, "TCP"))
        # S3, container registries and Hugging Face have no fixed addresses; no job calls a Service
        # of the cluster on these ports, such as the API server's or the operator's webhook.
        web = addresses("0.0.0.0/0", _LINK_LOCAL, *_services(platform))
        self._allow(platform.namespace, "allow-https", to=web, ports=ports(443, "TCP"))
        if platform.observed:
            self._let_in_scrapers(platform)
        if platform.egress.proxy_ports:
            reached = [port for each in platform.egress.proxy_ports for port in ports(each, "TCP")]
            self._allow(platform.namespace, "allow-proxy", to=web, ports=reached)

    def _let_in_scrapers(self, platform: PlatformPlan) -> None:
        peers = scrapers(platform.vpc_cidrs, in_pods=platform.observed_by_pods)
        rule = k8s.NetworkPolicyIngressRule(from_=peers, ports=ports(METRICS_PORT, "TCP"))
        training = k8s.LabelSelector(match_labels={"app": TRAINING_APP})
        name = "allow-metrics"
        policy(self, name, namespace=platform.namespace, pods=training, ingress=[rule])

    def _allow(
        self,
        namespace: str,
        name: str,
        *,
        to: k8s.NetworkPolicyPeer,
        ports: Sequence[k8s.NetworkPolicyPort],
    ) -> None:
        out = [k8s.NetworkPolicyEgressRule(to=[to], ports=ports)]
        policy(self, name, namespace=namespace, pods=_EVERY_POD, egress=out)
