"""What stands in a cluster file for keys that other tools have, such as eksctl, Terraform and FSx.

Sources: eksctl's ClusterConfig schema; terraform-aws-modules/eks; FSx API, CreateFileSystem.
"""

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

# By a key that tells the block; what to do about which keys.
OF_CLUSTERS: dict[str, dict[str, str]] = {
    "gpu_pools": {
        "use name": "clustername",
        "use name and region at the top of the file": "metadata",
        "use kubernetes_version": "version clusterversion eksversion k8sversion",
        "use availability_zones": "azs zones",
        "use network.vpc_cidr, or network.vpc_id of one that exists": "vpc cidr vpccidrblock",
        "use network.private_subnets, with network.vpc_id": "subnets subnetids",
        "use gpu_pools; nodes without GPUs are system_nodes": (
            "managednodegroups nodegroups eksmanagednodegroups nodepools pools karpenter"
        ),
        "remove it: the add-ons are chosen and pinned here": "addons clusteraddons",
        "remove it: roles are made here; permissions_boundary_arn bounds them": "iam",
        "use storage.lustre": "fsx fsxlustre filesystem",
        "use network.nat_gateways: 0, 1 or per_zone": (
            "nat natgateway enablenatgateway singlenatgateway onenatgatewayperaz"
        ),
        "use storage.kms_key_arn": "kmskeyid kmskey kms",
        "use tags": "defaulttags",
        "remove it: AWS_PROFILE and AWS's own files say it": "profile awsprofile",
        "use network.service_cidr": (
            "kubernetesnetworkconfig serviceipv4cidr clusterserviceipv4cidr"
        ),
        "remove it: a node has all EFA interfaces of its instance type": (
            "efa efaenabled enableefa enableefasupport"
        ),
        "use platform.dcgm_exporter: metrics for a Prometheus of yours": (
            "monitoring prometheus grafana metrics"
        ),
        "remove it: job files stand in jobs/ beside this one": "jobs trainingjobs",
        "use access.admin_role_arns: ARNs of IAM roles": "accessentries awsauth maproles",
        "use platform.namespace": "namespaces",
        "use access.deletion_protection": "clusterdeletionprotection",
        "remove it: the credentials say which account": "account accountid awsaccountid",
        "remove it: the control plane's logs are on": "cloudwatch logging",
        "use access.public_cidrs: who reaches the endpoint; [] makes it private": (
            f"endpointpublicaccess endpointprivateaccess clusterendpoints {_TERRAFORM_ENDPOINT}"
        ),
    },
    "public_cidrs": {
        _ENDPOINT: (
            "endpointpublicaccess endpointprivateaccess publicaccess privateaccess "
            f"{_TERRAFORM_ENDPOINT}"
        ),
        "use public_cidrs": "allowedcidrs cidrs",
        "use admin_role_arns: ARNs of IAM roles": (
            "admins adminusers users roles maproles mapusers accessentries awsauth"
        ),
        "use private_route: ssm_bastion": "bastion",
    },
    "nat_gateways": {
        "use vpc_cidr": "cidr cidrblock vpccidrblock",
        "use nat_gateways: 0, 1 or per_zone": (
            "nat natgateway enablenatgateway singlenatgateway onenatgatewayperaz"
        ),
        "use private_subnets: a subnet for each zone": "subnets subnetids privatesubnetids",
        "use service_cidr": "serviceipv4cidr clusterserviceipv4cidr",
        "use interface_endpoints": "endpoints vpcendpoints",
        "use node_security_group_id": "securitygroupids securitygroups",
    },
    "dcgm_exporter": {
        "remove it: ranks meet through runtime.rendezvous: c10d, which needs no server": "etcd",
        "remove it: EKS's AMI has the driver, and the device plugin of NVIDIA is always there": (
            "gpuoperator nvidiagpuoperator nvidiadriver nvidiadeviceplugin deviceplugin"
        ),
        "remove it: the device plugin of EFA is always there": (
            "efa efadeviceplugin efaplugin awsefak8sdeviceplugin"
        ),
        "remove it: the training operator is always there": (
            "trainingoperator kubeflow pytorchoperator"
        ),
        "remove it: kind: nccl_test runs without MPI": "mpioperator mpi",
        _SCALE: "clusterautoscaler autoscaler karpenter",
        "remove it: the driver of FSx is always there": "fsxcsidriver fsxcsi",
        "use pod_security": "podsecuritystandard",
    },
    "count": {
        "use count: system nodes are neither more nor less": (
            "min max desired minsize maxsize desiredsize minnodes maxnodes desirednodes replicas "
            "size nodes mincapacity maxcapacity desiredcapacity nodecount"
        ),
        "use instance_type: system nodes are alike": "instancetypes types",
        "use instance_type": "type instance",
        "remove it: system nodes spread over all zones": "zones azs availabilityzones",
    },
    "lustre": {
        "use lustre": "fsx fsxlustre fsxforlustre",
        "use retain: true keeps all, false deletes it": "removalpolicy deletionpolicy",
        "remove it: a bucket is made; lustre.data_repositories shows another one's objects": (
            "s3 s3bucket bucket bucketname checkpointbucket"
        ),
        "use efs: true": "efsenabled enableefs efsfilesystem",
        "use kms_key_arn": "kmskeyid kmskey kms encryption",
    },
    "s3_uri": {
        "use s3_uri: s3://BUCKET/PREFIX": "bucket s3 prefix uri datarepositorypath s3path",
        "use path": "filesystempath mountpath",
        "use import_changes: true or false": "autoimport autoimportpolicy importpolicy",
        "use export_changes: true or false": "autoexport autoexportpolicy exportpolicy",
        "remove it: what is in S3 already shows from the start": "batchimport",
    },
    "build_args": {
        "use build_args: {BASE_IMAGE: ...}; a job names an image of its own in its key image": (
            "baseimage base image uri from imageuri"
        ),
        "remove it: assets/images has the Dockerfiles; images.source builds those of a fork": (
            "dockerfile context path"
        ),
        "use tag_strategy": "tag imagetag version",
        "use build_args": "buildargs args arguments",
        "use test_level": "test tests testlevel",
    },
    "mirror": {
        "use prefix": "repositoryprefix repoprefix ecrprefix",
        "use mirror": "registry ecrregistry pullthroughcache registrymirror",
        "use source: {type: github, ...}": "github git repository",
    },
    "alarm_email": {
        "use platform.dcgm_exporter: metrics for a Prometheus of yours": (
            "prometheus grafana dcgm amp metrics"
        ),
    },
    "type": {
        "remove it: spot costs the price of the moment, at most that on demand": (
            "maxprice spotmaxprice spotprice bid"
        ),
    },
    "lustre_gib_month": {
        "remove it: all prices are in USD": "currency",
        "use control_plane_hour": "eks ekshour cluster controlplane",
        "use lustre_gib_month": "lustre fsx lustregbmonth fsxgbmonth",
    },
    "throughput_mbps_per_tib": {
        "use capacity_gib: 1200 is FSx's smallest, which its console shows as 1.2 TiB": (
            "storagecapacity storagesize capacity capacitytib capacitytb size sizegib"
        ),
        "use throughput_mbps_per_tib": "throughput perunitstoragethroughput throughputpertib",
        "use data_repositories: [{path: /data, s3_uri: s3://BUCKET/PREFIX}]": (
            "importpath exportpath s3importpath s3exportpath autoimportpolicy datarepositorypath "
            "s3 s3uri bucket"
        ),
        "remove it: files are compressed with LZ4": "datacompressiontype compression",
        "use mount_path": "mountpoint mountdir",
        "use availability_zone": "subnetid subnetids az zone",
        "use existing: {id, dns_name, mount_name}": "filesystemid fsid fsxid",
        "use deployment: persistent_2 or scratch_2": "deploymenttype lustredeploymenttype",
        "remove it: persistent_2 and scratch_2 are on SSD": "storagetype storageclass",
        "remove it: the plan makes the group of the file servers": "securitygroupids",
        "use efa": "efaenabled enableefa",
        "remove it: the version is pinned here": "filesystemtypeversion lustreversion",
    },
    # Of a reservation, a Capacity Block, and a file system that exists.
    "id": {
        "use id": "capacityreservationid reservationid capacityblockid filesystemid fsid fsxid",
    },
    "ends_at": {
        "use ends_at, with its zone: 2026-12-01T11:30:00Z": "end enddate endtime",
        "remove it: EC2 starts nodes when the block begins; ends_at says when they go": (
            "start startdate starttime startsat"
        ),
        "use ends_at: the time when the block ends": (
            "duration durationhours capacitydurationhours durationdays days hours"
        ),
    },
    "root_volume_gib": {
        _SCALE: (
            "count desired min nodes replicas size minnodes minsize mincount mincapacity "
            "desirednodes desiredsize desiredcapacity"
        ),
        "use max_nodes: the most nodes that `meks scale` may take": (
            "max maxsize maxcount maxcapacity scalingconfig"
        ),
        "use root_volume_gib": "volumesize disksize diskgib rootvolumesize",
        "use availability_zone, and a pool for each zone: EFA traffic cannot leave one": (
            "zones azs availabilityzones"
        ),
        _ZONE: "az zone subnet subnets subnetid subnetids",
        "remove it: a node has all EFA interfaces of its instance type": (
            "efa efaenabled enableefa enableefasupport efainterfaces efacount numefa "
            "networkinterfaces"
        ),
        "use capacity: {type: spot}": "spot capacitytype",
        _RESERVED: (
            "capacityreservation capacityreservationid reservation capacityblock capacityblockid "
            "instancemarketoptions id"
        ),
        "use instance_type": "type instance",
        "remove it: instance_type says how many GPUs a node has": (
            "gpus gpucount numgpus gpuspernode"
        ),
        "use ami_release": "ami amiid releaseversion amireleaseversion",
        "remove it: nodes run EKS's AMI with NVIDIA's driver; ami_release names another one": (
            "amitype amifamily"
        ),
        _TEMPLATE: (
            "bootstrap userdata prebootstrapcommands overridebootstrapcommand kubeletextraargs "
            "maxpods maxpodspernode volumetype privatenetworking iam updateconfig"
        ),
        "remove it: nodes take no logins; `kubectl debug node/NAME` opens a shell on one": (
            "ssh sshkey sshkeyname keyname keypair ec2sshkey remoteaccess"
        ),
        "remove it: GPU nodes have one for nvidia.com/gpu, and jobs tolerate it": "taints",
        "use instance_type: the nodes of a pool are alike": "instancetypes",
    },
}
