"""Every flow that a pod needs is open, and what no pod needs is closed.

Not under network policies, because they never pass the pod's own network interface: Lustre (TCP 988
and 1018-1023, from the node's kernel), EFA (it bypasses the operating system), image pulls and the
kubelet's probes (from the node, which Kubernetes always lets in). Security groups govern those.
"""

from dataclasses import replace

import pytest

from megatron_eks.charts.training.policy_wait import script
from tests.charts import rendered
from tests.charts.network import Peer, Port, outside, reaches, side_allows
from tests.charts.rendered import INDEX_LABEL, JOB_LABEL, Manifest, cluster, only, pod

RANK_LABEL = "training.kubeflow.org/job-name"
JOBS = cluster().platform.namespace


def rank(job: str, replica_type: str = "master") -> Peer:
    """Return a pod as the training operator labels it."""
    own = {RANK_LABEL: job, "training.kubeflow.org/replica-type": replica_type}
    return Peer(JOBS, {"app": "megatron-training", "role": replica_type, **own})


def indexed_rank(job: str) -> Peer:
    """Return a pod of an Indexed Job as its controller labels it."""
    labels = {"app": "megatron-training", JOB_LABEL: job, INDEX_LABEL: "0"}
    return Peer(cluster().platform.namespace, labels)


def pods_of(kind: str, name: str) -> Peer:
    """Return the pod of a workload that the charts render."""
    found = pod(only([*rendered.platform(), *rendered.validation()], kind, name))
    return Peer(found.namespace, found.labels)


MASTER, WORKER = rank("megatron-cpt-techpulse"), rank("megatron-cpt-techpulse", "worker")
OTHER, OTHER_INDEXED = rank("fsdp-llama-2-7b"), indexed_rank("another")
NCCL_TEST = rank("nccl-test-p4d")
CHECK = pods_of("Job", "nvidia-smi-p4d")
INDEXED = indexed_rank("ddp-llama-3-2-1b")
# Pods of jobs that train nothing: data preparation, fetching, conversion.
TASK = Peer(JOBS, {"app": "fetch", JOB_LABEL: "fetch-llama-3-1-8b"})
SHARD = Peer(JOBS, {"app": "data-prep", JOB_LABEL: "x", INDEX_LABEL: "0"})
CHORE = Peer(cluster().platform.system_namespace, {"app": "shared-directories"})
OPERATOR = pods_of("Deployment", "training-operator")
DCGM = pods_of("DaemonSet", "dcgm-exporter")
DNS = Peer("kube-system", {"k8s-app": "kube-dns"})
PROMETHEUS = Peer("monitoring", {"app": "prometheus"})
STRANGER = Peer(JOBS, {"app": "megatron-training"})
ELSEWHERE = Peer("default", {RANK_LABEL: "megatron-cpt-techpulse"})

POD_IDENTITY = outside("169.254.170.23")
NODE_CREDENTIALS = outside("169.254.169.254")
INTERNET = outside("52.219.96.1")
ENDPOINT = outside("10.0.3.7")
# By its Service, and the network interfaces that EKS puts into the VPC.
API_SERVICE, API_SERVER = outside("172.20.0.1"), outside("10.0.64.12")
WEBHOOK_SERVICE = outside("172.20.31.7")

