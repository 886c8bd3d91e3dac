"""Where `meks deploy` is tested: a cluster file, and the local AWS that it is deployed to."""

from megatron_eks.ops.cluster import deploy
from tests.ops.aws.fakes import console, project_in, tools
from tests.ops.aws.quick_cdk import LOCAL_CLUSTER, QuickCdk


class Place:
    """A cluster file and the AWS that it is deployed to."""

    def __init__(self, folder, aws) -> None:
        self.folder, self.aws = folder, aws
        self.file = project_in(folder, LOCAL_CLUSTER)
        self.cdk = QuickCdk(self.file, folder, aws)
        self.console = console()

    def deploy(self, *stacks, yes=True, answers=None, **wishes):
        """Run the command."""
        self.console = console(answers, yes=yes)
        found = tools(self.file, self.aws, self.console)
        return deploy.run(stacks, found, self.cdk, **wishes)

    def write(self, *changes, base=LOCAL_CLUSTER):
        """Write the cluster file with other values."""
        for old, new in changes:
            assert old in base
            base = base.replace(old, new)
        self.file.write_text(base)

    def group(self):
        """Return the pool's node group as EKS has it."""
        eks = self.aws.client("eks")
        return eks.describe_nodegroup(clusterName="techpulse", nodegroupName="p4d")["nodegroup"]

    def nodes(self):
        """Return the instances that run for the pool."""
        wanted = {"tag:eks:nodegroup-name": "p4d", "tag:eks:cluster-name": "techpulse"}
        wanted["instance-state-name"] = "running"
        filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
        found = self.aws.client("ec2").describe_instances(Filters=filters)["Reservations"]
        return sorted(each["InstanceId"] for one in found for each in one["Instances"])

    def scale(self, nodes):
        """Ask for nodes."""
        scaling = {"minSize": 0, "maxSize": 450, "desiredSize": nodes}
        self.aws.client("eks").update_nodegroup_config(
            clusterName="techpulse", nodegroupName="p4d", scalingConfig=scaling
        )
