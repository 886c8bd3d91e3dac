"""The Cluster stack: EKS, its administrators, add-ons and node groups."""

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from constructs import Construct

from megatron_eks.plan.cluster.cluster import EVENT_TTL, ClusterPlan
from megatron_eks.stacks.addons import PlannedAddons
from megatron_eks.stacks.base import BaseStack, Place, encryption_key, log_group
from megatron_eks.stacks.bastion import Bastion
from megatron_eks.stacks.gpu_nodegroup import PlannedNodegroup
from megatron_eks.stacks.launch_template import instance_tags, metadata_options, root_volume
from megatron_eks.stacks.pod_roles import associate, pool_scaler
from megatron_eks.stacks.policies import acknowledge, partition, role
from megatron_eks.stacks.user_data import system_user_data

_LOGS = ("api", "audit", "authenticator", "controllerManager", "scheduler")
_SYSTEM_ROOT_VOLUME_GIB = 100

# Nodes describe themselves and pull images; what pods need comes through Pod Identity.
_NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")


class ClusterStack(BaseStack):
    """The control plane and everything that lives as long as it does."""

    def __init__(
        self, scope: Construct, plan: ClusterPlan, place: Place, job_roles: Mapping[str, str]
    ) -> None:
        super().__init__(scope, plan, "Cluster", "EKS control plane and nodes")
        self._plan = plan
        self._place = place
        cluster = self._control_plane()
        self._cluster = cluster.ref
        self._people()
        associate(self, plan, cluster=self._cluster, roles=job_roles)
        self._node_role = self._role("NodeRole", "ec2.amazonaws.com", _NODE_POLICIES)
        self.security_groups = [
            cluster.attr_cluster_security_group_id,
            place.node_security_group,
        ]
        """Of the nodes: EKS's own, and ours."""
        addons = PlannedAddons(self, "Addons", plans=plan.addons, cluster=self._cluster)
        system = self._system_nodegroup()
        addons.precede(system)
        addons.follow(system)
        for pool in plan.pools:
            gpu = PlannedNodegroup(
                self,
                f"Pool-{pool.name}",
                pool=pool,
                cluster=self._cluster,
                role=self._node_role,
                subnet=place.private_subnets[pool.zone],
                security_groups=self.security_groups,
                tags=instance_tags(f"{plan.name}-{pool.name}", plan.tags),
                egress=plan.platform.egress,
            )
            addons.precede(gpu.nodegroup)
        if plan.scaled_pools:
            pool_scaler(self, plan, cluster=self._cluster)
        if plan.access.bastion:
            bastion = Bastion(self, "Bastion", cluster=plan.name, place=place)
            cdk.CfnOutput(self, "BastionId", value=bastion.instance_id)

    def _control_plane(self) -> eks.CfnCluster:
        plan = self._plan
        # EKS writes to a group of this name, and would make one without key and end.
        log_name = f"/aws/eks/{plan.name}/cluster"
        key = encryption_key(
            self,
            "Key",
            region=plan.region,
            description=f"Kubernetes Secrets and control plane logs of {plan.name}",
            log_groups=log_name,
            removal=cdk.RemovalPolicy.DESTROY,
        )
        group = log_group(self, "ControlPlaneLogs", name=log_name, key=key)
        cluster = eks.CfnCluster(
            self,
            "Cluster",
            name=plan.name,
            version=plan.kubernetes_version,
            role_arn=self._role("ClusterRole", "eks.amazonaws.com", ("AmazonEKSClusterPolicy",)),
            resources_vpc_config=eks.CfnCluster.ResourcesVpcConfigProperty(
                subnet_ids=list(self._place.private_subnets.values()),
                endpoint_private_access=True,
                endpoint_public_access=bool(plan.access.public_cidrs),
                public_access_cidrs=list(plan.access.public_cidrs) or None,
            ),
            kubernetes_network_config=eks.CfnCluster.KubernetesNetworkConfigProperty(
                service_ipv4_cidr=plan.network.service_cidrs[0]
            ),
            access_config=eks.CfnCluster.AccessConfigProperty(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
            ),
            encryption_config=[
                eks.CfnCluster.EncryptionConfigProperty(
                    provider=eks.CfnCluster.ProviderProperty(key_arn=key),
                    resources=["secrets"],
                )
            ],
            logging=eks.CfnCluster.LoggingProperty(
                cluster_logging=eks.CfnCluster.ClusterLoggingProperty(
                    enabled_types=[
                        eks.CfnCluster.LoggingTypeConfigProperty(type=name) for name in _LOGS
                    ]
                )
            ),
            # Pods' events outlive the pods for so long; `meks preflight` asks EKS for the bounds.
            kube_api_server_config=eks.CfnCluster.KubeApiServerConfigProperty(event_ttl=EVENT_TTL),
            deletion_protection=plan.access.deletion_protection,
            # Extended support costs six times as much; AWS announces the upgrade that ends support.
            upgrade_policy=eks.CfnCluster.UpgradePolicyProperty(support_type="STANDARD"),
            # Networking comes as add-ons, so that its versions are pinned and its rights its own.
            bootstrap_self_managed_addons=False,
        )
        cluster.add_resource_dependency(group)
        if not plan.access.public_cidrs:
            # EKS's own group lets its members in only; people come from elsewhere in the VPC.
            for index, cidr in enumerate(plan.network.vpc_cidrs):
                ec2.CfnSecurityGroupIngress(
                    self,
                    f"EndpointFromVpc{index or ''}",
                    group_id=cluster.attr_cluster_security_group_id,
                    description="The private API endpoint, from the VPC",
                    ip_protocol="tcp",
                    from_port=443,
                    to_port=443,
                    cidr_ip=cidr,
                )
        acknowledge(
            cluster,
            "the endpoint answers the configured addresses only, and none when there are none",
            "AwsSolutions-EKS1",
        )
        return cluster

    def _people(self) -> None:
        """Let administrators do everything; of teams, charts say what their groups may do."""
        policy = f"arn:{partition()}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        everything = eks.CfnAccessEntry.AccessPolicyProperty(
            policy_arn=policy,
            access_scope=eks.CfnAccessEntry.AccessScopeProperty(type="cluster"),
        )
        entries, name = Construct(self, "Administrators"), self._cluster
        for arn in self._plan.access.admin_role_arns:
            eks.CfnAccessEntry(
                entries, arn, cluster_name=name, principal_arn=arn, access_policies=[everything]
            )
        entries = Construct(self, "Teams")
        for team in self._plan.teams:
            groups = [team.group]
            for arn in team.role_arns:
                eks.CfnAccessEntry(
                    entries, arn, cluster_name=name, principal_arn=arn, kubernetes_groups=groups
                )

    def _role(self, construct_id: str, service: str, policies: tuple[str, ...]) -> str:
        return role(
            self,
            construct_id,
            description=f"{construct_id} of {self._plan.name}",
            service=service,
            managed=policies,
            reason="EKS asks for these policies, and AWS keeps them in step with what EKS does",
        ).attr_arn

    def _system_nodegroup(self) -> eks.CfnNodegroup:
        nodes = self._plan.system_nodes
        user_data = system_user_data(self._plan.platform.egress)
        template = ec2.CfnLaunchTemplate(
            self,
            "SystemLaunchTemplate",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                instance_type=nodes.instance_type,
                security_group_ids=self.security_groups,
                metadata_options=metadata_options(),
                block_device_mappings=[root_volume(_SYSTEM_ROOT_VOLUME_GIB)],
                tag_specifications=instance_tags(f"{self._plan.name}-system", self._plan.tags),
                user_data=cdk.Fn.base64(user_data) if user_data else None,
            ),
        )
        return eks.CfnNodegroup(
            self,
            "SystemNodegroup",
            cluster_name=self._cluster,
            node_role=self._node_role,
            subnets=list(self._place.private_subnets.values()),
            launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
                id=template.ref, version=template.attr_latest_version_number
            ),
            ami_type="AL2023_x86_64_STANDARD",
            version=self._plan.kubernetes_version,
            release_version=nodes.ami_release,
            # One number three times: nothing else can have resized this group in the meantime.
            scaling_config=eks.CfnNodegroup.ScalingConfigProperty(
                min_size=nodes.count, desired_size=nodes.count, max_size=nodes.count
            ),
            update_config=eks.CfnNodegroup.UpdateConfigProperty(max_unavailable=1),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
            labels={"role": "system"},
        )
