"""Network, storage and images for whatever trains, in a stack of one's own."""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.library import Images, Network, Storage


class SharedStorage(cdk.Stack):
    """A VPC, FSx for Lustre and a bucket in it, the training images, and who reads the data."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)  # in the region where it is deployed
        network = Network(
            self, "Network", name="research", availability_zones=["us-west-2a", "us-west-2b"]
        )
        storage = Storage(
            self,
            "Storage",
            name="research",
            cluster_name="research",
            vpc_id=network.place.vpc_id,
            private_subnets=network.place.private_subnets,
            node_security_group_id=network.place.node_security_group,
            lustre={"capacity_gib": 4800},
        )
        images = Images(self, "Images", name="research", prefix="research/")
        analysts = iam.Role(self, "Analysts", assumed_by=iam.AccountPrincipal(self.account))
        storage.grant_read_write(analysts)
        cdk.CfnOutput(self, "FileSystem", value=storage.file_systems[0].ref)
        cdk.CfnOutput(self, "Megatron", value=images.builds["megatron"].image_uri)