NEEDED: dict[str, tuple[Peer, Peer, Port]] = {
    "rendezvous": (WORKER, MASTER, (23456, "TCP")),
    "NCCL, any port up": (WORKER, MASTER, (1024, "TCP")),
    "NCCL, any port down": (MASTER, WORKER, (65535, "TCP")),
    "ranks, UDP": (MASTER, WORKER, (65535, "UDP")),
    "workers among themselves": (WORKER, WORKER, (40000, "TCP")),
    # The worker's init container looks for the master's name; a pod has one network.
    "names, UDP": (WORKER, DNS, (53, "UDP")),
    "names, TCP": (WORKER, DNS, (53, "TCP")),
    "credentials of the pod": (MASTER, POD_IDENTITY, (80, "TCP")),
    "S3 and Hugging Face": (MASTER, INTERNET, (443, "TCP")),
    "an interface endpoint": (MASTER, ENDPOINT, (443, "TCP")),
    "ranks of an Indexed Job": (INDEXED, INDEXED, (23456, "TCP")),
    "ranks of a test": (NCCL_TEST, NCCL_TEST, (40000, "TCP")),
    "credentials of a task": (TASK, POD_IDENTITY, (80, "TCP")),
    "Hugging Face for a task": (TASK, INTERNET, (443, "TCP")),
    "operator to the API server's Service": (OPERATOR, API_SERVICE, (443, "TCP")),
    "operator to the API server": (OPERATOR, API_SERVER, (443, "TCP")),
    "operator's names": (OPERATOR, DNS, (53, "UDP")),
    "API server to the webhook": (API_SERVER, OPERATOR, (9443, "TCP")),
    "scrape of GPU metrics": (PROMETHEUS, DCGM, (9400, "TCP")),
}

DENIED: dict[str, tuple[Peer, Peer, Port]] = {
    "a rank to another job's rank": (OTHER, MASTER, (23456, "TCP")),
    "a rank to another job's rank, UDP": (MASTER, OTHER, (65535, "UDP")),
    "a rank to a test's": (WORKER, NCCL_TEST, (23456, "TCP")),
    "a rank to an indexed one": (MASTER, INDEXED, (23456, "TCP")),
    "an indexed rank to another job's": (OTHER_INDEXED, INDEXED, (23456, "TCP")),
    "an indexed rank to a rank": (INDEXED, MASTER, (23456, "TCP")),
    "a rank to the API server's Service": (MASTER, API_SERVICE, (443, "TCP")),
    "a rank to the webhook's Service": (MASTER, WEBHOOK_SERVICE, (443, "TCP")),
    "a task to the API server's Service": (TASK, API_SERVICE, (443, "TCP")),
    "no rank to a rank": (STRANGER, MASTER, (23456, "TCP")),
    "a rank to no rank": (MASTER, STRANGER, (23456, "TCP")),
    "a check to a rank": (CHECK, MASTER, (23456, "TCP")),
    "another namespace to a rank": (ELSEWHERE, MASTER, (23456, "TCP")),
    "the internet to a rank": (outside("203.0.113.9"), MASTER, (23456, "TCP")),
    "a chore to a rank": (CHORE, MASTER, (23456, "TCP")),
    "name servers to a rank": (DNS, MASTER, (23456, "TCP")),
    "no rank to an indexed rank": (STRANGER, INDEXED, (23456, "TCP")),
    "a task to a rank": (TASK, MASTER, (23456, "TCP")),
    "a task to an indexed rank": (TASK, INDEXED, (23456, "TCP")),
    "a shard to an indexed rank": (SHARD, INDEXED, (23456, "TCP")),
    "an indexed rank to a shard": (INDEXED, SHARD, (23456, "TCP")),
    "a shard to a shard": (SHARD, SHARD, (23456, "TCP")),
    "the node's credentials for a task": (TASK, NODE_CREDENTIALS, (80, "TCP")),
    "the internet to an indexed rank": (outside("203.0.113.9"), INDEXED, (23456, "TCP")),
    "the node's credentials": (MASTER, NODE_CREDENTIALS, (80, "TCP")),
    "the node's credentials, TLS": (MASTER, NODE_CREDENTIALS, (443, "TCP")),
    "the node's credentials for a check": (CHECK, NODE_CREDENTIALS, (80, "TCP")),
    "another port of the credentials' agent": (MASTER, POD_IDENTITY, (443, "TCP")),
    "plain HTTP": (MASTER, INTERNET, (80, "TCP")),
    "SSH": (MASTER, INTERNET, (22, "TCP")),
    "QUIC to the name servers": (MASTER, DNS, (443, "UDP")),
    "a service that is no name server": (
        MASTER,
        Peer("kube-system", {"k8s-app": "metrics-server"}),
        (53, "UDP"),
    ),
    "a rank to GPU metrics": (MASTER, DCGM, (9400, "TCP")),
    "a rank to the webhook": (MASTER, OPERATOR, (9443, "TCP")),
    "the internet to the webhook": (outside("203.0.113.9"), OPERATOR, (9443, "TCP")),
    # The chart renders no Service for it.
    "scrape of the operator": (PROMETHEUS, OPERATOR, (8080, "TCP")),
    "operator to the internet": (OPERATOR, INTERNET, (443, "TCP")),
    "operator to the node's credentials": (OPERATOR, NODE_CREDENTIALS, (80, "TCP")),
    "operator to a rank": (OPERATOR, MASTER, (23456, "TCP")),
}


