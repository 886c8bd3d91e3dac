"""Access entries and pod identity associations of EKS."""

import uuid
from datetime import UTC, datetime

from moto.core.responses import ActionResult, EmptyResult

from megatron_eks.localcloud.aws.services.eks_clusters import Clusters
from megatron_eks.localcloud.aws.services.operation import (
    IN_USE,
    ServiceError,
    changed,
    found,
    kept,
    parameters,
    taken,
)
from megatron_eks.localcloud.aws.values import ACCOUNT


class Access(Clusters):
    """Operations on access entries and pod identities."""

    def create_access_entry(self) -> ActionResult:
        """CreateAccessEntry."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        principal = given["principalArn"]
        if principal in kept(cluster, "entries"):
            raise ServiceError(IN_USE, "The specified access entry is already in use.")
        now = datetime.now(tz=UTC)
        place = f"{self.region}:{ACCOUNT}:access-entry/{cluster.name}"
        entry = {
            "kubernetesGroups": [],
            "tags": {},
            "username": _username(principal),
            "type": "STANDARD",
            **given,
            "accessEntryArn": f"arn:aws:eks:{place}/{uuid.uuid4()}",
            "createdAt": now,
            "modifiedAt": now,
        }
        kept(cluster, "entries")[principal] = entry
        return ActionResult({"accessEntry": entry})

    def update_access_entry(self) -> ActionResult:
        """UpdateAccessEntry."""
        given = parameters(self)
        entry = found(self.cluster(given["clusterName"]), "entries", given["principalArn"])
        return ActionResult({"accessEntry": changed(entry, given, "kubernetesGroups", "username")})

    def delete_access_entry(self) -> EmptyResult:
        """DeleteAccessEntry."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        taken(cluster, "entries", given["principalArn"])
        kept(cluster, "policies").pop(given["principalArn"], None)
        return EmptyResult()

    def associate_access_policy(self) -> ActionResult:
        """AssociateAccessPolicy."""
        given = parameters(self)
        cluster, principal = self.cluster(given["clusterName"]), given["principalArn"]
        found(cluster, "entries", principal)
        now = datetime.now(tz=UTC)
        policy = {**given, "associatedAt": now, "modifiedAt": now}
        kept(cluster, "policies").setdefault(principal, {})[given["policyArn"]] = policy
        return ActionResult({**given, "associatedAccessPolicy": policy})

    def create_pod_identity_association(self) -> ActionResult:
        """CreatePodIdentityAssociation: one role for a service account."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        account = (given["namespace"], given["serviceAccount"])
        for each in kept(cluster, "associations").values():
            if (each["namespace"], each["serviceAccount"]) == account:
                name = "/".join(account)
                raise ServiceError(IN_USE, f"Association already exists: service account {name}")
        return ActionResult({"association": self.associate(cluster, given)})

    def update_pod_identity_association(self) -> ActionResult:
        """UpdatePodIdentityAssociation."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        association = found(cluster, "associations", given["associationId"])
        return ActionResult({"association": changed(association, given, "roleArn")})

    def delete_pod_identity_association(self) -> ActionResult:
        """DeletePodIdentityAssociation."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        return ActionResult({"association": taken(cluster, "associations", given["associationId"])})


def _username(principal: str) -> str:
    """Return the name that EKS gives who has none (EKS User Guide, "Create access entries")."""
    account, is_role, role = principal.partition(":role/")
    if not is_role:
        return principal
    name = role.rpartition("/")[2]
    return f"{account.replace(':iam:', ':sts:')}:assumed-role/{name}/{{{{SessionName}}}}"
