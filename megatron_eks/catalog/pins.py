"""Every version of everything that is not a Python or npm package, each once, with its source.

To move a pin: `aws eks describe-addon-versions --kubernetes-version 1.36` and the release pages
named beside it.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from megatron_eks.catalog.regions import EKS_REGISTRIES, EKS_REGISTRY

# End of standard support (EKS User Guide, "Kubernetes release calendar", read 2026-11); a version
# that is missing here is not offered by EKS, or not known to this release.
KUBERNETES_STANDARD_SUPPORT_ENDS: dict[str, date | None] = {
    "1.33": date(2026, 7, 29),
    "1.34": date(2026, 12, 2),
    "1.35": date(2027, 3, 27),
    "1.36": date(2027, 8, 2),
    "1.37": None,
}

# EKS AMI releases, the same string for every AL2023 type. Nodes of public projects run this one
# (read 2026-11); no source shows the string of a later release of 1.36, or of a good one of 1.35.
AMI_RELEASES: dict[str, str] = {"1.36": "1.36.4-20260930"}


@dataclass(frozen=True)
class BadReleases:
    """AMI releases that no node should run."""

    since: str
    before: str
    """Days as in the release's name, YYYYMMDD; this one is good again."""
    newest_minor: int
    """Later minor versions of Kubernetes have another kernel."""
    why: str


BAD_AMI_RELEASES: tuple[BadReleases, ...] = (
    # Release pages of v20260930 to v20261012; 1.36 and later have kernel 6.18 (read 2026-11-28).
    BadReleases(
        "20260930",
        "20261012",
        35,
        "kernel 6.12.110 panics while it reclaims memory, and the node reboots "
        "(awslabs/amazon-eks-ami issue 2845)",
    ),
)


def bad_releases(version: str) -> Iterator[BadReleases]:
    """Yield the bad releases of a Kubernetes version, or of an AMI release such as 1.35.8-DATE."""
    _, minor, *_ = version.split(".")
    day = version.partition("-")[2]
    for bad in BAD_AMI_RELEASES:
        if int(minor) <= bad.newest_minor and (not day or bad.since <= day < bad.before):
            yield bad


def newest_release_command(region: str, version: str) -> str:
    """Return the command that prints the newest AMI release of a Kubernetes version.

    EKS User Guide, "Retrieve recommended Amazon Linux AMI IDs" (read 2026-11).
    """
    parameter = f"{version}/amazon-linux-2023/x86_64/nvidia/recommended/release_version"
    return (
        f"aws ssm get-parameter --region {region} --query Parameter.Value --output text "
        f"--name /aws/service/eks/optimized-ami/{parameter}"
    )


@dataclass(frozen=True)
class Addon:
    """One EKS add-on: its versions by Kubernetes version, and the permissions it needs."""

    name: str
    versions: Mapping[str, str]
    service_account: str | None = None
    policy: str | None = None
    """AWS managed policy, attached through Pod Identity."""


def _both(version: str) -> Mapping[str, str]:
    return dict.fromkeys(("1.35", "1.36"), version)


# AWS's default versions as `describe-addon-versions` gave them in September and October 2026; where
# no source shows one, EKS chooses, and the plan says so.
ADDONS: tuple[Addon, ...] = (
    Addon("eks-pod-identity-agent", _both("v1.3.10-eksbuild.3")),
    Addon("vpc-cni", _both("v1.22.4-eksbuild.3"), "aws-node", "AmazonEKS_CNI_Policy"),
    Addon("kube-proxy", {"1.35": "v1.35.3-eksbuild.29", "1.36": "v1.36.0-eksbuild.25"}),
    Addon("coredns", {"1.35": "v1.13.2-eksbuild.31", "1.36": "v1.14.3-eksbuild.23"}),
    Addon(
        "aws-ebs-csi-driver",
        _both("v1.66.0-eksbuild.1"),
        "ebs-csi-controller-sa",
        "AmazonEBSCSIDriverPolicyV2",
    ),
    Addon("aws-fsx-csi-driver", _both("v1.9.0-eksbuild.1")),
    Addon("metrics-server", _both("v0.9.0-eksbuild.11")),
    Addon("eks-node-monitoring-agent", {"1.35": "v1.6.5-eksbuild.1"}),
)

