"""EKS add-ons, each with the permissions it needs through Pod Identity."""

import json
from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_eks as eks
from constructs import Construct

from megatron_eks.plan.cluster.cluster import AddonPlan
from megatron_eks.stacks.policies import POD_IDENTITY, role

# A node becomes ready with these; every other add-on becomes active on a ready node.
_BEFORE_NODES = frozenset({"eks-pod-identity-agent", "kube-proxy", "vpc-cni"})


class PlannedAddons(Construct):
    """The plan's add-ons, in the order in which nodes come up."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        plans: Sequence[AddonPlan],
        cluster: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self._before: list[eks.CfnAddon] = []
        self._after: list[eks.CfnAddon] = []
        for plan in plans:
            addon = self._addon(plan, cluster)
            (self._before if plan.name in _BEFORE_NODES else self._after).append(addon)

    def precede(self, nodegroup: cdk.CfnResource) -> None:
        """Make what a node needs before the nodes."""
        for addon in self._before:
            nodegroup.add_resource_dependency(addon)

    def follow(self, nodegroup: cdk.CfnResource) -> None:
        """Make the others when there are nodes to run on: without them creation times out."""
        for addon in self._after:
            addon.add_resource_dependency(nodegroup)

    def _addon(self, plan: AddonPlan, cluster: str) -> eks.CfnAddon:
        return eks.CfnAddon(
            self,
            plan.name,
            cluster_name=cluster,
            addon_name=plan.name,
            addon_version=plan.version,
            # EKS brings defaults of its own for some; what this file says shall hold.
            resolve_conflicts="OVERWRITE",
            configuration_values=json.dumps(plan.configuration) if plan.configuration else None,
            pod_identity_associations=self._pod_identity(plan),
        )

    def _pod_identity(
        self, plan: AddonPlan
    ) -> list[eks.CfnAddon.PodIdentityAssociationProperty] | None:
        if plan.service_account is None or plan.managed_policy is None:
            return None
        made = role(
            self,
            f"{plan.name}-role",
            description=f"Add-on {plan.name}",
            service=POD_IDENTITY,
            managed=[plan.managed_policy],
            reason="AWS keeps this policy in step with the add-on's releases",
        )
        return [
            eks.CfnAddon.PodIdentityAssociationProperty(
                role_arn=made.attr_arn, service_account=plan.service_account
            )
        ]
