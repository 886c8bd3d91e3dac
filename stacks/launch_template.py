"""What the launch templates of all nodes share: metadata service, root volume and tags."""

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

from megatron_eks.plan.cluster.capacity import CapacityPlan

_ROOT_DEVICE = "/dev/xvda"


def metadata_options() -> ec2.CfnLaunchTemplate.MetadataOptionsProperty:
    """Ask for a session token, and keep the node's credentials from its pods.

    A pod is one hop further away than the node (EKS Best Practices, "Restrict access to the
    instance profile assigned to the worker node").
    """
    return ec2.CfnLaunchTemplate.MetadataOptionsProperty(
        http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
    )


def root_volume(size_gib: int) -> ec2.CfnLaunchTemplate.BlockDeviceMappingProperty:
    """Encrypt the root volume with the account's key for volumes.

    A key of our own would have to admit the autoscaling service's role, which an account may not
    have yet; a node that cannot use the key ends without a word.
    """
    return ec2.CfnLaunchTemplate.BlockDeviceMappingProperty(
        device_name=_ROOT_DEVICE,
        ebs=ec2.CfnLaunchTemplate.EbsProperty(
            volume_size=size_gib, volume_type="gp3", encrypted=True, delete_on_termination=True
        ),
    )


def reservation(
    capacity: CapacityPlan,
) -> ec2.CfnLaunchTemplate.CapacityReservationSpecificationProperty | None:
    """Name the reservation, or group of some, that nodes may come from, if there is one."""
    if capacity.reservation_id is None and capacity.reservation_group is None:
        return None
    return ec2.CfnLaunchTemplate.CapacityReservationSpecificationProperty(
        capacity_reservation_target=ec2.CfnLaunchTemplate.CapacityReservationTargetProperty(
            capacity_reservation_id=capacity.reservation_id,
            capacity_reservation_resource_group_arn=capacity.reservation_group,
        )
    )


def market(
    capacity: CapacityPlan,
) -> ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty | None:
    """Name the market, where EKS wants it in the launch template: for Capacity Blocks."""
    if capacity.market is None:
        return None
    return ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty(market_type=capacity.market)


def instance_tags(
    name: str, tags: Mapping[str, str]
) -> list[ec2.CfnLaunchTemplate.TagSpecificationProperty]:
    """Tag what a node group launches: a node group hands its own tags to nothing."""
    pairs = [cdk.CfnTag(key=key, value=value) for key, value in {**tags, "Name": name}.items()]
    return [
        ec2.CfnLaunchTemplate.TagSpecificationProperty(resource_type=kind, tags=pairs)
        for kind in ("instance", "volume", "network-interface")
    ]
