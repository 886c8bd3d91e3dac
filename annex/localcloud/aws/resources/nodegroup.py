"""Managed node groups, and what AWS refuses to change together."""

from typing import ClassVar

from megatron_eks.localcloud.aws.resources.eks import changed
from megatron_eks.localcloud.aws.resources.handler import Context, Handler, NotSupportedError, call
from megatron_eks.localcloud.aws.values import Object

_VERSIONS = ("Version", "ReleaseVersion", "LaunchTemplate")
_SETTINGS = ("ScalingConfig", "UpdateConfig", "NodeRepairConfig")

# aws-cdk#16644 and containers-roadmap#1258 quote it; it speaks of launch templates too.
TOGETHER = "Version and ReleaseVersion updates cannot be combined with other updates"


class Nodegroup(Handler):
    """A managed node group."""

    kind = "AWS::EKS::Nodegroup"
    service = "eks"
    creates = ("CreateNodegroup", "")
    identity = ("ClusterName", "NodegroupName")
    tagged = ("resourceArn", "Arn")
    deletes = ("DeleteNodegroup", "clusterName", "nodegroupName")
    describes = ("DescribeNodegroup", "clusterName", "nodegroupName")
    separator = "/"
    answers: ClassVar = {"Arn": "nodegroup.nodegroupArn"}

    def create(self, context: Context, properties: Object) -> str:
        """Make the group, with the nodes that it wants."""
        return super().create(context, {"NodegroupName": context.new_name(63), **properties})

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change versions, or settings: EKS takes one kind of change at a time.

        A block that is as it was is not sent again; one that differs in any part is sent whole
        (eksctl#3532).
        """
        if not old:
            return
        cluster, group = physical_id.split("/")
        versions = changed(old, new, *_VERSIONS)
        others = [
            name
            for name in (*_SETTINGS, "Labels", "Taints", "Tags")
            if new.get(name) != old.get(name)
        ]
        if versions and others:
            raise NotSupportedError(TOGETHER)
        names = {"ClusterName": cluster, "NodegroupName": group}
        if versions:
            call(context, "eks", "UpdateNodegroupVersion", {**names, **versions})
            return
        settings = changed(old, new, *_SETTINGS)
        more: Object = {}
        if "Labels" in others:
            before, after = old.get("Labels", {}), new.get("Labels", {})
            more["labels"] = {
                "addOrUpdateLabels": after,
                "removeLabels": sorted(before.keys() - after.keys()),
            }
        if "Taints" in others:
            raise NotSupportedError("local AWS cannot change the taints of a node group in place")
        if settings or more:
            call(context, "eks", "UpdateNodegroupConfig", {**names, **settings}, **more)


HANDLERS: tuple[Handler, ...] = (Nodegroup(),)
