"""What the pod that sizes pools with `scale: queue` may do in AWS."""

from aws_cdk import aws_eks as eks
from constructs import Construct

from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.queues import POOL_SCALER
from megatron_eks.stacks.policies import (
    POD_IDENTITY,
    POD_IDENTITY_ACTIONS,
    Condition,
    account,
    acknowledge,
    partition,
    role,
    statement,
)

_READ = ("autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities")


def pool_scaler(scope: Construct, plan: ClusterPlan, *, cluster: str) -> None:
    """Give the pod a role for those node groups and their scaling groups, and for no other."""
    space, pools = plan.platform.system_namespace, [each.name for each in plan.scaled_pools]
    groups = [f"eks:{{}}:nodegroup/{plan.eks_name}/{pool}/*" for pool in pools]
    # EKS chooses the names of the scaling groups, and puts these tags on them.
    scaling = "autoscaling:{}:autoScalingGroup:*:autoScalingGroupName/*"
    place, shown = (f"{plan.region}:{each}" for each in (account(), "<AWS::AccountId>"))
    arns = [f"arn:{partition()}:{each.format(place)}" for each in (*groups, scaling)]
    ours: Condition = {
        "StringEquals": {
            "aws:ResourceTag/eks:cluster-name": plan.eks_name,
            "aws:ResourceTag/eks:nodegroup-name": pools,
        }
    }
    who: Condition = {
        "StringEquals": {
            "aws:RequestTag/eks-cluster-name": plan.eks_name,
            "aws:RequestTag/kubernetes-namespace": space,
            "aws:RequestTag/kubernetes-service-account": POOL_SCALER,
        }
    }
    made = role(
        scope,
        "PoolScalerRole",
        description=f"Sizes of the pools of {plan.name} that jobs in queues decide",
        service=POD_IDENTITY,
        actions=POD_IDENTITY_ACTIONS,
        condition=who,
        statements=[
            statement(["eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"], arns[:-1]),
            statement(
                ["autoscaling:TerminateInstanceInAutoScalingGroup"], arns[-1:], condition=ours
            ),
            # They take no resource (Service Authorization Reference).
            statement(_READ, ["*"]),
        ],
    )
    acknowledge(
        made,
        "EKS chooses how these names end, tags say whose groups they are, and lists take no name",
        "AwsSolutions-IAM5[Resource::*]",
        *(
            f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:{each.format(shown)}]"
            for each in (*groups, scaling)
        ),
    )
    eks.CfnPodIdentityAssociation(
        scope,
        "PoolScalerRoleAssociation",
        cluster_name=cluster,
        namespace=space,
        service_account=POOL_SCALER,
        role_arn=made.attr_arn,
    )
