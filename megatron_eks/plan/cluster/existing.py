"""A VPC or a cluster that exists: what is refused of it, and what to see to by hand."""

from collections.abc import Iterator

from megatron_eks.catalog.pins import group_of
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, warning
from megatron_eks.plan.cluster.data_access import DataAccess
from megatron_eks.plan.cluster.egress import REQUIRED_ENDPOINTS
from megatron_eks.plan.cluster.lustre import file_system_zones
from megatron_eks.plan.cluster.network import makes_vpc, node_addresses, nodes_by_zone
from megatron_eks.plan.cluster.platform import GPU_TAINT
from megatron_eks.plan.cluster.pools import POOL_LABEL
from megatron_eks.plan.cluster.storage import plan_shared_directories
from megatron_eks.plan.cluster.zones import not_listed

_EKS_SUBNETS = 2


def plan_notes(config: ClusterConfig, data_access: DataAccess) -> Iterator[str]:
    """Yield what somebody must see to before deploying."""
    if config.existing_cluster is not None:
        yield from _existing_cluster(config, config.existing_cluster)
    elif not makes_vpc(config):
        nodes = nodes_by_zone(config, config.network.private_subnets)
        for zone, subnet in config.network.private_subnets.items():
            yield f"{subnet} needs {node_addresses(nodes[zone])} free addresses for nodes and pods"
        endpoints = f"endpoints for {', '.join(REQUIRED_ENDPOINTS)}"
        out = "a way out (NAT or proxy)" if config.network.nat_gateways else endpoints
        yield (
            f"the private subnets need {out}, a route to S3 (a gateway endpoint costs nothing), "
            "and DNS hostnames switched on in the VPC"
        )
    if config.storage.lustre.existing is not None:
        lustre = config.storage.lustre.existing
        yield f"{lustre.id} must admit the nodes on TCP 988 and 1018-1023, and reach them there"
        yield f"on {lustre.id} the set-up Job of `meks apply` {plan_shared_directories(config)}"
    if config.storage.kms_key_arn is not None:
        yield (
            f"the policy of {config.storage.kms_key_arn} must let this account's IAM policies "
            "grant its use, and FSx make grants on it"
        )
    for team in config.teams if config.existing_cluster is not None else ():
        yield (
            f"{', '.join(team.role_arns)} must be in the group {group_of(team.name)}: with an "
            "access entry of the cluster that exists, or in its aws-auth"
        )
    if data_access.buckets:
        names = ", ".join(each.bucket for each in data_access.buckets)
        yield (
            f"the jobs' role (JobRoleArn of {config.name}-Storage) may use {names}; a bucket of "
            "another account must let it in, and so must a KMS key that encrypts its objects"
        )
    if config.images.mirror is not None:
        yield (
            f"copy the images of other registries to {config.images.mirror}, each under its own "
            "path and digest; `meks plan -o json` lists them as `mirrored_images`"
        )


def _existing_cluster(config: ClusterConfig, name: str) -> Iterator[str]:
    for pool in config.gpu_pools:
        yield (
            f"nodes of pool {pool.name} ({pool.instance_type}, {pool.availability_zone}) must "
            f"carry label and taint: aws eks update-nodegroup-config --region {config.region} "
            f"--cluster-name {name} --nodegroup-name NODEGROUP "
            f"--labels 'addOrUpdateLabels={{{POOL_LABEL}={pool.name}}}' --taints "
            f"'addOrUpdateTaints=[{{key={GPU_TAINT},value=true,effect=NO_SCHEDULE}}]'"
        )
    yield (
        "these nodes must come from the AL2023 NVIDIA AMI, whose label nvidia.com/gpu.present the "
        "device plugins look for, with their EFA interfaces in a group that admits itself both ways"
    )
    drivers = "aws-fsx-csi-driver" + (", aws-efs-csi-driver" if config.storage.efs else "")
    yield (
        f"{name} needs the add-ons {drivers} and eks-pod-identity-agent, and vpc-cni with "
        "enableNetworkPolicy"
    )
    yield (
        f"{name} must run no NVIDIA or EFA device plugin and no training operator of its own: "
        "dist/platform/ brings them"
    )
    if config.network.proxy is not None or config.network.ca_bundle is not None:
        yield f"proxy and certificates reach the jobs; the nodes of {name} need them from you"


