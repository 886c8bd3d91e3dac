"""Instances and what describes them: launch templates and placement groups."""

from collections.abc import Mapping

from megatron_eks.local.aws.resources.arguments import call, shaped
from megatron_eks.local.aws.resources.ec2 import retag
from megatron_eks.local.aws.resources.handler import Context, Handler
from megatron_eks.local.aws.values import Object, Value


class LaunchTemplate(Handler):
    """A launch template; a change is a new version of it."""

    kind = "AWS::EC2::LaunchTemplate"

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

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove all versions."""
        del properties
        context.clients("ec2").delete_launch_template(LaunchTemplateId=physical_id)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return the versions."""
        del properties
        found = context.clients("ec2").describe_launch_templates(LaunchTemplateIds=[physical_id])
        template = found["LaunchTemplates"][0]
        return {
            "LaunchTemplateId": physical_id,
            "LatestVersionNumber": str(template["LatestVersionNumber"]),
            "DefaultVersionNumber": str(template["DefaultVersionNumber"]),
        }

    @staticmethod
    def _data(context: Context, properties: Object) -> Value:
        data = properties["LaunchTemplateData"]
        return shaped(context, "ec2", "CreateLaunchTemplate", "LaunchTemplateData", data)


class PlacementGroup(Handler):
    """A placement group; its physical id is its name."""

    kind = "AWS::EC2::PlacementGroup"

    def create(self, context: Context, properties: Object) -> str:
        """Make the group."""
        name = context.new_name(255)
        call(context, "ec2", "CreatePlacementGroup", properties, GroupName=name)
        return name

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the group."""
        del properties
        context.clients("ec2").delete_placement_group(GroupName=physical_id)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return name and id."""
        del properties
        found = context.clients("ec2").describe_placement_groups(GroupNames=[physical_id])
        return {"GroupName": physical_id, "GroupId": found["PlacementGroups"][0]["GroupId"]}


class Instance(Handler):
    """One instance."""

    kind = "AWS::EC2::Instance"

    def create(self, context: Context, properties: Object) -> str:
        """Start the instance."""
        plain = {key: value for key, value in properties.items() if key != "Tags"}
        profile = plain.pop("IamInstanceProfile", None)
        template = plain.pop("LaunchTemplate", None)
        watched = plain.pop("Monitoring", False)
        more: Object = {"IamInstanceProfile": {"Name": profile}} if profile else {}
        if watched:
            more["Monitoring"] = {"Enabled": True}
        if template:
            more["LaunchTemplate"] = template
        answer = call(context, "ec2", "RunInstances", plain, MinCount=1, MaxCount=1, **more)
        physical_id = str(answer["Instances"][0]["InstanceId"])
        retag(context, physical_id, {}, properties)
        return physical_id

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change tags."""
        plain = [{k: v for k, v in each.items() if k != "Tags"} for each in (old, new)]
        if plain[0] != plain[1]:
            super().update(context, physical_id, *plain)
        retag(context, physical_id, old, new)

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """End the instance."""
        del properties
        context.clients("ec2").terminate_instances(InstanceIds=[physical_id])

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return where it is."""
        del properties
        found = context.clients("ec2").describe_instances(InstanceIds=[physical_id])
        instance = found["Reservations"][0]["Instances"][0]
        return {
            "InstanceId": physical_id,
            "PrivateIp": instance.get("PrivateIpAddress"),
            "AvailabilityZone": instance["Placement"]["AvailabilityZone"],
        }


HANDLERS: tuple[Handler, ...] = (LaunchTemplate(), PlacementGroup(), Instance())
