"""What a plan relies on and nothing here can look up: said once, with the command that helps."""

from collections.abc import Iterator

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.plan.data_access import DataAccess
from megatron_eks.plan.egress import REQUIRED_ENDPOINTS
from megatron_eks.plan.network import makes_vpc, node_addresses
from megatron_eks.plan.platform import GPU_TAINT
from megatron_eks.plan.pools import POOL_LABEL
from megatron_eks.plan.storage import plan_shared_directories


def plan_notes(config: ClusterConfig, data_access: DataAccess) -> Iterator[str]:
    """Yield what somebody must see to before deploying."""
    if config.existing_cluster is not None:
        yield from _existing_cluster(config, config.existing_cluster)
    elif not makes_vpc(config):
        yield from _existing_vpc(config)
    if config.storage.lustre.existing is not None:
        lustre = config.storage.lustre.existing
        yield f"{lustre.id} must admit the nodes on TCP 988 and 1018-1023, and reach them there"
        yield f"on {lustre.id} the set-up Job of `meks apply` {plan_shared_directories(config)}"
    if config.storage.kms_key_arn is not None:
        yield (
            f"the policy of {config.storage.kms_key_arn} must let this account's IAM policies "
            "grant its use, and FSx make grants on it"
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


def _existing_vpc(config: ClusterConfig) -> Iterator[str]:
    nodes = dict.fromkeys(config.network.private_subnets, config.system_nodes.count)
    for pool in config.gpu_pools:
        nodes[pool.availability_zone] = nodes.get(pool.availability_zone, 0) + pool.max_nodes
    for zone, subnet in config.network.private_subnets.items():
        yield f"{subnet} needs {node_addresses(nodes[zone])} free addresses for nodes and pods"
    endpoints = f"endpoints for {', '.join(REQUIRED_ENDPOINTS)}"
    out = "a way out (NAT or proxy)" if config.network.nat_gateways else endpoints
    yield (
        f"the private subnets need {out}, a route to S3 (a gateway endpoint costs nothing), and "
        "DNS hostnames switched on in the VPC"
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
