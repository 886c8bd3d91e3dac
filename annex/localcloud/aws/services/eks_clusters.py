"""EKS clusters as moto lacks them: their security group, protection, versions and updates."""

import uuid
from datetime import UTC, datetime, time
from typing import ClassVar

from botocore import xform_name
from moto.core.responses import ActionResult, EmptyResult
from moto.eks.models import Cluster
from moto.eks.responses import EKSResponse

from megatron_eks.catalog.pins import KUBERNETES_STANDARD_SUPPORT_ENDS as SUPPORT_ENDS
from megatron_eks.localcloud.aws.services.api_server import ApiServer
from megatron_eks.localcloud.aws.services.operation import (
    NOT_FOUND,
    InvalidParameterError,
    Regional,
    ServiceError,
    kept,
    parameters,
    update_record,
)
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value

# What describing tells and moto does not keep: by our name, the attribute that moto's answer reads.
_SETTINGS = {
    "accessConfig": "access_config",
    "upgradePolicy": "upgrade_policy",
    "deletionProtection": "deletion_protection",
    "kubeApiServerConfig": "kube_api_server_config",
}


class Clusters(Regional, EKSResponse):
    """Operations on clusters."""

    api_server: ClassVar[ApiServer | None] = None
    """Set once, when the server starts; without one, endpoints lead nowhere."""

    def cluster(self, name: str) -> Cluster:
        """Return a cluster. Raises EKS's error if there is none."""
        return self.eks_backend.describe_cluster(name=name)

    def associate(self, cluster: Cluster, given: Object) -> Object:
        """Give a service account its role."""
        number, now = f"a-{uuid.uuid4().hex[:17]}", datetime.now(tz=UTC)
        place = f"{self.region}:{ACCOUNT}:podidentityassociation/{cluster.name}/{number}"
        association = kept(cluster, "associations")[number] = {
            "tags": {},
            **given,
            "clusterName": cluster.name,
            "associationArn": f"arn:aws:eks:{place}",
            "associationId": number,
            "createdAt": now,
            "modifiedAt": now,
        }
        return association

    def create_cluster(self) -> ActionResult:
        """CreateCluster; EKS makes the group of the control plane's interfaces."""
        given = parameters(self)
        network = dict(given["resourcesVpcConfig"])
        ec2 = self.client("ec2")
        subnets = ec2.describe_subnets(SubnetIds=network["subnetIds"])["Subnets"]
        name = given["name"]
        if name in self.eks_backend.clusters:
            raise InvalidParameterError(f"Cluster already exists with name: {name}")
        group = ec2.create_security_group(
            GroupName=f"eks-cluster-sg-{name}",
            Description="EKS created security group applied to ENI that is attached to EKS "
            "Control Plane master nodes, as well as any managed workloads.",
            VpcId=subnets[0]["VpcId"],
        )
        network |= {"clusterSecurityGroupId": group["GroupId"], "vpcId": subnets[0]["VpcId"]}
        names = ("encryptionConfig", "kubernetesNetworkConfig", "logging", "tags", "version")
        cluster = self.eks_backend.create_cluster(
            name=name,
            role_arn=given["roleArn"],
            resources_vpc_config=network,
            **{xform_name(each): given[each] for each in names if each in given},
        )
        for setting, attribute in _SETTINGS.items():
            setattr(cluster, attribute, given.get(setting))
        if self.api_server:
            self.api_server.stand_behind(cluster)
        return ActionResult({"cluster": cluster})

    def describe_cluster_versions(self) -> ActionResult:
        """DescribeClusterVersions: those that this release knows."""
        wanted = parameters(self).get("clusterVersions") or list(SUPPORT_ENDS)
        versions = [
            {
                "clusterVersion": each,
                "endOfStandardSupportDate": datetime.combine(ends, time(tzinfo=UTC)),
            }
            for each in wanted
            if (ends := SUPPORT_ENDS.get(each)) is not None
        ]
        return ActionResult({"clusterVersions": versions})

    def delete_cluster(self) -> ActionResult:
        """DeleteCluster, which protection forbids."""
        cluster = self.cluster(parameters(self)["name"])
        if getattr(cluster, "deletion_protection", False):
            raise ServiceError(
                "InvalidRequestException",
                f"Cannot delete cluster {cluster.name} because deletion protection is enabled",
            )
        deleted = self.eks_backend.delete_cluster(name=cluster.name)
        group = cluster.resources_vpc_config.get("clusterSecurityGroupId")
        if group:
            self.client("ec2").delete_security_group(GroupId=group)
        return ActionResult({"cluster": deleted})

    def update_cluster_config(self) -> ActionResult:
        """UpdateClusterConfig."""
        given = parameters(self)
        cluster = self.cluster(given.pop("name"))
        if "resourcesVpcConfig" in given:
            cluster.resources_vpc_config |= given["resourcesVpcConfig"]
        if "logging" in given:
            cluster.logging = given["logging"]
        for setting, attribute in _SETTINGS.items():
            if setting in given:
                setattr(cluster, attribute, given[setting])
        return ActionResult({"update": update_record("ConfigUpdate", given)})

    def update_cluster_version(self) -> ActionResult:
        """UpdateClusterVersion: one minor version at a time, and never back."""
        given = parameters(self)
        cluster = self.cluster(given["name"])
        now, wanted = (int(each.split(".")[1]) for each in (cluster.version, given["version"]))
        if wanted != now + 1:
            raise InvalidParameterError(
                f"Unsupported Kubernetes minor version update from {cluster.version} to "
                f"{given['version']}"
            )
        cluster.version = given["version"]
        return ActionResult({"update": update_record("VersionUpdate", given)})

    def tag_resource(self) -> EmptyResult:
        """TagResource, of whatever has tags."""
        given = parameters(self)
        self._tags(given["resourceArn"]).update(given["tags"])
        return EmptyResult()

    def untag_resource(self) -> EmptyResult:
        """UntagResource."""
        given = parameters(self)
        for key in given["tagKeys"]:
            self._tags(given["resourceArn"]).pop(key, None)
        return EmptyResult()

    def _tags(self, arn: str) -> Object:
        tags: Object
        for cluster in self.eks_backend.clusters.values():
            owners: list[Value] = [cluster, *cluster.nodegroups.values()]
            for owner in owners:
                if owner.arn == arn:
                    tags = owner.tags = owner.tags or {}
                    return tags
            for kind in ("addons", "entries", "associations"):
                for each in kept(cluster, kind).values():
                    if arn in each.values():
                        tags = each["tags"]
                        return tags
        raise ServiceError(NOT_FOUND, f"The specified resource could not be found: {arn}")
