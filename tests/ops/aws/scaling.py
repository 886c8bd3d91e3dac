"""A pool on the local AWS, for tests of `meks scale`."""

from megatron_eks.ops.cluster import scale
from tests.ops.aws.fakes import CLUSTER, FakeKubernetes, console, project_in, tools

# Its own name: every module of tests deploys to the same local AWS.
NAME = "scaled"
SCALED = CLUSTER.replace("name: techpulse", f"name: {NAME}")


def make_cluster(server, name=NAME):
    """Make an EKS cluster with one node group, as the Cluster stack does; return its client."""
    eks, ec2 = server.client("eks", "us-east-2"), server.client("ec2", "us-east-2")
    default = [{"Name": "default-for-az", "Values": ["true"]}]
    found = ec2.describe_subnets(Filters=default)["Subnets"]
    subnets = [each["SubnetId"] for each in found][:2]
    role = server.client("iam", "us-east-2").get_role(RoleName="Admin")["Role"]["Arn"]
    eks.create_cluster(
        name=name, roleArn=role, resourcesVpcConfig={"subnetIds": subnets}, version="1.35"
    )
    eks.create_nodegroup(
        clusterName=name,
        nodegroupName="p4d",
        nodeRole=role,
        subnets=subnets[:1],
        scalingConfig={"minSize": 0, "maxSize": 450, "desiredSize": 0},
    )
    return eks


class Place:
    """A pool, an API server, and what is said on the way."""

    def __init__(self, folder, aws, eks) -> None:
        self.eks, self.aws = eks, aws
        self.folder = folder
        self.kubernetes = FakeKubernetes()
        self.console = console(yes=True)
        self.size(0)

    def size(self, nodes):
        """Set how many nodes EKS is asked for, beside the command."""
        scaling = {"minSize": 0, "maxSize": 450, "desiredSize": nodes}
        self.eks.update_nodegroup_config(
            clusterName=NAME, nodegroupName="p4d", scalingConfig=scaling
        )

    def wanted(self):
        """Return how many nodes EKS is asked for."""
        group = self.eks.describe_nodegroup(clusterName=NAME, nodegroupName="p4d")
        return group["nodegroup"]["scalingConfig"]["desiredSize"]

    def run(self, nodes, *, text=SCALED, **wish):
        """Run the command."""
        file = project_in(self.folder, text)
        wanted = scale.Wish("p4d", nodes, **wish)
        return scale.run(wanted, tools(file, self.aws, self.console), lambda: self.kubernetes)

    def nodes(self, number, *, gpus="8", efa="4", ready="True"):
        """Let nodes be there, as the API server has them."""
        self.kubernetes.objects["Node"] = [
            {
                "metadata": {"name": f"n{index}", "labels": {"megatron-eks/pool": "p4d"}},
                "status": {
                    "conditions": [{"type": "Ready", "status": ready}],
                    "allocatable": {"nvidia.com/gpu": gpus, "vpc.amazonaws.com/efa": efa},
                },
            }
            for index in range(number)
        ]

    def pods(self, *names):
        """Let pods of jobs run on the pool."""
        self.kubernetes.objects["Pod"] = [
            {
                "metadata": {"name": name},
                "spec": {"nodeSelector": {"megatron-eks/pool": "p4d"}},
                "status": {"phase": "Running"},
            }
            for name in names
        ]
