"""Add-ons of EKS."""

import uuid
from datetime import UTC, datetime

from moto.core.responses import ActionResult
from moto.eks.models import Cluster

from megatron_eks.localcloud.aws.services.eks_clusters import Clusters
from megatron_eks.localcloud.aws.services.operation import (
    IN_USE,
    ServiceError,
    changed,
    found,
    kept,
    parameters,
    taken,
    update_record,
)
from megatron_eks.localcloud.aws.values import ACCOUNT, Object


class Addons(Clusters):
    """Operations on add-ons."""

    def create_addon(self) -> ActionResult:
        """CreateAddon."""
        given = parameters(self)
        cluster, name = self.cluster(given["clusterName"]), given["addonName"]
        if name in kept(cluster, "addons"):
            raise ServiceError(IN_USE, "Addon already exists.")
        now = datetime.now(tz=UTC)
        place = f"{self.region}:{ACCOUNT}:addon/{cluster.name}/{name}"
        addon = {
            "tags": {},
            **given,
            "status": "ACTIVE",
            "health": {"issues": []},
            "addonArn": f"arn:aws:eks:{place}/{uuid.uuid4()}",
            "createdAt": now,
            "modifiedAt": now,
            "podIdentityAssociations": self._associations(cluster, given),
        }
        kept(cluster, "addons")[name] = addon
        return ActionResult({"addon": addon})

    def describe_addon(self) -> ActionResult:
        """DescribeAddon."""
        given = parameters(self)
        addon = found(self.cluster(given["clusterName"]), "addons", given["addonName"])
        return ActionResult({"addon": addon})

    def update_addon(self) -> ActionResult:
        """UpdateAddon."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        addon = found(cluster, "addons", given["addonName"])
        changed(addon, given, "addonVersion", "serviceAccountRoleArn", "configurationValues")
        if "podIdentityAssociations" in given:
            addon["podIdentityAssociations"] = self._associations(cluster, given)
        return ActionResult({"update": update_record("AddonUpdate", given)})

    def delete_addon(self) -> ActionResult:
        """DeleteAddon, and the roles of its service accounts."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        addon = taken(cluster, "addons", given["addonName"])
        self._associations(cluster, {"addonName": given["addonName"]})
        return ActionResult({"addon": addon})

    def _associations(self, cluster: Cluster, given: Object) -> list[str]:
        """Give the add-on's service accounts their roles; EKS keeps them as associations."""
        name, known = given["addonName"], kept(cluster, "associations")
        for number in [key for key, each in known.items() if each.get("ownerArn") == name]:
            del known[number]
        more = {"namespace": "kube-system", "ownerArn": name}
        return [
            self.associate(cluster, {**each, **more})["associationArn"]
            for each in given.get("podIdentityAssociations", [])
        ]
