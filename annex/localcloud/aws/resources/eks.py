"""EKS: clusters, add-ons, access and pod identities."""

from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import Context, Handler, Setting, call
from megatron_eks.localcloud.aws.values import Object


def changed(old: Object, new: Object, *names: str) -> Object:
    """Return those of the named properties that have another value now."""
    return {name: new[name] for name in names if name in new and new[name] != old.get(name)}


def _logging(properties: Object) -> Object:
    types = [each["Type"] for each in properties.get("ClusterLogging", {}).get("EnabledTypes", [])]
    known = ["api", "audit", "authenticator", "controllerManager", "scheduler"]
    rest = [each for each in known if each not in types]
    found = [{"types": types, "enabled": True}] if types else []
    return {"clusterLogging": found + ([{"types": rest, "enabled": False}] if rest else [])}


class Cluster(Handler):
    """A control plane; its physical id is its name."""

    kind = "AWS::EKS::Cluster"
    service = "eks"
    creates = ("CreateCluster", "")
    identity = ("Name",)
    made_up = 100
    tagged = ("resourceArn", "Arn")
    deletes = ("DeleteCluster", "name")
    describes = ("DescribeCluster", "name")
    answers: ClassVar = {
        "Arn": "cluster.arn",
        "ClusterSecurityGroupId": "cluster.resourcesVpcConfig.clusterSecurityGroupId",
    }
    owner = "name"
    changes: ClassVar = {
        "Version": Setting("UpdateClusterVersion"),
        # One thing after the other, as EKS asks for.
        **dict.fromkeys(
            ("ResourcesVpcConfig", "AccessConfig", "UpgradePolicy", "DeletionProtection"),
            Setting("UpdateClusterConfig"),
        ),
        "KubeApiServerConfig": Setting("UpdateClusterConfig"),
        "Logging": Setting("UpdateClusterConfig", form=lambda on: {"Logging": _logging(on)}),
    }

    def create(self, context: Context, properties: Object) -> str:
        """Make the cluster."""
        if "Logging" in properties:
            properties = {**properties, "Logging": _logging(properties["Logging"])}
        return super().create(context, properties)


class Addon(Handler):
    """An add-on of a cluster."""

    kind = "AWS::EKS::Addon"
    service = "eks"
    creates = ("CreateAddon", "")
    identity = ("ClusterName", "AddonName")
    updates = ("UpdateAddon",)
    tagged = ("resourceArn", "Arn")
    deletes = ("DeleteAddon", "clusterName", "addonName")
    describes = ("DescribeAddon", "clusterName", "addonName")
    answers: ClassVar = {"Arn": "addon.addonArn"}


class AccessEntry(Handler):
    """Who may use a cluster."""

    kind = "AWS::EKS::AccessEntry"
    service = "eks"
    creates = ("CreateAccessEntry", "")
    identity = ("PrincipalArn", "ClusterName")
    updates = ("UpdateAccessEntry",)
    deletes = ("DeleteAccessEntry", "principalArn", "clusterName")

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Give it its policies; none is ever taken back."""
        del physical_id, old
        entry = {"clusterName": new["ClusterName"], "principalArn": new["PrincipalArn"]}
        for each in new.get("AccessPolicies", []):
            call(context, "eks", "AssociateAccessPolicy", each, **entry)


class PodIdentityAssociation(Handler):
    """The role of a service account; its physical id is the association's."""

    kind = "AWS::EKS::PodIdentityAssociation"
    service = "eks"
    creates = ("CreatePodIdentityAssociation", "association.associationId")
    updates = ("UpdatePodIdentityAssociation", "associationId")

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Take the role back."""
        context.clients("eks").delete_pod_identity_association(
            clusterName=properties["ClusterName"], associationId=physical_id
        )


HANDLERS: tuple[Handler, ...] = (Cluster(), Addon(), AccessEntry(), PodIdentityAssociation())