def check_existing(config: ClusterConfig) -> Findings:
    """Yield what is missing or idle among the things that exist already."""
    network = config.network
    if network.vpc_id is None:
        remedy = "add network.vpc_id, or leave it out: the VPC is made with its own"
        remedy = "add network.vpc_id, the cluster's" if config.existing_cluster else remedy
        for key in ("private_subnets", "node_security_group_id"):
            if getattr(network, key):
                yield Finding(Code.EXISTING_VPC, ("network", key), f"{key} without vpc_id", remedy)
    else:
        yield from _subnets(config)
    if not makes_vpc(config) and network.nat_gateways == "per_zone":
        found = "the VPC exists, and so do its NAT gateways"
        path: Path = ("network", "nat_gateways")
        yield Finding(Code.EXISTING_VPC, path, found, "leave it out, or 0 where there are none")
    if config.existing_cluster is not None:
        yield from _cluster(config)
    elif network.vpc_id is not None and network.node_security_group_id is not None:
        found = "the nodes are new, and get a group with the rules that EFA needs"
        path = ("network", "node_security_group_id")
        yield Finding(Code.EXISTING_VPC, path, found, "leave it out, or name an existing_cluster")
    if not makes_vpc(config) and "vpc_cidr" not in config.network.model_fields_set:
        found = "no address range of the VPC, so rules and network policies admit private ones"
        remedy = "set it to the VPC's range"
        yield warning(Code.VPC_RANGE_UNKNOWN, ("network", "vpc_cidr"), found, remedy)


def _subnets(config: ClusterConfig) -> Findings:
    subnets = config.network.private_subnets
    path: Path = ("network", "private_subnets")
    seen: dict[str, str] = {}
    for zone, subnet in subnets.items():
        if zone not in config.availability_zones:
            found = f"{zone!r} is not one of the cluster's zones"
            remedy = not_listed(zone, config)
            if f"{config.region}{zone}" in config.availability_zones:
                remedy = f"write {config.region}{zone}"
            yield Finding(Code.ZONE_NOT_LISTED, (*path, zone), found, remedy)
        if subnet in seen:
            found = f"{subnet} stands for {seen[subnet]} too, and a subnet is in one zone"
            yield Finding(Code.DUPLICATE_NAME, (*path, zone), found, "name each zone's own subnet")
        seen.setdefault(subnet, zone)
    yield from _missing_subnets(config)


def _missing_subnets(config: ClusterConfig) -> Findings:
    subnets, path = config.network.private_subnets, ("network", "private_subnets")
    pools = [pool.availability_zone for pool in config.gpu_pools]
    if config.existing_cluster is None:
        if len(subnets) < _EKS_SUBNETS:
            found = f"{len(subnets)} subnet{'' if len(subnets) == 1 else 's'}"
            remedy = "add `ZONE: subnet-...` for two zones or more; EKS demands two"
            yield Finding(Code.SUBNET_MISSING, path, found, remedy)
        for index, zone in enumerate(pools):
            # Of a zone that is another region's, `availability_zones` tells.
            if zone not in subnets and zone.startswith(config.region):
                place: Path = ("gpu_pools", index, "availability_zone")
                remedy = f"add `{zone}: subnet-...` to network.private_subnets"
                yield Finding(Code.SUBNET_MISSING, place, f"no subnet for {zone}", remedy)
    said = pools if config.existing_cluster is None else []
    for zone in file_system_zones(config) if config.storage.lustre.existing is None else ():
        if zone not in (*subnets, *said):
            found = f"no subnet in {zone}, where a file system is made"
            yield Finding(Code.SUBNET_MISSING, path, found, f"add `{zone}: subnet-...`")


def _cluster(config: ClusterConfig) -> Findings:
    network, storage = config.network, config.storage
    makes = storage.lustre.existing is None or storage.efs
    if makes and (network.vpc_id is None or network.node_security_group_id is None):
        keys = ("vpc_id", "private_subnets", "node_security_group_id")
        missing = " and ".join(f"network.{key}" for key in keys if not getattr(network, key))
        found = "a file system is made, and nothing says in which VPC and for whose nodes"
        remedy = f"set {missing}{'' if storage.efs else ', or storage.lustre.existing'}"
        yield Finding(Code.EXISTING_CLUSTER, ("existing_cluster",), found, remedy)
    if network.interface_endpoints:
        found = "the cluster exists, and its network is left alone"
        place: Path = ("network", "interface_endpoints")
        yield Finding(Code.EXISTING_CLUSTER, place, found, "leave it out")
    for index, pool in enumerate(config.gpu_pools):
        for key in ("ami_release", "placement_group", "root_volume_gib"):
            if getattr(pool, key) != type(pool).model_fields[key].default:
                found = "the nodes exist, and keep what they have"
                remedy = "leave it out: their node group decides it"
                yield warning(Code.EXISTING_CLUSTER, ("gpu_pools", index, key), found, remedy)
    if config.access.private_route == "ssm_bastion":
        found = "a bastion comes with a cluster that is made"
        place = ("access", "private_route")
        yield Finding(Code.EXISTING_CLUSTER, place, found, "use vpn or cloudshell")
