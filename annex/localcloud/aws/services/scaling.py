"""The scaling groups of EKS's node groups: what they want, and the end of one instance by name."""

from collections.abc import Iterator

from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.eks.models import Nodegroup, eks_backends

from megatron_eks.localcloud.aws.services import nodes
from megatron_eks.localcloud.aws.services.operation import Regional, ServiceError, parameters
from megatron_eks.localcloud.aws.values import ACCOUNT


class ScalingApi(Regional, AutoScalingResponse):
    """Auto Scaling, as far as groups are those that EKS makes."""

    def describe_auto_scaling_groups(self) -> ActionResult:
        """DescribeAutoScalingGroups."""
        wanted = parameters(self).get("AutoScalingGroupNames", [])
        told = [
            {
                "AutoScalingGroupName": name,
                "MinSize": group.scaling_config["minSize"],
                "MaxSize": group.scaling_config["maxSize"],
                "DesiredCapacity": group.scaling_config["desiredSize"],
            }
            for group in self._groups()
            for name in [f"eks-{group.uuid}"]
            if not wanted or name in wanted
        ]
        return ActionResult({"AutoScalingGroups": told})

    def terminate_instance_in_auto_scaling_group(self) -> ActionResult:
        """TerminateInstanceInAutoScalingGroup; EKS knows the smaller size at once."""
        given = parameters(self)
        ec2 = self.client("ec2")
        for group in self._groups():
            if given["InstanceId"] in nodes.running(ec2, group):
                ec2.terminate_instances(InstanceIds=[given["InstanceId"]])
                if given["ShouldDecrementDesiredCapacity"]:
                    group.scaling_config["desiredSize"] -= 1
                nodes.adjust(ec2, group)
                return ActionResult({"Activity": {}})
        message = f"Instance Id not found - No managed instance found for {given['InstanceId']}"
        raise ServiceError("ValidationError", message)

    def _groups(self) -> Iterator[Nodegroup]:
        for cluster in eks_backends[ACCOUNT][self.region].clusters.values():
            yield from cluster.nodegroups.values()
