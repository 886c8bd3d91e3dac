"""Peers and ports of network policies."""

from cdk8s_plus_27 import k8s

from charts.pods import KUBE_SYSTEM


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
