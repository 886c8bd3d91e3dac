"""What stands in a cluster file for keys that other tools have, such as eksctl, Terraform and FSx.

Sources: eksctl's ClusterConfig schema; terraform-aws-modules/eks; FSx API, CreateFileSystem.
"""

from megatron_eks.config.slips import same

_SCALE = "remove it: a pool starts without nodes, and `meks scale POOL N` takes and returns them"
_TEMPLATE = "remove it: the plan writes the nodes' launch template"
_ZONE = "use availability_zone: its subnet follows"
_RESERVED = "use capacity: {type: reservation, id: cr-...}, or type capacity_block for a block"
# terraform-aws-modules/eks has the same keys with `cluster_` before them, and without since v21.
_TERRAFORM_ENDPOINT = (
    "publicaccesscidrs endpointpublicaccesscidrs clusterendpointpublicaccess "
    "clusterendpointpublicaccesscidrs clusterendpointprivateaccess"
)
_ENDPOINT = "use public_cidrs: who reaches the endpoint; [] makes it private"

# By a key that tells the block.
OF_CLUSTERS: dict[str, dict[str, str]] = {
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
        **same("remove it: AWS_PROFILE and AWS's own files say it", "profile awsprofile"),
        **same(
            "use network.service_cidr",
            "kubernetesnetworkconfig serviceipv4cidr clusterserviceipv4cidr",
        ),
        **same(
            "remove it: a node has all EFA interfaces of its instance type",
            "efa efaenabled enableefa enableefasupport",
        ),
        **same(
            "use platform.dcgm_exporter: metrics for a Prometheus of yours",
            "monitoring prometheus grafana metrics",
        ),
        **same("remove it: job files stand in jobs/ beside this one", "jobs trainingjobs"),
        **same("use access.admin_role_arns: ARNs of IAM roles", "accessentries awsauth maproles"),
        **same("use platform.namespace", "namespaces"),
        **same("use access.deletion_protection", "clusterdeletionprotection"),
        **same("remove it: the credentials say which account", "account accountid awsaccountid"),
        **same("remove it: the control plane's logs are on", "cloudwatch logging"),
        **same(
            "use access.public_cidrs: who reaches the endpoint; [] makes it private",
            f"endpointpublicaccess endpointprivateaccess clusterendpoints {_TERRAFORM_ENDPOINT}",
        ),
    },
    "public_cidrs": {
        **same(
            _ENDPOINT,
            "endpointpublicaccess endpointprivateaccess publicaccess privateaccess "
            f"{_TERRAFORM_ENDPOINT}",
        ),
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
    "count": {
        **same(
            "use count: system nodes are neither more nor less",
            "min max desired minsize maxsize desiredsize minnodes maxnodes desirednodes replicas "
            "size nodes mincapacity maxcapacity desiredcapacity nodecount",
        ),
        **same("use instance_type: system nodes are alike", "instancetypes types"),
        **same("use instance_type", "type instance"),
        **same("remove it: system nodes spread over all zones", "zones azs availabilityzones"),
    },
    "lustre": {
        **same("use lustre", "fsx fsxlustre fsxforlustre"),
        **same("use retain: true keeps all, false deletes it", "removalpolicy deletionpolicy"),
        **same(
            "remove it: a bucket is made; lustre.data_repositories shows another one's objects",
            "s3 s3bucket bucket bucketname checkpointbucket",
        ),
        **same("use efs: true", "efsenabled enableefs efsfilesystem"),
        **same("use kms_key_arn", "kmskeyid kmskey kms encryption"),
    },
    "s3_uri": {
        **same("use s3_uri: s3://BUCKET/PREFIX", "bucket s3 prefix uri datarepositorypath s3path"),
        **same("use path", "filesystempath mountpath"),
        **same("use import_changes: true or false", "autoimport autoimportpolicy importpolicy"),
        **same("use export_changes: true or false", "autoexport autoexportpolicy exportpolicy"),
        **same("remove it: what is in S3 already shows from the start", "batchimport"),
    },
    "build_args": {
        **same(
            "use build_args: {BASE_IMAGE: ...}; a job names an image of its own in its key image",
            "baseimage base image uri from imageuri",
        ),
        **same(
            "remove it: assets/images has the Dockerfiles; images.source builds those of a fork",
            "dockerfile context path",
        ),
        **same("use tag_strategy", "tag imagetag version"),
        **same("use build_args", "buildargs args arguments"),
        **same("use test_level", "test tests testlevel"),
    },
    "mirror": {
        **same("use prefix", "repositoryprefix repoprefix ecrprefix"),
        **same("use mirror", "registry ecrregistry pullthroughcache registrymirror"),
        **same("use source: {type: github, ...}", "github git repository"),
    },
    "alarm_email": same(
        "use platform.dcgm_exporter: metrics for a Prometheus of yours",
        "prometheus grafana dcgm amp metrics",
    ),
    "type": same(
        "remove it: spot costs the price of the moment, at most that on demand",
        "maxprice spotmaxprice spotprice bid",
    ),
    "lustre_gib_month": {
        **same("remove it: all prices are in USD", "currency"),
        **same("use control_plane_hour", "eks ekshour cluster controlplane"),
        **same("use lustre_gib_month", "lustre fsx lustregbmonth fsxgbmonth"),
    },
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
        **same("use deployment: persistent_2 or scratch_2", "deploymenttype lustredeploymenttype"),
        **same("remove it: persistent_2 and scratch_2 are on SSD", "storagetype storageclass"),
        **same("remove it: the plan makes the group of the file servers", "securitygroupids"),
        **same("use efa", "efaenabled enableefa"),
        **same("remove it: the version is pinned here", "filesystemtypeversion lustreversion"),
    },
    # Of a reservation, a Capacity Block, and a file system that exists.
    "id": same(
        "use id", "capacityreservationid reservationid capacityblockid filesystemid fsid fsxid"
    ),
    "ends_at": {
        **same("use ends_at, with its zone: 2026-12-01T11:30:00Z", "end enddate endtime"),
        **same(
            "remove it: EC2 starts nodes when the block begins; ends_at says when they go",
            "start startdate starttime startsat",
        ),
        **same(
            "use ends_at: the time when the block ends",
            "duration durationhours capacitydurationhours durationdays days hours",
        ),
    },
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
            "capacityblockid instancemarketoptions id",
        ),
        **same("use instance_type", "type instance"),
        **same(
            "remove it: instance_type says how many GPUs a node has",
            "gpus gpucount numgpus gpuspernode",
        ),
        **same("use ami_release", "ami amiid releaseversion amireleaseversion"),
        **same(
            "remove it: nodes run EKS's AMI with NVIDIA's driver; ami_release names another one",
            "amitype amifamily",
        ),
        **same(
            _TEMPLATE,
            "bootstrap userdata prebootstrapcommands overridebootstrapcommand kubeletextraargs "
            "maxpods maxpodspernode volumetype privatenetworking iam updateconfig",
        ),
        **same(
            "remove it: nodes take no logins; `kubectl debug node/NAME` opens a shell on one",
            "ssh sshkey sshkeyname keyname keypair ec2sshkey remoteaccess",
        ),
        "taints": "remove it: GPU nodes have one for nvidia.com/gpu, and jobs tolerate it",
        "instancetypes": "use instance_type: the nodes of a pool are alike",
    },
}
