"""The nodes of a node group, which are instances of EC2."""

from moto.eks.models import Nodegroup

from megatron_eks.localcloud.aws.values import Object, Value

CLUSTER_TAG = "eks:cluster-name"
GROUP_TAG = "eks:nodegroup-name"

# EKS chooses the image; here it is only a name.
_IMAGE = "ami-0000000000000e5c5"
_FALLBACK_TYPE = "t3.medium"
_FALLBACK_VOLUME_GIB = 20


def adjust(ec2: Value, group: Nodegroup, wanted: int | None = None) -> None:
    """Start or end instances until there are as many as wanted, the oldest ended first."""
    found = running(ec2, group)
    if wanted is None:
        wanted = int(group.scaling_config["desiredSize"])
    if gone := found[: max(0, len(found) - wanted)]:
        ec2.terminate_instances(InstanceIds=gone)
    _start(ec2, group, wanted - len(found))


def running(ec2: Value, group: Nodegroup) -> list[str]:
    """Return the instances that it has, the oldest first."""
    found = ec2.describe_instances(
        Filters=[
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [group.cluster_name]},
            {"Name": f"tag:{GROUP_TAG}", "Values": [group.nodegroup_name]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
    )
    instances = [each for one in found["Reservations"] for each in one["Instances"]]
    return [each["InstanceId"] for each in sorted(instances, key=lambda one: one["LaunchTime"])]


def _start(ec2: Value, group: Nodegroup, count: int) -> None:
    tags = [
        {"Key": CLUSTER_TAG, "Value": group.cluster_name},
        {"Key": GROUP_TAG, "Value": group.nodegroup_name},
    ]
    for number in range(count):
        ec2.run_instances(
            ImageId=_IMAGE,
            InstanceType=_instance_type(ec2, group),
            SubnetId=group.subnets[number % len(group.subnets)],
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )


def _instance_type(ec2: Value, group: Nodegroup) -> str:
    if group.instance_types:
        return str(group.instance_types[0])
    return str(_template(ec2, group).get("InstanceType", _FALLBACK_TYPE))


def root_volume_gib(ec2: Value, group: Nodegroup) -> int:
    """Return the size of the root volume of a group's nodes."""
    devices = _template(ec2, group).get("BlockDeviceMappings") or [{}]
    size = devices[0].get("Ebs", {}).get("VolumeSize")
    return int(size or getattr(group, "disk_size", None) or _FALLBACK_VOLUME_GIB)


def _template(ec2: Value, group: Nodegroup) -> Object:
    template = group.launch_template
    if not template:
        return {}
    found = ec2.describe_launch_template_versions(
        LaunchTemplateId=template["id"], Versions=[template["version"]]
    )
    data: Object = found["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    return data
