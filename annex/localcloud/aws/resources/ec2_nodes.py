"""Instances and what describes them: launch templates and placement groups."""

from typing import ClassVar

from megatron_eks.localcloud.aws.resources.ec2 import Ec2
from megatron_eks.localcloud.aws.resources.handler import Context, Handler
from megatron_eks.localcloud.aws.values import Object


class LaunchTemplate(Handler):
    """A launch template; a change is a new version of it."""

    kind = "AWS::EC2::LaunchTemplate"
    service = "ec2"
    creates = ("CreateLaunchTemplate", "LaunchTemplate.LaunchTemplateId")
    identity = ("LaunchTemplateName",)
    made_up = 128
    updates = ("CreateLaunchTemplateVersion", "LaunchTemplateId")
    deletes = ("DeleteLaunchTemplate", "LaunchTemplateId")
    describes = ("DescribeLaunchTemplates", "LaunchTemplateIds")
    answers: ClassVar = {"LatestVersionNumber": "LaunchTemplates.0.LatestVersionNumber"}

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Make another version: of the template by its id, as EC2 takes one of its names."""
        given = {name: new[name] for name in new if name != "LaunchTemplateName"}
        super().update(context, physical_id, old, given)


class PlacementGroup(Handler):
    """A placement group; its physical id is its name."""

    kind = "AWS::EC2::PlacementGroup"
    service = "ec2"
    creates = ("CreatePlacementGroup", "")
    identity = ("GroupName",)
    made_up = 255
    deletes = ("DeletePlacementGroup", "GroupName")


class Instance(Ec2):
    """One instance."""

    def create(self, context: Context, properties: Object) -> str:
        """Start the instance."""
        given = {**properties, "MinCount": 1, "MaxCount": 1}
        if profile := given.pop("IamInstanceProfile", None):
            given["IamInstanceProfile"] = {"Name": profile}
        if given.pop("Monitoring", False):
            given["Monitoring"] = {"Enabled": True}
        return super().create(context, given)


HANDLERS: tuple[Handler, ...] = (
    LaunchTemplate(),
    PlacementGroup(),
    Instance(
        "AWS::EC2::Instance",
        ("RunInstances", "Instances.0.InstanceId"),
        ("TerminateInstances", "InstanceIds"),
    ),
)
