"""What stands here for keys that other tools have, such as eksctl, Terraform and FSx.

Sources: eksctl's ClusterConfig schema; terraform-aws-modules/eks; FSx API, CreateFileSystem.
"""

import re
from typing import TYPE_CHECKING

from megatron_eks.config.foreign_job_keys import OF_JOBS, same

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


_SCALE = "remove it: a pool starts without nodes, and `meks scale POOL N` takes and returns them"
_TEMPLATE = "remove it: the plan writes the nodes' launch template"
_ZONE = "use availability_zone: its subnet follows"
_RESERVED = "use capacity: {type: reservation, id: cr-...}, or type capacity_block for a block"
_ENDPOINT = "use public_cidrs: who reaches the endpoint; [] makes it private"

# By a key that tells the block.
_OF_CLUSTERS: dict[str, dict[str, str]] = {
    "gpu_pools": {
        "clustername": "use name",
        **same("use name and region at the top of the file", "metadata"),
        **same("use kubernetes_version", "version clusterversion eksversion k8sversion"),
        **same("use availability_zones", "azs zones"),
        **same(
            "use network.vpc_cidr, or network.vpc_id of one that exists", "vpc cidr vpccidrblock"
        ),
        **same("use network.private_subnets, with network.vpc_id", "subnets subnetids"),
        **same(
            "use gpu_pools; nodes without GPUs are system_nodes",
            "managednodegroups nodegroups eksmanagednodegroups nodepools pools karpenter",
        ),
        **same("remove it: the add-ons are chosen and pinned here", "addons clusteraddons"),
        "iam": "remove it: roles are made here; permissions_boundary_arn bounds them",
        **same("use storage.lustre", "fsx fsxlustre filesystem"),
        **same(
            "use network.nat_gateways: 0, 1 or per_zone",
            "nat natgateway enablenatgateway singlenatgateway onenatgatewayperaz",
        ),
        **same("use storage.kms_key_arn", "kmskeyid kmskey kms"),
        "defaulttags": "use tags",
        **same("remove it: the credentials say which account", "account accountid awsaccountid"),
        **same("remove it: the control plane's logs are on", "cloudwatch logging"),
        **same(
            "use access.public_cidrs: who reaches the endpoint; [] makes it private",
            "endpointpublicaccess endpointprivateaccess clusterendpoints publicaccesscidrs",
        ),
    },
    "public_cidrs": {
        **same(_ENDPOINT, "endpointpublicaccess endpointprivateaccess publicaccess privateaccess"),
        **same("use public_cidrs", "allowedcidrs cidrs"),
        **same(
            "use admin_role_arns: ARNs of IAM roles",
            "admins adminusers users roles maproles mapusers accessentries awsauth",
        ),
        "bastion": "use private_route: ssm_bastion",
    },
    "nat_gateways": {
        **same("use vpc_cidr", "cidr cidrblock vpccidrblock"),
        **same(
            "use nat_gateways: 0, 1 or per_zone",
            "nat natgateway enablenatgateway singlenatgateway onenatgatewayperaz",
        ),
        **same("use private_subnets: a subnet for each zone", "subnets subnetids privatesubnetids"),
        **same("use service_cidr", "serviceipv4cidr clusterserviceipv4cidr"),
        **same("use interface_endpoints", "endpoints vpcendpoints"),
        **same("use node_security_group_id", "securitygroupids securitygroups"),
    },
    "dcgm_exporter": {
        **same(
            "remove it: EKS's AMI has the driver, and the device plugin of NVIDIA is always there",
            "gpuoperator nvidiagpuoperator nvidiadriver nvidiadeviceplugin deviceplugin",
        ),
        **same(
            "remove it: the device plugin of EFA is always there",
            "efa efadeviceplugin efaplugin awsefak8sdeviceplugin",
        ),
        **same(
            "remove it: the training operator is always there",
            "trainingoperator kubeflow pytorchoperator",
        ),
        **same("remove it: kind: nccl_test runs without MPI", "mpioperator mpi"),
        **same(_SCALE, "clusterautoscaler autoscaler karpenter"),
        **same("remove it: the driver of FSx is always there", "fsxcsidriver fsxcsi"),
        "podsecuritystandard": "use pod_security",
    },
    "lustre": same("use lustre", "fsx fsxlustre fsxforlustre"),
    "throughput_mbps_per_tib": {
        **same(
            "use capacity_gib: 1200 is FSx's smallest, which its console shows as 1.2 TiB",
            "storagecapacity storagesize capacity capacitytib capacitytb size sizegib",
        ),
        **same(
            "use throughput_mbps_per_tib", "throughput perunitstoragethroughput throughputpertib"
        ),
        **same(
            "use data_repositories: [{path: /data, s3_uri: s3://BUCKET/PREFIX}]",
            "importpath exportpath s3importpath s3exportpath autoimportpolicy datarepositorypath "
            "s3 s3uri bucket",
        ),
        **same("remove it: files are compressed with LZ4", "datacompressiontype compression"),
        **same("use mount_path", "mountpoint mountdir"),
        **same("use availability_zone", "subnetid subnetids az zone"),
        **same("use existing: {id, dns_name, mount_name}", "filesystemid fsid fsxid"),
        **same("remove it: the version is pinned here", "filesystemtypeversion lustreversion"),
    },
    # Of a reservation, a Capacity Block, and a file system that exists.
    "id": same(
        "use id", "capacityreservationid reservationid capacityblockid filesystemid fsid fsxid"
    ),
    "ends_at": same("use ends_at, with its zone: 2026-12-01T11:30:00Z", "end enddate endtime"),
    "root_volume_gib": {
        **same(_SCALE, "count desired min nodes replicas size minnodes minsize mincount"),
        **same(_SCALE, "mincapacity desirednodes desiredsize desiredcapacity"),
        **same(
            "use max_nodes: the most nodes that `meks scale` may take",
            "max maxsize maxcount maxcapacity scalingconfig",
        ),
        **same("use root_volume_gib", "volumesize disksize diskgib rootvolumesize"),
        **same(
            "use availability_zone, and a pool for each zone: EFA traffic cannot leave one",
            "zones azs availabilityzones",
        ),
        **same(_ZONE, "az zone subnet subnets subnetid subnetids"),
        **same(
            "remove it: a node has all EFA interfaces of its instance type",
            "efa efaenabled enableefa enableefasupport efainterfaces efacount numefa "
            "networkinterfaces",
        ),
        **same("use capacity: {type: spot}", "spot capacitytype"),
        **same(
            _RESERVED,
            "capacityreservation capacityreservationid reservation capacityblock "
            "capacityblockid instancemarketoptions",
        ),
        **same("use instance_type", "type instance"),
        **same("remove it: instance_type says how many GPUs a node has", "gpus gpucount numgpus"),
        **same("use ami_release", "ami amiid releaseversion amireleaseversion"),
        **same(
            "remove it: nodes run EKS's AMI with NVIDIA's driver; ami_release names another one",
            "amitype amifamily",
        ),
        **same(
            _TEMPLATE,
            "bootstrap userdata prebootstrapcommands overridebootstrapcommand kubeletextraargs "
            "maxpods maxpodspernode volumetype privatenetworking iam ssh keyname updateconfig",
        ),
        "taints": "remove it: GPU nodes have one for nvidia.com/gpu, and jobs tolerate it",
        "instancetypes": "use instance_type: the nodes of a pool are alike",
    },
}