@pytest.fixture(scope="module")
def policies(platform) -> list[Manifest]:
    """Return every policy: the platform's, and those of the jobs that a checkout starts with."""
    found = [*platform, *rendered.jobs(*rendered.shipped_jobs())]
    return [manifest for manifest in found if manifest["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize("flow", NEEDED)
def test_a_flow_that_a_pod_needs_is_open(policies, flow):
    """Let out on one side and let in on the other."""
    assert reaches(policies, *NEEDED[flow])


@pytest.mark.parametrize("flow", DENIED)
def test_a_flow_that_no_pod_needs_is_closed(policies, flow):
    """Above all the way to the node's credentials at 169.254.169.254."""
    assert not reaches(policies, *DENIED[flow])


@pytest.mark.parametrize("plan", rendered.shipped_jobs(), ids=lambda plan: plan.name)
def test_the_policy_of_a_job_stands_before_it(plan):
    """Pods that start before it would be alone; who trains nothing has none to talk to."""
    kinds = [manifest["kind"] for manifest in rendered.jobs(plan)]
    ranks = bool(plan.resources.gpus)
    assert kinds.count("NetworkPolicy") == ranks
    assert kinds[-1] in {"PyTorchJob", "Job"}


def test_a_job_of_any_name_leaves_the_policies_of_the_platform_alone():
    """A job may be called what a policy is called, such as allow-https."""
    plan = replace(rendered.training_job(), name="default-deny")
    own = only(rendered.jobs(plan), "NetworkPolicy")["metadata"]["name"]
    platform = [each["metadata"]["name"] for each in rendered.platform()]
    assert own not in platform


def test_a_range_of_services_that_is_only_guessed_is_not_taken_out():
    """Where nobody names it, it may be where the VPC has its endpoints."""
    plan = rendered.other_platform(service_cidrs=("10.100.0.0/16", "172.20.0.0/16"))
    policy = only(rendered.platform(plan), "NetworkPolicy", "allow-https")
    (rule,) = policy["spec"]["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}]


def test_every_pod_of_the_operator_s_namespace_starts_closed(policies):
    """A second workload there must ask for its own flows."""
    other = Peer("kubeflow", {"app": "other"})
    assert not side_allows(policies, other, API_SERVER, (443, "TCP"), "Egress")
    assert not side_allows(policies, other, API_SERVER, (9443, "TCP"), "Ingress")


@pytest.mark.parametrize("target", [DNS, MASTER, INTERNET, POD_IDENTITY])
@pytest.mark.parametrize("port", [53, 80, 443])
def test_chores_have_no_network(policies, target, port):
    """The set-up Job is root, and needs the file system alone."""
    assert not side_allows(policies, CHORE, target, (port, "TCP"), "Egress")


@pytest.mark.parametrize("plan", rendered.shipped_jobs(), ids=lambda plan: plan.name)
def test_a_job_s_program_starts_when_policies_hold(plan):
    """Until then the VPC CNI lets a new pod reach everything; what waits is the job's own image."""
    for found in rendered.pods(rendered.jobs(plan)):
        (waits,) = found.spec["initContainers"]
        assert waits["image"] == found.container["image"]
        assert waits["command"] == ["python3", "-c", script()]
        assert "limits" in waits["resources"]


def test_a_pod_on_the_host_s_network_waits_for_none():
    """Policies select it and do not hold for it."""
    plan = replace(rendered.training_job(), host_network=True)
    for found in rendered.pods(rendered.jobs(plan)):
        assert "initContainers" not in found.spec
