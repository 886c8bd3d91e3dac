"""Network policies, their peers and ports."""

from collections.abc import Sequence

from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.charts.pods import KUBE_SYSTEM


def policy(
    scope: Construct,
    construct_id: str,
    *,
    namespace: str,
    pods: k8s.LabelSelector,
    ingress: Sequence[k8s.NetworkPolicyIngressRule] | None = None,
    egress: Sequence[k8s.NetworkPolicyEgressRule] | None = None,
    name: str | None = None,
) -> None:
    """Allow the ways that there are rules for; without any rule, forbid both."""
    ways = [way for way, rules in (("Ingress", ingress), ("Egress", egress)) if rules]
    k8s.KubeNetworkPolicy(
        scope,
        construct_id,
        metadata=k8s.ObjectMeta(name=name or construct_id, namespace=namespace),
        spec=k8s.NetworkPolicySpec(
            pod_selector=pods,
            policy_types=ways or ["Ingress", "Egress"],
            ingress=ingress,
            egress=egress,
        ),
    )


def dns() -> k8s.NetworkPolicyPeer:
    """Return the cluster's name servers."""
    return k8s.NetworkPolicyPeer(
        namespace_selector=k8s.LabelSelector(
            match_labels={"kubernetes.io/metadata.name": KUBE_SYSTEM}
        ),
        pod_selector=k8s.LabelSelector(match_labels={"k8s-app": "kube-dns"}),
    )


def addresses(cidr: str, *besides: str) -> k8s.NetworkPolicyPeer:
    """Return a range of addresses without some of its parts."""
    return k8s.NetworkPolicyPeer(ip_block=k8s.IpBlock(cidr=cidr, except_=list(besides) or None))


def ports(number: int, *protocols: str) -> list[k8s.NetworkPolicyPort]:
    """Return one port number, for each of the protocols."""
    port = k8s.IntOrString.from_number(number)
    return [k8s.NetworkPolicyPort(port=port, protocol=protocol) for protocol in protocols]


def scrapers(cidrs: Sequence[str], *, in_pods: bool) -> list[k8s.NetworkPolicyPeer]:
    """Return who reads metrics: AWS's scraper has interfaces in the VPC; another may be a pod."""
    peers = [addresses(cidr) for cidr in cidrs]
    if in_pods:
        # Whether a range of addresses means pods too differs by network plugin. Of the charts
        # prometheus and kube-prometheus-stack, pods have this label.
        anywhere = k8s.LabelSelectorRequirement(
            key="kubernetes.io/metadata.name", operator="Exists"
        )
        peers.append(
            k8s.NetworkPolicyPeer(
                namespace_selector=k8s.LabelSelector(match_expressions=[anywhere]),
                pod_selector=k8s.LabelSelector(
                    match_labels={"app.kubernetes.io/name": "prometheus"}
                ),
            )
        )
    return peers