# Only where `storage.efs` asks for it.
EFS_ADDON = Addon(
    "aws-efs-csi-driver", {}, "efs-csi-controller-sa", "service-role/AmazonEFSCSIDriverPolicy"
)

# 2.15 is the version whose client the AL2023 AMI carries and the only one with metadata settings.
LUSTRE_VERSION = "2.15"

# Images of the platform, by tag and digest of the index of all architectures (read 2026-11).
# 0.19.0 to 0.19.2 of the device plugin took /dev/infiniband from the EFA plugin
# (NVIDIA/k8s-device-plugin issue 1692).
NVIDIA_DEVICE_PLUGIN_IMAGE = (
    "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
    "@sha256:a61ba9fd8efb82f3a79f877f7580e02c1e8e7593f62473644bc9c79e315c3312"
)
DCGM_EXPORTER_IMAGE = (
    "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless"
    "@sha256:60d3b00ac80b4ae77f94dae2f943685605585ad9e92fdccda3154d009ae317cc"
)
# kubeflow/training-operator v1.9.4, manifests/overlays/standalone: no digest of it is published.
TRAINING_OPERATOR_LAST = "1.9.4 of 2026-08-18"
"""The last release: its project has ended (kubeflow/trainer#3517)."""
TRAINING_OPERATOR_IMAGE = "ghcr.io/kubeflow/training-v1/training-operator:v1-93c5489"
# kubernetes-sigs/jobset v0.12.0: no digest of it is known here either.
JOBSET_IMAGE = "registry.k8s.io/jobset/jobset:v0.12.0"
# kubeflow/trainer v2.3.0, manifests/overlays/manager: nor of this one.
TRAINER_IMAGE = "ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.3.0"
# kubernetes-sigs/kueue v0.19.2: nor of this one.
KUEUE_IMAGE = "registry.k8s.io/kueue/kueue:v0.19.2"
BUSYBOX_IMAGE = (
    "public.ecr.aws/docker/library/busybox:1.37.0"
    "@sha256:9532d8c39891ca2ecde4d30d7710e01fb739c87a8b9299685c63704296b16028"
)
# Two public repositories name this digest in this registry (read 2026-11).
PYTHON_IMAGE = (
    "public.ecr.aws/docker/library/python:3.13-slim-bookworm"
    "@sha256:01f42367a0a94ad4bc17111776fd66e3500c1d87c15bbd6055b7371d39c124fb"
)
# The last minor version with the second interface, which torch's rendezvous speaks (Kubernetes
# v1.35.4, cmd/kubeadm/app/constants, MinExternalEtcdVersion).
ETCD_IMAGE = "registry.k8s.io/etcd:3.5.24-0"
# CUDA 13.0 runs on driver 580 and later, so on every AMI release above; nobody could confirm the
# digest in this registry.
CUDA_IMAGE = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"

# What a mirror must hold: everything that neither EKS's own registries nor our repositories have.
THIRD_PARTY_IMAGES = (
    NVIDIA_DEVICE_PLUGIN_IMAGE,
    DCGM_EXPORTER_IMAGE,
    TRAINING_OPERATOR_IMAGE,
    JOBSET_IMAGE,
    TRAINER_IMAGE,
    KUEUE_IMAGE,
    BUSYBOX_IMAGE,
    PYTHON_IMAGE,
    CUDA_IMAGE,
    ETCD_IMAGE,
)


def efa_device_plugin_image(region: str) -> str:
    """Return the EFA device plugin in a region's registry (aws/eks-charts, chart 0.5.30)."""
    account = EKS_REGISTRIES.get(region, EKS_REGISTRY)
    return f"{account}.dkr.ecr.{region}.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.20"


# A parameter that AWS keeps at the newest image (Amazon Linux 2023 User Guide, "Launching AL2023
# using the SSM parameter"); CloudFormation reads it whenever it makes or changes the instance.
BASTION_IMAGE = (
    "{{resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64}}"
)
BASTION_INSTANCE_TYPE = "t3.micro"

