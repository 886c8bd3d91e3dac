"""Makes what a cluster file says exists already: a VPC, an EKS cluster, a file system."""

from typing import Any

from megatron_eks.localcloud.aws.server import LocalAws

Json = dict[str, Any]


def bring(aws: LocalAws, cluster: Json) -> Json:
    """Return the cluster file with what it brings along made in the account."""
    network = dict(cluster.get("network") or {})
    if "vpc_id" not in network:
        return cluster
    ec2 = aws.client("ec2", cluster["region"])
    vpc = ec2.create_vpc(CidrBlock=network["vpc_cidr"])["Vpc"]["VpcId"]
    first, second, _, _ = network["vpc_cidr"].split(".")
    network["vpc_id"] = vpc
    network["private_subnets"] = {
        zone: ec2.create_subnet(
            VpcId=vpc, AvailabilityZone=zone, CidrBlock=f"{first}.{second}.{number * 64}.0/18"
        )["Subnet"]["SubnetId"]
        for number, zone in enumerate(cluster["availability_zones"])
    }
    if "node_security_group_id" in network:
        group = ec2.create_security_group(GroupName="nodes", Description="Nodes", VpcId=vpc)
        network["node_security_group_id"] = group["GroupId"]
    if "existing_cluster" in cluster:
        aws.client("eks", cluster["region"]).create_cluster(
            name=cluster["existing_cluster"],
            roleArn=f"arn:aws:iam::{aws.account}:role/cluster",
            resourcesVpcConfig={"subnetIds": list(network["private_subnets"].values())},
        )
    return {**cluster, "network": network}
