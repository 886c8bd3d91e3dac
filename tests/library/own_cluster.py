"""A GPU node group with a reservation, in an EKS cluster of one's own."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.library import GpuNodegroup, NodeSecurityGroup

ZONES = ["us-east-2a", "us-east-2b"]


class OwnCluster(cdk.Stack):
    """VPC and cluster by the CDK's own constructs, and p5 nodes with 32 EFA interfaces."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id, env=cdk.Environment(region="us-east-2"))
        vpc = ec2.Vpc(self, "Vpc", availability_zones=ZONES)
        nodes = iam.Role(
            self,
            "NodeRole",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=[
                iam.ManagedPolicy.from_aws_managed_policy_name(policy)
                for policy in (
                    "AmazonEKSWorkerNodePolicy",
                    "AmazonEC2ContainerRegistryPullOnly",
                    "AmazonEKS_CNI_Policy",
                )
            ],
        )
        control_plane = iam.Role(
            self,
            "ClusterRole",
            assumed_by=iam.ServicePrincipal("eks.amazonaws.com"),
            managed_policies=[
                iam.ManagedPolicy.from_aws_managed_policy_name("AmazonEKSClusterPolicy")
            ],
        )
        cluster = eks.CfnCluster(
            self,
            "Cluster",
            version="1.36",
            role_arn=control_plane.role_arn,
            resources_vpc_config=eks.CfnCluster.ResourcesVpcConfigProperty(
                subnet_ids=[subnet.subnet_id for subnet in vpc.private_subnets]
            ),
            access_config=eks.CfnCluster.AccessConfigProperty(authentication_mode="API"),
        )
        efa = NodeSecurityGroup(self, "Nodes", vpc_id=vpc.vpc_id, name="research-nodes")
        GpuNodegroup(
            self,
            "P5",
            cluster_name=cluster.ref,
            node_role_arn=nodes.role_arn,
            subnet_id=vpc.private_subnets[0].subnet_id,
            security_group_ids=[cluster.attr_cluster_security_group_id, efa.security_group_id],
            name="p5",
            instance_type="p5.48xlarge",
            availability_zone=ZONES[0],
            max_nodes=4,
            capacity={"type": "reservation", "id": "cr-0123456789abcdef0"},
        )


if __name__ == "__main__":
    app = cdk.App()
    OwnCluster(app, "Research")
    app.synth()
