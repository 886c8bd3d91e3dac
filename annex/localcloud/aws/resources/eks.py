"""EKS: clusters, add-ons, access and pod identities."""

from collections.abc import Mapping
from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import (
    RESOURCE,
    Context,
    Handler,
    call,
    change_tags,
    tags_of,
    untagged,
)
from megatron_eks.localcloud.aws.values import Object, Value


def tags_argument(properties: Object) -> Object:
    """Return a template's tags as the operations of EKS take them, if there are any."""
    return {"tags": tags} if (tags := tags_of(properties)) else {}


def retag(context: Context, arn: Value, old: Object, new: Object) -> None:
    """Give a resource of EKS the tags that it should have."""
    change_tags(context.clients("eks"), RESOURCE, {"resourceArn": arn}, old, new)


def changed(old: Object, new: Object, *names: str) -> Object:
    """Return those of the named properties that have another value now."""
    return {name: new[name] for name in names if name in new and new[name] != old.get(name)}


class Cluster(Handler):
    """A control plane; its physical id is its name."""

    kind = "AWS::EKS::Cluster"
    service = "eks"
    deletes = ("DeleteCluster", "name")
    describes = ("DescribeCluster", "name")
    answers: ClassVar = {
        "Arn": "cluster.arn",
        "Id": "",
        "Endpoint": "cluster.endpoint",
        "CertificateAuthorityData": "cluster.certificateAuthority.data",
        "ClusterSecurityGroupId": "cluster.resourcesVpcConfig.clusterSecurityGroupId",
        "OpenIdConnectIssuerUrl": "cluster.identity.oidc.issuer",
    }

    def create(self, context: Context, properties: Object) -> str:
        """Make the cluster."""
        plain = {key: value for key, value in properties.items() if key not in ("Tags", "Logging")}
        plain.setdefault("Name", context.new_name(100))
        more = tags_argument(properties)
        if "Logging" in properties:
            more["logging"] = _logging(properties["Logging"])
        answer = call(context, "eks", "CreateCluster", plain, **more)
        return str(answer["cluster"]["name"])

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change one thing after the other, as EKS asks for."""
        eks = context.clients("eks")
        if new.get("Version") != old.get("Version"):
            eks.update_cluster_version(name=physical_id, version=new["Version"])
        for name in (
            *("ResourcesVpcConfig", "AccessConfig", "UpgradePolicy", "DeletionProtection"),
            "KubeApiServerConfig",
        ):
            if part := changed(old, new, name):
                call(context, "eks", "UpdateClusterConfig", {**part, "Name": physical_id})
        if new.get("Logging") != old.get("Logging"):
            eks.update_cluster_config(name=physical_id, logging=_logging(new.get("Logging", {})))
        retag(context, self.attributes(context, physical_id, new)["Arn"], old, new)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return how the cluster is reached."""
        found = super().attributes(context, physical_id, properties)
        return {**found, "EncryptionConfigKeyArn": ""}


def _logging(properties: Object) -> Object:
    """Write a template's log types as EKS takes them."""
    types = [each["Type"] for each in properties.get("ClusterLogging", {}).get("EnabledTypes", [])]
    known = ["api", "audit", "authenticator", "controllerManager", "scheduler"]
    rest = [each for each in known if each not in types]
    found = [{"types": types, "enabled": True}] if types else []
    return {"clusterLogging": found + ([{"types": rest, "enabled": False}] if rest else [])}


class Addon(Handler):
    """An add-on of a cluster."""

    kind = "AWS::EKS::Addon"
    service = "eks"
    deletes = ("DeleteAddon", "clusterName", "addonName")
    describes = ("DescribeAddon", "clusterName", "addonName")
    answers: ClassVar = {"Arn": "addon.addonArn"}

    def create(self, context: Context, properties: Object) -> str:
        """Install the add-on."""
        call(context, "eks", "CreateAddon", untagged(properties), **tags_argument(properties))
        return f"{properties['ClusterName']}|{properties['AddonName']}"

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change version, settings and roles."""
        call(context, "eks", "UpdateAddon", untagged(new))
        retag(context, self.attributes(context, physical_id, new)["Arn"], old, new)


class AccessEntry(Handler):
    """Who may use a cluster."""

    kind = "AWS::EKS::AccessEntry"
    service = "eks"
    deletes = ("DeleteAccessEntry", "principalArn", "clusterName")
    describes = ("DescribeAccessEntry", "principalArn", "clusterName")
    answers: ClassVar = {"AccessEntryArn": "accessEntry.accessEntryArn"}

    def create(self, context: Context, properties: Object) -> str:
        """Let the principal in."""
        call(context, "eks", "CreateAccessEntry", untagged(properties), **tags_argument(properties))
        physical_id = f"{properties['PrincipalArn']}|{properties['ClusterName']}"
        context.note(physical_id)
        self._policies(context, {}, properties)
        return physical_id

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change groups, user name and policies."""
        del physical_id
        call(context, "eks", "UpdateAccessEntry", untagged(new))
        self._policies(context, old, new)

    @staticmethod
    def _policies(context: Context, old: Object, new: Object) -> None:
        eks = context.clients("eks")
        entry = {"clusterName": new["ClusterName"], "principalArn": new["PrincipalArn"]}
        wanted = [each["PolicyArn"] for each in new.get("AccessPolicies", [])]
        for each in old.get("AccessPolicies", []):
            if each["PolicyArn"] not in wanted:
                eks.disassociate_access_policy(**entry, policyArn=each["PolicyArn"])
        for each in new.get("AccessPolicies", []):
            call(context, "eks", "AssociateAccessPolicy", each, **entry)


class PodIdentityAssociation(Handler):
    """The role of a service account; its physical id is the association's."""

    kind = "AWS::EKS::PodIdentityAssociation"
    service = "eks"
    creates = ("CreatePodIdentityAssociation", "association.associationId")

    def create(self, context: Context, properties: Object) -> str:
        """Give the role."""
        return super().create(context, {**untagged(properties), **tags_argument(properties)})

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Give another role."""
        del old
        context.clients("eks").update_pod_identity_association(
            clusterName=new["ClusterName"], associationId=physical_id, roleArn=new["RoleArn"]
        )

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Take the role back."""
        context.clients("eks").delete_pod_identity_association(
            clusterName=properties["ClusterName"], associationId=physical_id
        )


HANDLERS: tuple[Handler, ...] = (Cluster(), Addon(), AccessEntry(), PodIdentityAssociation())