# POSIX, "Environment Variables": uppercase letters, digits and '_'.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")


def of_other_tool(key: str, known: "Iterable[str]") -> str | None:
    """Say what stands here for a key that another tool has, whatever its spelling."""
    if _VARIABLE.fullmatch(key) and not {"env", "runtime"}.isdisjoint(known):
        block = "env" if "env" in known else "runtime.env"
        return f"use {block}: {key} is a variable of the environment"
    plain = re.sub(r"[-_]", "", key).lower()
    tables = (*_OF_CLUSTERS.items(), *OF_JOBS.items())
    found = (table[plain] for name, table in tables if name in known and plain in table)
    return next(found, None)


# The block of a training job that a table is about; of two programs' the second is PyTorch's own.
_BLOCKS = {
    "parallelism": "expert_tensor",
    "training": "train_iters",
    "checkpoint": "keep_last",
    "data": "split",
    "model": "num_attention_heads",
    "runtime": "shm_gib",
}
_OF_PYTORCH = {"training": "max_steps", "data": "configuration"}


def of_other_block(key: str, blocks: "Collection[str]") -> str | None:
    """Say what stands in another block of a job for a key, where other tools have no blocks."""
    plain = re.sub(r"[-_]", "", key).lower()
    tables = _BLOCKS if "parallelism" in blocks else _BLOCKS | _OF_PYTORCH
    for block, table in tables.items():
        remedy = OF_JOBS[table].get(plain) if block in blocks else None
        if remedy is None:
            continue
        named = re.match(r"use ([a-z_]+)(.*)", remedy)
        return f"use {block}.{named[1]}{named[2]}" if named and "." not in named[1] else remedy
    return None
