"""The node groups: GPU pools, and the nodes of add-ons and operators."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from megatron_eks.catalog import pins
from megatron_eks.catalog.instances import (
    INSTANCES,
    REFUSED_FAMILIES,
    SYSTEM_INSTANCE_TYPES,
    InstanceType,
)
from megatron_eks.catalog.interfaces import NetworkInterface, max_pods, network_interfaces
from megatron_eks.config.cluster import ClusterConfig, GpuPool, SystemNodes
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, choices, warning
from megatron_eks.plan.cluster.capacity import CapacityPlan, in_placement_group, plan_capacity
from megatron_eks.plan.cluster.lustre import reaches_lustre_over_efa

# EKS's default quotas: nodes in a managed node group, and groups in a cluster.
NODE_GROUP_CEILING = 450
NODE_GROUPS_PER_CLUSTER = 30

POOL_LABEL = "megatron-eks/pool"

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*"
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"({_SUBDOMAIN}/)?{_NAME}")
_LABEL_VALUE = re.compile(rf"({_NAME})?")
# The g behind the generation (EC2 User Guide, "Instance type naming"), and the first of them, a1.
_GRAVITON = re.compile(r"(a1|[a-z]+[0-9]+g[a-z]*)\.")
_SMALL = re.compile(r"[a-z]+[1-9][a-z]*\.(nano|micro|small|medium|large|xlarge)")
_NO_GPU = re.compile(r"(c|d|hpc|i|m|r|t|x|z)[1-8][a-z]*(-[a-z0-9]+)?\.[a-z0-9-]+$")
_RESERVED_DOMAINS = ("megatron-eks", "kubernetes.io", "k8s.io", "amazonaws.com", "nvidia.com")


@dataclass(frozen=True)
class PoolPlan:
    """One managed node group of GPU nodes."""

    name: str
    instance: InstanceType
    zone: str
    max_nodes: int
    interfaces: tuple[NetworkInterface, ...]
    max_pods: int
    root_volume_gib: int
    kubernetes_version: str
    ami_type: Literal["AL2023_x86_64_NVIDIA"]
    ami_release: str | None
    """None: EKS's newest at creation, because this release pins none for the version."""
    placement_group: bool
    capacity: CapacityPlan
    local_storage: Literal["RAID0"] | None
    """How nodeadm joins the NVMe volumes; None where there are none."""
    labels: Mapping[str, str]
    idle_minutes: int | None
    """How long a node stays without a job where jobs decide the size; None: `meks scale` does."""
    lustre_efa: bool
    """Whether its nodes reach the file servers over EFA."""

    @property
    def repairs_at_once(self) -> int:
        """The most nodes that EKS may repair at a time: more is an image, a driver or a network."""
        return max(2, self.max_nodes // 10)


def plan_system_nodes(config: ClusterConfig) -> SystemNodes:
    """Return the system nodes of a configuration with the AMI release that they run."""
    nodes = config.system_nodes
    release = nodes.ami_release or pins.AMI_RELEASES.get(config.kubernetes_version)
    return nodes.model_copy(update={"ami_release": release})


def plan_pools(config: ClusterConfig) -> tuple[PoolPlan, ...]:
    """Plan the pools of a configuration that has passed the checks."""
    return tuple(_plan_pool(pool, config) for pool in config.gpu_pools)


def _plan_pool(pool: GpuPool, config: ClusterConfig) -> PoolPlan:
    instance = INSTANCES[pool.instance_type]
    return PoolPlan(
        name=pool.name,
        instance=instance,
        zone=pool.availability_zone,
        max_nodes=pool.max_nodes,
        interfaces=network_interfaces(instance),
        max_pods=max_pods(instance),
        root_volume_gib=pool.root_volume_gib,
        kubernetes_version=config.kubernetes_version,
        ami_type="AL2023_x86_64_NVIDIA",
        ami_release=pool.ami_release or pins.AMI_RELEASES.get(config.kubernetes_version),
        placement_group=in_placement_group(pool, instance),
        capacity=plan_capacity(pool.capacity),
        local_storage="RAID0" if instance.instance_store_gb else None,
        labels={POOL_LABEL: pool.name, **pool.labels},
        idle_minutes=pool.idle_minutes if pool.scale == "queue" else None,
        lustre_efa=config.storage.lustre.efa and reaches_lustre_over_efa(pool.instance_type),
    )


def check_pools(config: ClusterConfig) -> Findings:
    """Yield everything wrong with system nodes and GPU pools."""
    seen: set[str] = set()
    if config.system_nodes.instance_type not in SYSTEM_INSTANCE_TYPES:
        name = config.system_nodes.instance_type
        yield _no_system_type(("system_nodes", "instance_type"), name)
    if config.system_nodes.count == 1 and config.existing_cluster is None:
        found = "DNS and the training operator stop with the only node they run on"
        yield warning(Code.LONE_SYSTEM_NODE, ("system_nodes", "count"), found, "use 2 or more")
    most = NODE_GROUPS_PER_CLUSTER - 1
    if len(config.gpu_pools) > most:
        found = f"{len(config.gpu_pools)} pools, and EKS's default quota is {most + 1} node groups"
        remedy = f"use at most {most}: the system nodes have one too"
        yield Finding(Code.TOO_MANY_POOLS, ("gpu_pools",), found, remedy)
    for index, pool in enumerate(config.gpu_pools):
        if pool.name in seen:
            found, remedy = f"a pool named {pool.name!r} stands above", "name each pool apart"
            yield Finding(Code.DUPLICATE_NAME, ("gpu_pools", index, "name"), found, remedy)
        seen.add(pool.name)
        place = ("gpu_pools", index, "instance_type")
        if pool.instance_type not in INSTANCES:
            yield _unknown_instance(place, pool.instance_type)
        elif (gpu := INSTANCES[pool.instance_type].gpu).tflops_bf16 is None:
            found = f"the dense bf16 peak of {gpu.name} is unknown"
            remedy = "judge runs by tokens a second: MFU and predicted times need the peak"
            yield warning(Code.UNKNOWN_FACT, place, found, remedy)
        managed = config.existing_cluster is None
        yield from _labels(("gpu_pools", index, "labels"), pool.labels, managed=managed)
    used = {config.system_nodes.instance_type, *(pool.instance_type for pool in config.gpu_pools)}
    for name in (each for each in config.prices.instance_hour if each not in used):
        path, found = ("prices", "instance_hour", name), f"no pool has nodes of type {name!r}"
        yield Finding(Code.NO_MEANING, path, found, choices(name, used))


def _no_system_type(path: Path, name: str) -> Finding:
    found = f"unknown instance type {name!r}"
    if name in INSTANCES:
        found = f"{name} has GPUs, and nothing on system nodes uses them: they belong to gpu_pools"
    elif _GRAVITON.match(name):
        found = f"{name} has ARM processors, and AMI and images are made for x86-64"
    elif _SMALL.fullmatch(name):
        found = f"{name} is too small: system nodes carry add-ons, operators and jobs of data"
    else:
        remedy = choices(name, SYSTEM_INSTANCE_TYPES)
        return Finding(Code.UNKNOWN_INSTANCE_TYPE, path, found, remedy)
    remedy = f"use one of {', '.join(SYSTEM_INSTANCE_TYPES)}"
    return Finding(Code.REFUSED_INSTANCE_TYPE, path, found, remedy)


def _unknown_instance(path: Path, name: str) -> Finding:
    # SageMaker's name of a type begins with ml.
    plain = name.strip().lower().removeprefix("ml.")
    family = plain.split(".")[0]
    if family in REFUSED_FAMILIES:
        reason, instead = REFUSED_FAMILIES[family]
        found = f"{plain} is not supported: {reason}"
        return Finding(Code.REFUSED_INSTANCE_TYPE, path, found, f"use {instead}")
    found = f"{name} has no GPU" if _NO_GPU.match(name) else f"unknown instance type {name!r}"
    # p4d24xlarge, p5-48xlarge; or the GPU in place of the instance.
    letters = re.sub("[^a-z0-9]", "", plain)
    same = [known for known in INSTANCES if re.sub("[^a-z0-9]", "", known) == letters]
    same = same or [known for known, each in INSTANCES.items() if _model(each.gpu.name) == letters]
    sizes = [known for known in INSTANCES if known.split(".")[0] == family]
    families = sorted({known.split(".")[0] for known in INSTANCES})
    remedy = choices(plain, sizes) if sizes else f"families are {', '.join(families)}"
    remedy = f"use {' or '.join(same)}" if same else remedy
    return Finding(Code.UNKNOWN_INSTANCE_TYPE, path, found, remedy)


def _model(gpu: str) -> str:
    """Return what people call a GPU: a100 of A100-SXM4-40GB."""
    return re.split("[- ]", gpu)[0].lower()


def _labels(path: Path, labels: dict[str, str], *, managed: bool) -> Findings:
    for key, value in labels.items():
        domain = key.split("/")[0] if "/" in key else ""
        if any(f".{domain}".endswith(f".{reserved}") for reserved in _RESERVED_DOMAINS):
            found = f"label {key!r} belongs to Kubernetes, EKS, the device plugins or this project"
            remedy = "use a prefix of your own: example.com/NAME"
            yield Finding(Code.RESERVED_LABEL, (*path, key), found, remedy)
        elif not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            found = f"{key}={value} is not a Kubernetes label"
            remedy = "use at most 63 letters, digits, '-', '_' and '.', the first and last no sign"
            yield Finding(Code.RESERVED_LABEL, (*path, key), found, remedy)
        elif not value and managed:
            # EKS API Reference, CreateNodegroup: a value has one character or more.
            found = f"label {key!r} has no value, and EKS refuses the node group"
            yield Finding(Code.RESERVED_LABEL, (*path, key), found, 'give it one, such as "true"')