# The newest Amazon Linux 2023 build image (CodeBuild User Guide, "Docker images provided by
# CodeBuild", and aws-cdk-lib's LinuxBuildImage.AMAZON_LINUX_2023_6; read 2026-11).
CODEBUILD_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:6.0"

# What the training images are made of. Decision 43 has the evidence that upstream runs the sets
# together; the gate in the build (assets/images/gate.py) compares them with the combinations known
# not to work.
#
# NVIDIA's image for Megatron: Megatron core 0.19.1, Bridge 0.6.1, and everything they are compiled
# against. Two public projects that train with it name this digest (read 2026-11).
MEGATRON_BASE_IMAGE = (
    "nvcr.io/nvidia/nemo:26.08.01"
    "@sha256:fdd6e9c7929b76c8624ddfea939dda345beaf67695d9c3994994c18f9e79b9bf"
)
# The newest release of AWS's own PyTorch image: torch 2.13, EFA 1.49 (aws/deep-learning-containers,
# .github/config/image/pytorch/2.13-ec2-cuda.yml, read 2026-11); no digest of it is published.
FSDP_BASE_IMAGE = "public.ecr.aws/deep-learning-containers/pytorch:2.13-cu133-amzn2023"

# Checkout for pretrain_gpt.py, and the packages that megatron.core, megatron.training and
# megatron.bridge come from: PyPI has the later patch releases of what the base image holds;
# upstream's tags were read up to core_v0.19.0.
MEGATRON_LM_TAG = "core_v0.19.0"
MEGATRON_LM_COMMIT = "5be9626709af2722333bf54797c954c09edeada3"
MEGATRON_CORE_VERSION = "0.19.2"
MEGATRON_BRIDGE_VERSION = "0.6.2"

# As in the FSDP base image; the checksum is the one that ai-dynamo/dynamo's builds check.
EFA_INSTALLER_VERSION = "1.49.0"
EFA_INSTALLER_SHA256 = "cf2e9281a2328a243c76f911a490faed43ca0fecfe4733c25e34b2e92a32c309"

# The oldest NVIDIA driver in an EKS AMI release that this project names (awslabs/amazon-eks-ami;
# newer releases have 595): what the images' CUDA has to run on.
NODE_DRIVER_VERSION = "580.159.03"

# What pods run as, and whose the shared directories are.
POD_UID = 10001
UID_LABEL = "megatron-eks/uid"
"""On the namespace of a team: another user, of its pods."""
TEAM_LABEL = "megatron-eks/team"
"""On the namespace of a team: its name."""


def group_of(team: str) -> str:
    """Return the Kubernetes group of a team's people; EKS keeps `system:` and `eks:` for itself."""
    return f"megatron-eks:{team}"


BUILD_ARGUMENTS: dict[str, Mapping[str, str]] = {
    "megatron": {
        "BASE_IMAGE": MEGATRON_BASE_IMAGE,
        "EFA_INSTALLER_VERSION": EFA_INSTALLER_VERSION,
        "EFA_INSTALLER_SHA256": EFA_INSTALLER_SHA256,
        "MEGATRON_LM_TAG": MEGATRON_LM_TAG,
        "MEGATRON_LM_COMMIT": MEGATRON_LM_COMMIT,
        "NODE_DRIVER_VERSION": NODE_DRIVER_VERSION,
        "POD_UID": str(POD_UID),
    },
    "fsdp": {
        "BASE_IMAGE": FSDP_BASE_IMAGE,
        "NODE_DRIVER_VERSION": NODE_DRIVER_VERSION,
        "POD_UID": str(POD_UID),
    },
}
"""Of the Dockerfiles in assets/images, by image."""


if __name__ == "__main__":
    # Constraints of `make lock`.
    sys.stdout.write(f"megatron-core=={MEGATRON_CORE_VERSION}\n")
    sys.stdout.write(f"megatron-bridge=={MEGATRON_BRIDGE_VERSION}\n")
