"""The local AWS with the API server behind its EKS: who comes in, and which nodes there are."""

import base64
import json
import os
from pathlib import Path

import pytest

from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes import kubeconfig
from megatron_eks.kubernetes.client import ApiError, wait_for
from megatron_eks.kubernetes.quantity import quantity
from megatron_eks.localcloud.aws import keys
from megatron_eks.localcloud.aws.server import LocalAws, merged
from megatron_eks.localcloud.kubernetes import nodes
from megatron_eks.project import ROOT
from tests import command
from tests.annex.pids import descendants
from tests.annex.rehearsal import rehearsal_in

pytestmark = pytest.mark.control_plane

REGION = "us-east-2"
ADMIN = "arn:aws:iam::000000000000:role/Admin"
POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
LABELS = {"megatron-eks/pool": "p4d", "team": "nlp"}


class Place:
    """An account with the cluster of the default cluster file, as `meks deploy` leaves it."""

    def __init__(self, state, folder: Path):
        self.state, self.folder = state, folder
        self.aws = LocalAws(
            state["aws_endpoint_url"], keys.read(Path(state["aws_credentials_file"]))
        )
        self.eks = self.aws.client("eks", REGION)
        self.kubeconfig = Path(state["environment"]["KUBECONFIG"])
        # No documentation values, which every command refuses that touches AWS.
        text = (ROOT / "cluster.yaml").read_text().replace("111122223333", self.aws.account)
        (folder / "cluster.yaml").write_text(text.replace("203.0.113.0/24", "8.8.8.8/32"))
        # The administrator of the machine, who needs no AWS.
        self.client = self.client_of(Path(state["kubeconfig"]))

    def deploy(self) -> None:
        """Make the cluster, its administrator, and a pool without nodes."""
        found = self.aws.client("ec2", REGION).describe_subnets()["Subnets"]
        zones = {each["AvailabilityZone"]: each["SubnetId"] for each in found}
        self.eks.create_cluster(
            name="techpulse",
            roleArn=ADMIN,
            resourcesVpcConfig={"subnetIds": list(zones.values())},
        )
        entry = {"clusterName": "techpulse", "principalArn": ADMIN}
        self.eks.create_access_entry(**entry)
        self.eks.associate_access_policy(**entry, policyArn=POLICY, accessScope={"type": "cluster"})
        self.eks.create_nodegroup(
            clusterName="techpulse",
            nodegroupName="p4d",
            nodeRole=ADMIN,
            instanceTypes=["p4d.24xlarge"],
            subnets=[zones["us-east-2b"]],
            scalingConfig={"minSize": 0, "maxSize": 450, "desiredSize": 0},
            labels=LABELS,
            taints=[{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        )

    def client_of(self, file: Path):
        """Return a client by a kubeconfig's current context."""
        config = kubeconfig.load([file])
        return kubeconfig.contexts(config)[config["current-context"]].client(30)

    def meks(self, *words: str):
        """Run a command in the environment that `meks local up` told."""
        environment = merged(os.environ, self.aws, REGION) | self.state["environment"]
        environment["CLUSTER_CONFIG"] = str(self.folder / "cluster.yaml")
        done = command.meks(*words, env=environment)
        assert done.returncode == 0, done.stderr
        return done

    def scale(self, wanted: int) -> list[str]:
        """Set a wanted size and return the nodes once there are as many, ready for pods."""
        sizes = {"minSize": 0, "maxSize": 450, "desiredSize": wanted}
        self.eks.update_nodegroup_config(
            clusterName="techpulse", nodegroupName="p4d", scalingConfig=sizes
        )

        def settled() -> bool:
            found = self.client.list("v1", "Node")
            return len(found) == wanted and all(map(nodes.is_ready, found))

        wait_for(f"{wanted} nodes", settled, 60)
        return [each["metadata"]["name"] for each in self.client.list("v1", "Node")]


@pytest.fixture(scope="module")
def place(programs, tmp_path_factory):
    """Run `meks local up --empty --nodes 1` with room of its own, and deploy to it."""
    folder = tmp_path_factory.mktemp("joined")
    _, local = rehearsal_in(folder, programs)
    done = local("up", "--empty", "--nodes", "1", "-o", "json")
    try:
        assert done.returncode == 0, done.stderr
        place = Place(json.loads(done.stdout), folder)
        place.deploy()
        yield place
        place.client.close()
    finally:
        local("down")


def test_an_empty_cluster_has_no_node_and_no_platform(place):
    """They come by the commands for AWS and Kubernetes; the operator runs beside it.

    It watches the namespace of jobs alone, which therefore is there, with nothing in it.
    """
    assert place.client.list("v1", "Node") == []
    claims = place.client.list("v1", "PersistentVolumeClaim", "megatron-workshop")
    quotas = place.client.list("v1", "ResourceQuota", "megatron-workshop")
    assert (claims, quotas) == ([], [])
    assert place.client.serves("kubeflow.org/v1", "PyTorchJob")


def test_eks_tells_the_way_to_the_api_server(place):
    """Address and certificate, as `aws eks update-kubeconfig` and `meks kubeconfig` take them."""
    cluster = place.eks.describe_cluster(name="techpulse")["cluster"]
    assert cluster["endpoint"] == place.client.server
    local = json.loads(Path(place.state["kubeconfig"]).read_text())["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificateAuthority"]["data"])
    assert authority == Path(local["certificate-authority"]).read_bytes()


def test_the_role_of_the_access_entry_gets_in(place, monkeypatch):
    """By `meks kubeconfig` and `meks token`, a presigned request that is reviewed."""
    place.meks("kubeconfig", "--role-arn", ADMIN)
    for name, value in place.state["environment"].items():
        monkeypatch.setenv(name, value)
    client = place.client_of(place.kubeconfig)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = client.request("POST", path, review)["status"]["userInfo"]
    assert user["username"] == "arn:aws:sts::000000000000:assumed-role/Admin/meks"
    assert len(client.list("v1", "Namespace")) > 3
    client.close()


def test_a_role_without_access_entry_stays_out(place, monkeypatch):
    """It may describe the cluster, and that is all."""
    place.meks("kubeconfig", "--role-arn", ADMIN.replace("Admin", "Nobody"))
    for name, value in place.state["environment"].items():
        monkeypatch.setenv(name, value)
    client = place.client_of(place.kubeconfig)
    with pytest.raises(ApiError) as raised:
        client.list("v1", "Namespace")
    assert raised.value.status == 401
    client.close()


def test_nodes_come_and_go_with_the_node_group(place, plan):
    """With labels and taints of the group, and what the catalogue says of the type."""
    supervisor = json.loads((place.folder / "megatron-eks/local/state.json").read_text())["pid"]
    before = len(descendants(supervisor))
    first, second = place.scale(2)
    instances = place.aws.client("ec2", REGION).describe_instances(
        Filters=[{"Name": "private-dns-name", "Values": [first, second]}]
    )
    assert len(instances["Reservations"]) == 2
    node = place.client.get("v1", "Node", first)
    like = gpu_node(plan.pools[0], 0)
    own = {"kubernetes.io/hostname": first, **LABELS}
    wanted = nodes.as_process(like)["metadata"]["labels"] | own
    assert node["metadata"]["labels"].items() >= wanted.items()
    assert node["spec"]["taints"] == like["spec"]["taints"]
    assert node["spec"]["providerID"].startswith("aws:///us-east-2b/i-")
    offered, expected = (each["status"]["allocatable"] for each in (node, like))
    assert {key: quantity(each) for key, each in offered.items()} == {
        key: quantity(each) for key, each in expected.items()
    }
    assert place.scale(1) != [first, second]
    assert place.scale(0) == []
    # The network between pods stays: a process, and the one that holds its namespace.
    wait_for("the kubelets' end", lambda: len(descendants(supervisor)) == before + 2, 30)
    assert place.scale(1) not in ([first], [second])


def test_pods_of_a_node_that_is_given_back_are_forgotten(place):
    """Nobody would ever say that they have ended."""
    (node,) = place.scale(1)
    only = {"name": "main", "image": "busybox", "command": ["sleep", "3600"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sleeps", "namespace": "default"},
        "spec": {"nodeName": node, "containers": [only]},
    }
    place.client.create(pod)

    def phase() -> str:
        return str(place.client.get("v1", "Pod", "sleeps", "default")["status"]["phase"])

    wait_for("the pod", lambda: phase() == "Running", 60)
    place.scale(0)
    wait_for("its end", lambda: place.client.find("v1", "Pod", "sleeps", "default") is None, 60)
