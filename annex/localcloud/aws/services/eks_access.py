"""Access entries and pod identity associations of EKS."""

import uuid
from datetime import UTC, datetime

from moto.core.responses import ActionResult, EmptyResult
from moto.eks.models import Cluster

from megatron_eks.localcloud.aws.services.eks_clusters import Clusters
from megatron_eks.localcloud.aws.services.operation import (
    InUseError,
    NotFoundError,
    found,
    kept,
    parameters,
)
from megatron_eks.localcloud.aws.values import ACCOUNT, Object


class Access(Clusters):
    """Operations on access entries and pod identities."""

    def create_access_entry(self) -> ActionResult:
        """CreateAccessEntry."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        principal = given["principalArn"]
        if principal in kept(cluster, "entries"):
            raise InUseError(
                "The specified access entry resource is already in use on this cluster."
            )
        now = datetime.now(tz=UTC)
        place = f"{self.region}:{ACCOUNT}:access-entry/{cluster.name}"
        entry = {
            "clusterName": cluster.name,
            "principalArn": principal,
            "kubernetesGroups": given.get("kubernetesGroups", []),
            "accessEntryArn": f"arn:aws:eks:{place}/{uuid.uuid4()}",
            "createdAt": now,
            "modifiedAt": now,
            "tags": given.get("tags", {}),
            "username": given.get("username", _username(principal)),
            "type": given.get("type", "STANDARD"),
        }
        kept(cluster, "entries")[principal] = entry
        return ActionResult({"accessEntry": entry})

    def list_access_entries(self) -> ActionResult:
        """ListAccessEntries."""
        cluster = self.cluster(parameters(self)["clusterName"])
        return ActionResult({"accessEntries": list(kept(cluster, "entries"))})

    def update_access_entry(self) -> ActionResult:
        """UpdateAccessEntry."""
        given = parameters(self)
        entry = self._entry(given)
        for name in ("kubernetesGroups", "username"):
            if name in given:
                entry[name] = given[name]
        return ActionResult({"accessEntry": entry})

    def delete_access_entry(self) -> EmptyResult:
        """DeleteAccessEntry."""
        given = parameters(self)
        entry = self._entry(given)
        cluster = self.cluster(given["clusterName"])
        kept(cluster, "entries").pop(entry["principalArn"])
        kept(cluster, "policies").pop(entry["principalArn"], None)
        return EmptyResult()

    def associate_access_policy(self) -> ActionResult:
        """AssociateAccessPolicy."""
        given = parameters(self)
        entry = self._entry(given)
        now = datetime.now(tz=UTC)
        policy = {
            "policyArn": given["policyArn"],
            "accessScope": given["accessScope"],
            "associatedAt": now,
            "modifiedAt": now,
        }
        self._policies(given)[given["policyArn"]] = policy
        return ActionResult(
            {
                "clusterName": given["clusterName"],
                "principalArn": entry["principalArn"],
                "associatedAccessPolicy": policy,
            }
        )

    def create_pod_identity_association(self) -> ActionResult:
        """CreatePodIdentityAssociation: one role for a service account."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        account = (given["namespace"], given["serviceAccount"])
        for each in kept(cluster, "associations").values():
            if (each["namespace"], each["serviceAccount"]) == account:
                raise InUseError(
                    f"Association already exists: {each['associationId']} for service account "
                    f"{'/'.join(account)}"
                )
        return ActionResult({"association": self.associate(cluster, given)})

    def update_pod_identity_association(self) -> ActionResult:
        """UpdatePodIdentityAssociation."""
        given = parameters(self)
        association = self._association(given)
        association["roleArn"] = given.get("roleArn", association["roleArn"])
        return ActionResult({"association": association})

    def delete_pod_identity_association(self) -> ActionResult:
        """DeletePodIdentityAssociation."""
        given = parameters(self)
        association = self._association(given)
        cluster = self.cluster(given["clusterName"])
        kept(cluster, "associations").pop(association["associationId"])
        return ActionResult({"association": association})

    def _entry(self, given: Object) -> Object:
        principal = given["principalArn"]
        missing = NotFoundError(f"The specified principalArn could not be found: {principal}")
        return found(self.cluster(given["clusterName"]), "entries", principal, missing)

    def _policies(self, given: Object) -> Object:
        cluster: Cluster = self.cluster(given["clusterName"])
        policies: Object = kept(cluster, "policies").setdefault(given["principalArn"], {})
        return policies

    def _association(self, given: Object) -> Object:
        number = given["associationId"]
        missing = NotFoundError(f"No association found with associationId: {number}")
        return found(self.cluster(given["clusterName"]), "associations", number, missing)


def _username(principal: str) -> str:
    """Return the name that EKS gives who has none (EKS User Guide, "Create access entries")."""
    account, is_role, role = principal.partition(":role/")
    if not is_role:
        return principal
    name = role.rpartition("/")[2]
    return f"{account.replace(':iam:', ':sts:')}:assumed-role/{name}/{{{{SessionName}}}}"
