"""A way to a private API endpoint: an instance that Session Manager forwards ports through."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from megatron_eks.catalog.pins import BASTION_IMAGE, BASTION_INSTANCE_TYPE
from megatron_eks.stacks.base import Place
from megatron_eks.stacks.launch_template import metadata_options
from megatron_eks.stacks.policies import acknowledge, role

_VOLUME_GIB = 10


class Bastion(Construct):
    """An instance without a key, an address or an open port; IAM decides who uses it."""

    def __init__(self, scope: Construct, construct_id: str, *, cluster: str, place: Place) -> None:
        super().__init__(scope, construct_id)
        name = f"{cluster}-bastion"
        group = ec2.CfnSecurityGroup(
            self,
            "SecurityGroup",
            group_description="Bastion: nobody in, HTTPS out",
            vpc_id=place.vpc_id,
            security_group_egress=[
                ec2.CfnSecurityGroup.EgressProperty(
                    ip_protocol="tcp",
                    from_port=443,
                    to_port=443,
                    cidr_ip="0.0.0.0/0",
                    description="Session Manager and the API endpoint",
                )
            ],
            tags=[cdk.CfnTag(key="Name", value=name)],
        )
        template = ec2.CfnLaunchTemplate(
            self,
            "Template",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                metadata_options=metadata_options()
            ),
        )
        instance = ec2.CfnInstance(
            self,
            "Instance",
            image_id=BASTION_IMAGE,
            instance_type=BASTION_INSTANCE_TYPE,
            iam_instance_profile=self._profile(name),
            subnet_id=next(iter(place.private_subnets.values())),
            security_group_ids=[group.attr_group_id],
            launch_template=ec2.CfnInstance.LaunchTemplateSpecificationProperty(
                launch_template_id=template.ref, version=template.attr_latest_version_number
            ),
            block_device_mappings=[
                ec2.CfnInstance.BlockDeviceMappingProperty(
                    device_name="/dev/xvda",
                    ebs=ec2.CfnInstance.EbsProperty(
                        volume_size=_VOLUME_GIB,
                        volume_type="gp3",
                        encrypted=True,
                        delete_on_termination=True,
                    ),
                )
            ],
            monitoring=True,
            tags=[cdk.CfnTag(key="Name", value=name)],
        )
        acknowledge(instance, "it holds nothing, and goes with its stack", "AwsSolutions-EC29")
        self.instance_id = instance.ref
        """What `aws ssm start-session --target` takes."""

    def _profile(self, name: str) -> str:
        made = role(
            self,
            "Role",
            description=f"Session Manager on {name}",
            service="ec2.amazonaws.com",
            managed=["AmazonSSMManagedInstanceCore"],
            reason="AWS keeps this policy in step with its agent",
        )
        return iam.CfnInstanceProfile(self, "Profile", roles=[made.ref]).ref
