"""A node group of p5 in a reservation, in a VPC and an EKS cluster of one's own."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.library import Addons, GpuNodegroup, NodeSecurityGroup

ZONES = ["us-east-2a", "us-east-2b"]


class OwnCluster(cdk.Stack):
    """VPC and cluster by the CDK's own constructs, with GPU nodes of 32 EFA interfaces each."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id, env=cdk.Environment(region="us-east-2"))
        private = ec2.SubnetType.PRIVATE_WITH_EGRESS
        s3 = ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)
        vpc = ec2.Vpc(self, "Vpc", availability_zones=ZONES, gateway_endpoints={"S3": s3})
        for subnet in vpc.public_subnets:
            subnet.node.default_child.map_public_ip_on_launch = False
        subnets = vpc.select_subnets(subnet_type=private).subnet_ids
        cluster = eks.CfnCluster(
            self,
            "Cluster",
            version="1.36",
            role_arn=self.role("ClusterRole", "eks", "AmazonEKSClusterPolicy"),
            resources_vpc_config=eks.CfnCluster.ResourcesVpcConfigProperty(
                subnet_ids=subnets,
                endpoint_private_access=True,
                public_access_cidrs=["203.0.113.0/24"],
            ),
            access_config=eks.CfnCluster.AccessConfigProperty(authentication_mode="API"),
        )
        policies = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
        nodes = self.role("NodeRole", "ec2", *policies)
        system = self.system_nodes(cluster.ref, nodes, subnets)
        efa = NodeSecurityGroup(self, "Nodes", vpc_id=vpc.vpc_id, name="research-nodes")
        p5 = GpuNodegroup(
            self,
            "P5",
            cluster_name=cluster.ref,
            node_role_arn=nodes,
            subnet_id=subnets[0],
            security_group_ids=[cluster.attr_cluster_security_group_id, efa.security_group_id],
            name="p5",
            instance_type="p5.48xlarge",
            availability_zone=ZONES[0],
            max_nodes=4,
            capacity={"type": "reservation", "id": "cr-0123456789abcdef0"},
        )
        addons = Addons(self, "Addons", cluster_name=cluster.ref)
        addons.precede(system)
        addons.follow(system)
        addons.precede(p5.nodegroup)

    def role(self, name: str, service: str, *policies: str) -> str:
        """Make a role with AWS's policies."""
        found = [iam.ManagedPolicy.from_aws_managed_policy_name(policy) for policy in policies]
        principal = iam.ServicePrincipal(f"{service}.amazonaws.com")
        return iam.Role(self, name, assumed_by=principal, managed_policies=found).role_arn

    def system_nodes(self, cluster: str, role: str, subnets: list[str]) -> eks.CfnNodegroup:
        """Make two nodes for add-ons."""
        template = ec2.LaunchTemplate(
            self,
            "SystemTemplate",
            instance_type=ec2.InstanceType("c5.2xlarge"),
            http_put_response_hop_limit=1,
            require_imdsv2=True,
            block_devices=[
                ec2.BlockDevice(
                    device_name="/dev/xvda", volume=ec2.BlockDeviceVolume.ebs(100, encrypted=True)
                )
            ],
        )
        return eks.CfnNodegroup(
            self,
            "System",
            cluster_name=cluster,
            node_role=role,
            subnets=subnets,
            ami_type="AL2023_x86_64_STANDARD",
            scaling_config={"minSize": 2, "desiredSize": 2, "maxSize": 2},
            launch_template={
                "id": template.launch_template_id,
                "version": template.latest_version_number,
            },
        )
