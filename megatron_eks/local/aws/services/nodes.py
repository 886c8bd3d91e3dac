"""The nodes of a node group, which are instances of EC2 that nothing runs on."""

from moto.eks.models import Nodegroup

from megatron_eks.local.aws.values import Value

CLUSTER_TAG = "eks:cluster-name"
GROUP_TAG = "eks:nodegroup-name"

# EKS chooses the image; here it is only a name.
_IMAGE = "ami-0000000000000e5c5"
_FALLBACK_TYPE = "t3.medium"


def adjust(ec2: Value, group: Nodegroup) -> None:
    """Start or end instances until there are as many as wanted, the oldest ended first."""
    running = _running(ec2, group)
    wanted: int = group.scaling_config["desiredSize"]
    if len(running) > wanted:
        ec2.terminate_instances(InstanceIds=running[: len(running) - wanted])
    elif len(running) < wanted:
        _start(ec2, group, wanted - len(running))


def replace(ec2: Value, group: Nodegroup) -> None:
    """End every instance and start as many new ones."""
    running = _running(ec2, group)
    if running:
        ec2.terminate_instances(InstanceIds=running)
        _start(ec2, group, len(running))


def end(ec2: Value, group: Nodegroup) -> None:
    """End every instance."""
    running = _running(ec2, group)
    if running:
        ec2.terminate_instances(InstanceIds=running)


def _running(ec2: Value, group: Nodegroup) -> list[str]:
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
    template = group.launch_template
    if not template:
        return _FALLBACK_TYPE
    found = ec2.describe_launch_template_versions(
        LaunchTemplateId=template["id"], Versions=[template["version"]]
    )
    data = found["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    return str(data.get("InstanceType", _FALLBACK_TYPE))
