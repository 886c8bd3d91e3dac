"""A small Cluster template: one pool with its launch template, and the system nodes."""


def cluster_template(**changes):
    """Return the template; keys of the node group, or `tags`, `disk` of its launch template."""
    tags, disk = changes.pop("tags", "a"), changes.pop("disk", 500)
    group = {
        "NodegroupName": "p4d",
        "LaunchTemplate": {"Id": {"Ref": "Template"}, "Version": {"Fn::GetAtt": ["Template", "V"]}},
        "ReleaseVersion": "1.35.8-1",
        "Version": "1.35",
        "Labels": {"megatron-eks/pool": "p4d"},
        "ScalingConfig": {"MinSize": 0, "DesiredSize": 0, "MaxSize": 450},
        **changes,
    }
    data = {"TagSpecifications": [tags], "BlockDeviceMappings": [disk]}
    return {
        "Resources": {
            "Template": {
                "Type": "AWS::EC2::LaunchTemplate",
                "Properties": {"LaunchTemplateData": data},
            },
            "Group": {"Type": "AWS::EKS::Nodegroup", "Properties": group},
        }
    }
