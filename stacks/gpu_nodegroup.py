"""A pool of GPU nodes: launch template with EFA interfaces, placement group and node group."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from constructs import Construct

from megatron_eks.catalog.node_repair import CONDITION, FATAL_REASONS
from megatron_eks.plan.cluster.egress import Egress
from megatron_eks.plan.cluster.platform import GPU_TAINT
from megatron_eks.plan.cluster.pools import NODE_GROUP_CEILING, PoolPlan
from megatron_eks.stacks.launch_template import market, metadata_options, reservation, root_volume
from megatron_eks.stacks.user_data import gpu_user_data

# EKS waits ten minutes for a broken GPU, and the job's other nodes with it; the API takes no zero.
_REPAIR_AFTER_MINUTES = 1


class PlannedNodegroup(Construct):
    """One managed node group whose every network card carries an EFA interface."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        pool: PoolPlan,
        cluster: str,
        role: str,
        subnet: str,
        security_groups: Sequence[str],
        tags: Sequence[ec2.CfnLaunchTemplate.TagSpecificationProperty],
        egress: Egress,
    ) -> None:
        super().__init__(scope, construct_id)
        user_data = gpu_user_data(pool, egress)
        template = self._launch_template(pool, security_groups, tags, user_data)
        self.launch_template = template
        """What its nodes are launched from."""
        self.nodegroup = eks.CfnNodegroup(
            self,
            "Nodegroup",
            cluster_name=cluster,
            # A name of its own turns a change that would replace the nodes into a refusal: the
            # new group cannot be made while one of the same name stands.
            nodegroup_name=pool.name,
            node_role=role,
            # EFA traffic cannot leave a zone, and a file system in another one is slow and billed.
            subnets=[subnet],
            launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
                id=template.ref, version=template.attr_latest_version_number
            ),
            ami_type=pool.ami_type,
            version=pool.kubernetes_version,
            release_version=pool.ami_release,
            capacity_type=pool.capacity.node_group_type,
            # Constant, whatever the plan says: CloudFormation sends the whole block when a part of
            # it changes, and with it a wanted size that is long out of date (eksctl#3532).
            scaling_config=eks.CfnNodegroup.ScalingConfigProperty(
                min_size=0, desired_size=0, max_size=NODE_GROUP_CEILING
            ),
            # MINIMAL ends a node before it asks for its successor: nobody has a spare one.
            update_config=eks.CfnNodegroup.UpdateConfigProperty(
                max_unavailable=1, update_strategy="MINIMAL"
            ),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(
                enabled=True,
                max_parallel_nodes_repaired_count=pool.repairs_at_once,
                max_unhealthy_node_threshold_count=pool.repairs_at_once,
                # EKS takes no override without all four of these.
                node_repair_config_overrides=[
                    eks.CfnNodegroup.NodeRepairConfigOverridesProperty(
                        node_monitoring_condition=CONDITION,
                        node_unhealthy_reason=reason,
                        min_repair_wait_time_mins=_REPAIR_AFTER_MINUTES,
                        repair_action=action,
                    )
                    for reason, action in FATAL_REASONS.items()
                ],
            ),
            labels=pool.labels,
            taints=[
                eks.CfnNodegroup.TaintProperty(key=GPU_TAINT, value="true", effect="NO_SCHEDULE")
            ],
        )
        """The node group itself."""

    def _launch_template(
        self,
        pool: PoolPlan,
        security_groups: Sequence[str],
        tags: Sequence[ec2.CfnLaunchTemplate.TagSpecificationProperty],
        user_data: str,
    ) -> ec2.CfnLaunchTemplate:
        placement = None
        if pool.placement_group:
            rack = ec2.CfnPlacementGroup(self, "Rack", strategy="cluster")
            placement = ec2.CfnLaunchTemplate.PlacementProperty(group_name=rack.ref)
        return ec2.CfnLaunchTemplate(
            self,
            "LaunchTemplate",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                # Not in the node group: Capacity Blocks demand it here, and once is enough.
                instance_type=pool.instance.name,
                network_interfaces=self._interfaces(pool, security_groups),
                metadata_options=metadata_options(),
                block_device_mappings=[root_volume(pool.root_volume_gib)],
                placement=placement,
                capacity_reservation_specification=reservation(pool.capacity),
                instance_market_options=market(pool.capacity),
                tag_specifications=list(tags),
                user_data=cdk.Fn.base64(user_data),
            ),
        )

    @staticmethod
    def _interfaces(
        pool: PoolPlan, security_groups: Sequence[str]
    ) -> list[ec2.CfnLaunchTemplate.NetworkInterfaceProperty]:
        # Nothing is said of public addresses: EC2 refuses the setting on several interfaces, and
        # the subnet gives none.
        return [
            ec2.CfnLaunchTemplate.NetworkInterfaceProperty(
                network_card_index=interface.card,
                device_index=interface.device,
                interface_type=interface.type,
                groups=list(security_groups),
                delete_on_termination=True,
            )
            for interface in pool.interfaces
        ]
