"""The pod that sizes pools, with Kueue itself, and the node groups of a local AWS."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import cdk8s
import pytest

from megatron_eks.charts import composition
from megatron_eks.demo.nodes import system_nodes
from megatron_eks.kubernetes.client import wait_for
from megatron_eks.localcloud.kubernetes.controllers import CONTROLLERS
from megatron_eks.localcloud.kubernetes.joined import JoinedNodes
from megatron_eks.ops.jobs import queues
from megatron_eks.ops.kube import jobs as live
from megatron_eks.programs.cluster_api import Api
from megatron_eks.programs.scaling.loop import Scaler
from tests.annex import jobs
from tests.annex.aws.running import local_aws
from tests.charts import rendered

pytestmark = [pytest.mark.control_plane, pytest.mark.long]

_REGION, _SPACE = "us-east-2", "megatron-workshop"
_IDLE_SECONDS = 15 * 60


class _Place:
    """A cluster whose only pool is sized by jobs, with EKS's node group beside it."""

    def __init__(self, plane, plan, aws, folder):
        self.client, self.plan = plane.client, plan
        self.eks, self.ec2 = (aws.client(each, _REGION) for each in ("eks", "ec2"))
        self._joined = JoinedNodes(plane, aws, None)
        self._deploy()
        files = rendered.only(self._install(plane), "ConfigMap", "pool-scaler")["data"]
        settings = json.loads(files["settings.json"])
        token = self.client.service_account_token("pool-scaler", "megatron-system")
        _file(folder / "token", token)
        _file(folder / "ca.crt", plane.authority.read_text())
        # With the rights of the chart, and no others.
        self.scaler = Scaler(settings, Api(plane.server, folder))

    def _deploy(self) -> None:
        role = "arn:aws:iam::000000000000:role/Nodes"
        (subnet,) = self.ec2.describe_subnets(
            Filters=[{"Name": "availability-zone", "Values": ["us-east-2b"]}]
        )["Subnets"]
        everywhere = [each["SubnetId"] for each in self.ec2.describe_subnets()["Subnets"]]
        network = {"subnetIds": everywhere}
        self.eks.create_cluster(name="techpulse", roleArn=role, resourcesVpcConfig=network)
        self.eks.create_nodegroup(
            clusterName="techpulse",
            nodegroupName="p4d",
            nodeRole=role,
            instanceTypes=["p4d.24xlarge"],
            subnets=[subnet["SubnetId"]],
            scalingConfig={"minSize": 0, "maxSize": 450, "desiredSize": 0},
            labels={"megatron-eks/pool": "p4d"},
            taints=[{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        )

    def _install(self, plane) -> list[rendered.Manifest]:
        charts = composition.build_platform(cdk8s.App(), self.plan, rendered.deployed())
        files = {name[3:]: cdk8s.Testing.synth(chart) for name, chart in charts.items()}
        for each in (known for known in CONTROLLERS if known.name in files):
            each(plane, files.pop(each.name)).install()
        objects = [each for found in files.values() for each in found]
        for each in (*objects, *system_nodes(self.plan)):
            self.client.apply(each)
        return objects

    @property
    def size(self) -> int:
        found = self.eks.describe_nodegroup(clusterName="techpulse", nodegroupName="p4d")
        return int(found["nodegroup"]["scalingConfig"]["desiredSize"])

    @property
    def nodes(self) -> list[rendered.Manifest]:
        found: list[rendered.Manifest]
        found = self.client.list("v1", "Node", labels="megatron-eks/pool=p4d")
        return found

    def submit(self, name: str, count: int) -> rendered.Manifest:
        plan = replace(rendered.training_job(), name=name, nodes=count, queue=_SPACE)
        objects = rendered.jobs(plan)
        for each in objects:
            self.client.apply(each)
        return rendered.only(objects, "PyTorchJob")

    def until(self, what: str, true: Callable[[], object]) -> None:
        """Let the pod do its rounds, and EC2 its work, until something holds."""

        def look() -> object:
            self.scaler.adjust(time.time())
            self._joined.adjust()
            return true()

        wait_for(what, look, 60)

    def cordon(self, node: str, *, cordoned: bool) -> None:
        spec = {"spec": {"unschedulable": cordoned or None}}
        form = "application/merge-patch+json"
        self.client.request("PATCH", f"/api/v1/nodes/{node}", spec, content_type=form)

    def why(self, name: str) -> str:
        job = live.find(self.client, _SPACE, name)
        return queues.why(self.client, job) if job else ""

    def places(self, job: rendered.Manifest) -> set[str]:
        found = jobs.pods_of(self.client, job)
        return {pod["spec"].get("nodeName", "") for pod in found} - {""}


def _file(path, text):
    path.write_text(text)
    return str(path)


@pytest.fixture(scope="module")
def place(start_plane, tmp_path_factory) -> Iterator[_Place]:
    """Run both, with nothing in the pool."""
    plan = rendered.other_platform(kueue=True)
    (pool,) = plan.pools
    plan = replace(plan, pools=(replace(pool, idle_minutes=_IDLE_SECONDS // 60),))
    folder = tmp_path_factory.mktemp("scaler")
    plane = start_plane(tmp_path_factory.mktemp("plane"))
    with local_aws(tmp_path_factory.mktemp("aws")) as aws, pytest.MonkeyPatch.context() as patch:
        for name, value in aws.environment(_REGION).items():
            patch.setenv(name, value)
        yield _Place(plane, plan, aws, folder)


def test_a_job_brings_its_nodes_and_an_idle_one_goes_by_its_name(place):
    """The oldest has the job, which EKS would end first if it were told a smaller size."""
    first = place.submit("both", 2)
    place.until("the reason", lambda: "2 more nodes of pool p4d" in place.why("both"))
    assert jobs.pods_of(place.client, first) == []
    place.until("both nodes", lambda: len(place.places(first)) == 2)
    assert place.size == 2
    jobs.delete(place.client, first)
    oldest, newest = _by_age(place)
    place.cordon(newest, cordoned=True)
    second = place.submit("one", 1)
    place.until("its node", lambda: place.places(second) == {oldest})
    assert (place.size, len(place.nodes)) == (2, 2)
    now = time.time()
    # What somebody else has cordoned is theirs, however long it is idle.
    for later in (0, 2 * _IDLE_SECONDS, 3 * _IDLE_SECONDS):
        place.scaler.adjust(now + later)
    assert place.size == 2
    place.cordon(newest, cordoned=False)
    place.scaler.adjust(now + 4 * _IDLE_SECONDS)
    assert _unschedulable(place) == [newest]
    assert place.size == 2, "not in the round of the cordon"
    place.scaler.adjust(now + 4 * _IDLE_SECONDS + 90)
    assert place.size == 1
    place.until("its end", lambda: len(place.nodes) == 1)
    assert place.places(second) == {oldest} == {e["metadata"]["name"] for e in place.nodes}


def _by_age(place: _Place) -> list[str]:
    found = place.ec2.describe_instances(
        Filters=[{"Name": "instance-state-name", "Values": ["running"]}]
    )
    instances = [each for one in found["Reservations"] for each in one["Instances"]]
    instances.sort(key=lambda each: each["LaunchTime"])
    names = {e["spec"]["providerID"].rpartition("/")[2]: e["metadata"]["name"] for e in place.nodes}
    return [names[each["InstanceId"]] for each in instances]


def _unschedulable(place: _Place) -> list[str]:
    return [e["metadata"]["name"] for e in place.nodes if e["spec"].get("unschedulable")]
