"""Add-ons of EKS."""

import uuid
from datetime import UTC, datetime

from moto.core.responses import ActionResult
from moto.eks.models import Cluster

from megatron_eks.localcloud.aws.services.eks_clusters import Clusters
from megatron_eks.localcloud.aws.services.operation import (
    InUseError,
    NotFoundError,
    found,
    kept,
    parameters,
    update_record,
)
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, present


class Addons(Clusters):
    """Operations on add-ons."""

    def create_addon(self) -> ActionResult:
        """CreateAddon."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        name = given["addonName"]
        if name in kept(cluster, "addons"):
            raise InUseError("Addon already exists.")
        now = datetime.now(tz=UTC)
        place = f"{self.region}:{ACCOUNT}:addon/{cluster.name}/{name}"
        addon = present(
            {
                "addonName": name,
                "clusterName": cluster.name,
                "status": "ACTIVE",
                "addonVersion": given.get("addonVersion"),
                "health": {"issues": []},
                "addonArn": f"arn:aws:eks:{place}/{uuid.uuid4()}",
                "createdAt": now,
                "modifiedAt": now,
                "serviceAccountRoleArn": given.get("serviceAccountRoleArn"),
                "tags": given.get("tags", {}),
                "configurationValues": given.get("configurationValues"),
                "podIdentityAssociations": self._associations(cluster, given),
            }
        )
        kept(cluster, "addons")[name] = addon
        return ActionResult({"addon": addon})

    def describe_addon(self) -> ActionResult:
        """DescribeAddon."""
        return ActionResult({"addon": self._addon(parameters(self))})

    def list_addons(self) -> ActionResult:
        """ListAddons."""
        cluster = self.cluster(parameters(self)["clusterName"])
        return ActionResult({"addons": list(kept(cluster, "addons"))})

    def update_addon(self) -> ActionResult:
        """UpdateAddon."""
        given = parameters(self)
        addon = self._addon(given)
        cluster = self.cluster(given["clusterName"])
        for name in ("addonVersion", "serviceAccountRoleArn", "configurationValues"):
            if name in given:
                addon[name] = given[name]
        if "podIdentityAssociations" in given:
            addon["podIdentityAssociations"] = self._associations(cluster, given)
        addon["modifiedAt"] = datetime.now(tz=UTC)
        return ActionResult({"update": update_record("AddonUpdate", given)})

    def delete_addon(self) -> ActionResult:
        """DeleteAddon."""
        given = parameters(self)
        addon = self._addon(given)
        cluster = self.cluster(given["clusterName"])
        kept(cluster, "addons").pop(addon["addonName"])
        self._forget(cluster, addon["addonName"])
        return ActionResult({"addon": addon})

    def _addon(self, given: Object) -> Object:
        cluster = self.cluster(given["clusterName"])
        name = given["addonName"]
        missing = NotFoundError(f"No addon: {name} found in cluster: {cluster.name}")
        return found(cluster, "addons", name, missing)

    def _associations(self, cluster: Cluster, given: Object) -> list[str]:
        """Give the add-on's service accounts their roles; EKS keeps them as associations."""
        self._forget(cluster, given["addonName"])
        more = {"namespace": "kube-system", "ownerArn": given["addonName"]}
        return [
            self.associate(cluster, {**each, **more})["associationArn"]
            for each in given.get("podIdentityAssociations", [])
        ]

    @staticmethod
    def _forget(cluster: Cluster, addon: str) -> None:
        known = kept(cluster, "associations")
        for number in [key for key, each in known.items() if each.get("ownerArn") == addon]:
            del known[number]
