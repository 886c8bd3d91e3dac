"""Instances and what describes them: launch templates and placement groups."""

from collections.abc import Mapping
from typing import ClassVar

from megatron_eks.localcloud.aws.resources.ec2 import Ec2
from megatron_eks.localcloud.aws.resources.handler import Context, Handler, shaped
from megatron_eks.localcloud.aws.values import Object, Value


class LaunchTemplate(Handler):
    """A launch template; a change is a new version of it."""

    kind = "AWS::EC2::LaunchTemplate"
    service = "ec2"
    deletes = ("DeleteLaunchTemplate", "LaunchTemplateId")
    describes = ("DescribeLaunchTemplates", "LaunchTemplateIds")
    answers: ClassVar = {
        "LaunchTemplateId": "",
        "LatestVersionNumber": "LaunchTemplates.0.LatestVersionNumber",
        "DefaultVersionNumber": "LaunchTemplates.0.DefaultVersionNumber",
    }

    def create(self, context: Context, properties: Object) -> str:
        """Make the first version."""
        answer = context.clients("ec2").create_launch_template(
            LaunchTemplateName=properties.get("LaunchTemplateName") or context.new_name(),
            LaunchTemplateData=self._data(context, properties),
        )
        return str(answer["LaunchTemplate"]["LaunchTemplateId"])

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Make another version."""
        del old
        context.clients("ec2").create_launch_template_version(
            LaunchTemplateId=physical_id, LaunchTemplateData=self._data(context, new)
        )

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return the versions, which are texts in a template."""
        found = super().attributes(context, physical_id, properties)
        return {name: str(value) for name, value in found.items()}

    @staticmethod
    def _data(context: Context, properties: Object) -> Value:
        data = properties["LaunchTemplateData"]
        return shaped(context, "ec2", "CreateLaunchTemplate", "LaunchTemplateData", data)


class PlacementGroup(Handler):
    """A placement group; its physical id is its name."""

    kind = "AWS::EC2::PlacementGroup"
    service = "ec2"
    creates = ("CreatePlacementGroup", "")
    identity = ("GroupName",)
    made_up = 255
    deletes = ("DeletePlacementGroup", "GroupName")
    describes = ("DescribePlacementGroups", "GroupNames")
    answers: ClassVar = {"GroupName": "", "GroupId": "PlacementGroups.0.GroupId"}


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
        answers={
            "InstanceId": "",
            "PrivateIp": "Reservations.0.Instances.0.PrivateIpAddress",
            "AvailabilityZone": "Reservations.0.Instances.0.Placement.AvailabilityZone",
        },
        describes=("DescribeInstances", "InstanceIds"),
    ),
)
