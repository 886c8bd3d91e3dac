"""Network policies, judged as the network plugin judges them: by who reaches whom."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Literal

import pytest

from tests.charts.rendered import INDEX_LABEL, JOB_LABEL, Manifest, cluster

RANK_LABEL = "training.kubeflow.org/job-name"

Port = tuple[int, Literal["TCP", "UDP"]]


@dataclass(frozen=True)
class Peer:
    """One end of a connection; addresses outside the cluster have no namespace."""

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = "10.0.0.99"


def rank(job: str) -> Peer:
    """Return a pod as the training operator labels it."""
    return Peer(cluster().platform.namespace, {"app": "megatron-training", RANK_LABEL: job})


def indexed_rank(job: str) -> Peer:
    """Return a pod of an Indexed Job as its controller labels it."""
    labels = {"app": "megatron-training", JOB_LABEL: job, INDEX_LABEL: "0"}
    return Peer(cluster().platform.namespace, labels)


def outside(address: str) -> Peer:
    """Return an address."""
    return Peer(address=address)


DNS = Peer("kube-system", {"k8s-app": "kube-dns"})
MINE = rank("megatron-cpt-techpulse")
INDEXED = indexed_rank("ddp-llama-3-2-1b")
# A pod of a job that trains nothing: data preparation, fetching, conversion.
TASK = Peer(cluster().platform.namespace, {"app": "fetch", JOB_LABEL: "fetch-llama-3-1-8b"})
SHARD = Peer(cluster().platform.namespace, {"app": "data-prep", JOB_LABEL: "x", INDEX_LABEL: "0"})
CHORE = Peer(cluster().platform.system_namespace, {"app": "shared-directories"})


@pytest.fixture(scope="module")
def policies(platform) -> list[Manifest]:
    """Return every policy."""
    return [manifest for manifest in platform if manifest["kind"] == "NetworkPolicy"]


def reaches(policies: list[Manifest], source: Peer, target: Peer, port: Port) -> bool:
    """Tell whether a connection is let out and let in."""
    leaves = side_allows(policies, source, target, port, "Egress")
    return leaves and side_allows(policies, target, source, port, "Ingress")


def side_allows(
    policies: list[Manifest],
    subject: Peer,
    peer: Peer,
    port: Port,
    direction: Literal["Ingress", "Egress"],
) -> bool:
    """Apply the rule of Kubernetes: a pod that no policy selects is open, others need a rule."""
    selecting = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == subject.namespace
        and direction in policy["spec"]["policyTypes"]
        and matches(policy["spec"]["podSelector"], subject.labels)
    ]
    end = "to" if direction == "Egress" else "from"
    rules = (rule for spec in selecting for rule in spec.get(direction.lower(), ()))
    return not selecting or any(
        any(is_peer(entry, peer, subject.namespace) for entry in rule[end]) and has_port(rule, port)
        for rule in rules
    )


def is_peer(entry: Mapping[str, Any], peer: Peer, namespace: str) -> bool:
    """Tell whether an entry of `from` or `to` means this end."""
    if block := entry.get("ipBlock"):
        address = ip_address(peer.address)
        inside = address in ip_network(block["cidr"])
        return inside and not any(address in ip_network(cut) for cut in block.get("except", ()))
    if selector := entry.get("namespaceSelector"):
        if not matches(selector, {"kubernetes.io/metadata.name": peer.namespace}):
            return False
    elif peer.namespace != namespace:
        return False
    return matches(entry.get("podSelector", {}), peer.labels)


def has_port(rule: Mapping[str, Any], port: Port) -> bool:
    """Tell whether a rule holds for a port; without a list it holds for all."""
    listed = [(entry["port"], entry["protocol"]) for entry in rule.get("ports", ())]
    return not listed or port in listed


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Tell whether labels match a selector."""
    wanted: Iterator[tuple[str, str]] = iter(selector.get("matchLabels", {}).items())
    expressions = selector.get("matchExpressions", ())
    assert all(expression["operator"] == "Exists" for expression in expressions)
    return all(labels.get(key) == value for key, value in wanted) and all(
        expression["key"] in labels for expression in expressions
    )


@pytest.mark.parametrize("port", [(23456, "TCP"), (1024, "TCP"), (65535, "UDP")])
@pytest.mark.parametrize("mine", [MINE, INDEXED], ids=["operator", "indexed"])
def test_ranks_of_a_job_talk_on_every_port(policies, port, mine):
    """NCCL's bootstrap and torch's store pick ports at random."""
    assert reaches(policies, mine, mine, port)


@pytest.mark.parametrize("mine", [MINE, INDEXED], ids=["operator", "indexed"])
@pytest.mark.parametrize(
    "stranger",
    [Peer(cluster().platform.namespace, {"app": "megatron-training"}), TASK, SHARD],
    ids=["unlabelled", "task", "shard"],
)
def test_pods_that_are_no_ranks_stay_outside(policies, mine, stranger):
    """Only what a controller labels may join a job's traffic."""
    assert not reaches(policies, stranger, mine, (23456, "TCP"))
    assert not reaches(policies, mine, stranger, (23456, "TCP"))


@pytest.mark.parametrize(
    ("target", "port"),
    [
        (DNS, (53, "UDP")),
        (DNS, (53, "TCP")),
        (outside("169.254.170.23"), (80, "TCP")),
        (outside("52.219.96.1"), (443, "TCP")),
        (outside("10.0.3.7"), (443, "TCP")),
    ],
    ids=["dns-udp", "dns-tcp", "pod-identity", "internet", "interface-endpoint"],
)
@pytest.mark.parametrize("mine", [MINE, INDEXED, TASK], ids=["operator", "indexed", "task"])
def test_a_job_reaches_what_it_needs(policies, target, port, mine):
    """Names, credentials, and HTTPS to S3 and Hugging Face."""
    assert reaches(policies, mine, target, port)


@pytest.mark.parametrize(
    ("target", "port"),
    [
        (DNS, (443, "UDP")),
        (Peer("kube-system", {"k8s-app": "metrics-server"}), (53, "UDP")),
        (outside("169.254.169.254"), (80, "TCP")),
        (outside("169.254.169.254"), (443, "TCP")),
        (outside("169.254.170.23"), (443, "TCP")),
        (outside("52.219.96.1"), (80, "TCP")),
        (outside("52.219.96.1"), (22, "TCP")),
    ],
)
def test_a_job_reaches_nothing_else(policies, target, port):
    """Above all not the node's credentials at 169.254.169.254."""
    assert not side_allows(policies, MINE, target, port, "Egress")


@pytest.mark.parametrize("source", [DNS, outside("203.0.113.9"), CHORE, TASK])
@pytest.mark.parametrize("mine", [MINE, INDEXED, TASK], ids=["operator", "indexed", "task"])
def test_nobody_reaches_a_job_from_elsewhere(policies, source, mine):
    """Only ranks get in."""
    assert not side_allows(policies, mine, source, (23456, "TCP"), "Ingress")


@pytest.mark.parametrize("target", [DNS, MINE, outside("52.219.96.1"), outside("169.254.170.23")])
@pytest.mark.parametrize("port", [53, 80, 443])
def test_chores_have_no_network(policies, target, port):
    """The set-up Job is root, and needs the file system alone."""
    assert not side_allows(policies, CHORE, target, (port, "TCP"), "Egress")
