"""Node groups as EKS keeps them: sizes in bounds, versions, and nodes that are instances."""

from botocore import xform_name
from botocore.exceptions import ClientError
from moto.core.responses import ActionResult
from moto.eks.models import Nodegroup

from megatron_eks.localcloud.aws.services import nodes
from megatron_eks.localcloud.aws.services.eks_clusters import Clusters
from megatron_eks.localcloud.aws.services.operation import (
    InvalidParameterError,
    kept,
    parameters,
    update_record,
)
from megatron_eks.localcloud.aws.values import Object

# Members of CreateNodegroup, which moto calls the same in its own way of writing.
_OPTIONAL = (
    *("amiType", "capacityType", "instanceTypes", "labels", "releaseVersion", "tags", "taints"),
)


class Nodegroups(Clusters):
    """Operations on node groups."""

    def create_nodegroup(self) -> ActionResult:
        """CreateNodegroup, with the nodes that it wants."""
        given = parameters(self)
        cluster = self.cluster(given["clusterName"])
        _check_sizes(given["scalingConfig"])
        template = given.get("launchTemplate")
        if template:
            given["launchTemplate"] = template = self._template(template)
        group = self.eks_backend.create_nodegroup(
            cluster_name=given["clusterName"],
            nodegroup_name=given["nodegroupName"],
            scaling_config=given["scalingConfig"],
            subnets=given["subnets"],
            node_role=given["nodeRole"],
            launch_template=template,
            version=given.get("version") or cluster.version,
            **{xform_name(each): given[each] for each in _OPTIONAL if each in given},
        )
        # In the place of moto's defaults, which EKS does not have.
        group.remote_access = given.get("remoteAccess", {})
        group.resources = {"autoScalingGroups": [{"name": f"eks-{group.uuid}"}]}
        group.update_config = given.get("updateConfig", {"maxUnavailable": 1})
        group.node_repair_config = given.get("nodeRepairConfig")
        if template and "instanceTypes" not in given:
            # Told by the launch template alone, as EKS does.
            group.instance_types = []
        self._keep_volume(group)
        try:
            nodes.adjust(self.client("ec2"), group)
        except ClientError:
            # A group that could not be made is not there, and does not keep its cluster.
            self.eks_backend.delete_nodegroup(group.cluster_name, group.nodegroup_name)
            raise
        return ActionResult({"nodegroup": group})

    def update_nodegroup_config(self) -> ActionResult:
        """UpdateNodegroupConfig: of the sizes, those that are given."""
        given = parameters(self)
        group = self._group(given)
        sizes = {**group.scaling_config, **given.get("scalingConfig", {})}
        _check_sizes(sizes)
        group.scaling_config = sizes
        labels = given.get("labels", {})
        gone = labels.get("removeLabels", [])
        group.labels = {
            **{key: value for key, value in group.labels.items() if key not in gone},
            **labels.get("addOrUpdateLabels", {}),
        }
        if "updateConfig" in given:
            group.update_config = given["updateConfig"]
        if "nodeRepairConfig" in given:
            group.node_repair_config = given["nodeRepairConfig"]
        nodes.adjust(self.client("ec2"), group)
        return ActionResult({"update": update_record("ConfigUpdate", given)})

    def update_nodegroup_version(self) -> ActionResult:
        """UpdateNodegroupVersion, which replaces every node."""
        given = parameters(self)
        group = self._group(given)
        if "launchTemplate" in given:
            template = self._template(given["launchTemplate"])
            if template["id"] != (group.launch_template or {}).get("id"):
                raise InvalidParameterError(
                    "You cannot specify a different launch template id or name"
                )
            group.launch_template = template
        group.version = given.get("version", group.version)
        group.release_version = given.get("releaseVersion", group.release_version)
        self._keep_volume(group)
        nodes.adjust(self.client("ec2"), group, 0)
        nodes.adjust(self.client("ec2"), group)
        return ActionResult({"update": update_record("VersionUpdate", given)})

    def delete_nodegroup(self) -> ActionResult:
        """DeleteNodegroup, and its nodes."""
        given = parameters(self)
        group = self._group(given)
        nodes.adjust(self.client("ec2"), group, 0)
        self.eks_backend.delete_nodegroup(given["clusterName"], given["nodegroupName"])
        return ActionResult({"nodegroup": group})

    def list_nodegroups(self) -> ActionResult:
        """ListNodegroups; an unknown cluster is an error."""
        cluster = self.cluster(parameters(self)["clusterName"])
        return ActionResult({"nodegroups": list(cluster.nodegroups)})

    def _group(self, given: Object) -> Nodegroup:
        return self.eks_backend.describe_nodegroup(given["clusterName"], given["nodegroupName"])

    def _keep_volume(self, group: Nodegroup) -> None:
        """Remember the size of the nodes' root volume, for which somebody asks every second."""
        kept(group, "facts")["root_volume_gib"] = nodes.root_volume_gib(self.client("ec2"), group)

    def _template(self, wanted: Object) -> Object:
        found = self.client("ec2").describe_launch_template_versions(
            LaunchTemplateId=wanted["id"], Versions=[wanted["version"]]
        )
        if not found["LaunchTemplateVersions"]:
            raise InvalidParameterError(
                f"Launch template version {wanted['version']} does not exist"
            )
        version = found["LaunchTemplateVersions"][0]
        return {
            "id": version["LaunchTemplateId"],
            "name": version["LaunchTemplateName"],
            "version": str(version["VersionNumber"]),
        }


def _check_sizes(sizes: Object) -> None:
    low, wanted, high = (sizes[name] for name in ("minSize", "desiredSize", "maxSize"))
    if low > wanted:
        raise InvalidParameterError(
            f"Minimum capacity {low} can't be greater than desired size {wanted}"
        )
    if wanted > high:
        raise InvalidParameterError(
            f"desired capacity {wanted} can't be greater than max size {high}"
        )
