"""The pod of a job, the same on every rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from cdk8s_plus_27 import k8s

from megatron_eks.charts.pods import (
    brought_mounts,
    brought_volumes,
    count,
    gpu_toleration,
    leave_lost_node,
    quantity,
    unprivileged_container,
    unprivileged_pod,
)
from megatron_eks.charts.training.objects import CONTAINER, Entries, file_mounts, file_volumes
from megatron_eks.charts.training.policy_wait import policy_wait
from megatron_eks.plan.cluster.observability import METRICS_PORT, METRICS_PORT_NAME
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.cluster.pools import POOL_LABEL
from megatron_eks.plan.jobs.job import MASTER_PORT, JobPlan, SecretFile
from megatron_eks.plan.jobs.resources import Resources
from megatron_eks.programs.exporter.plan import VARIABLE

# Pod templates as JSON, which has no narrower type.
Template = Mapping[str, Any]

# The training operator looks for the container's port of this name.
_PORT_NAME = "pytorchjob-port"

_SHARED = "shared"
_MEMORY = "dshm"
_SCRATCH = "scratch"


@dataclass(frozen=True)
class _Shape:
    """What pods of many jobs have in common: all but program, arguments, variables and files."""

    pool: str | None
    claim: str
    resources: Resources
    grace_seconds: int
    host_network: bool
    ipc_lock: bool
    secrets: tuple[SecretFile, ...]
    priority_class: str
    has_metrics: bool
    platform: PlatformPlan


def job_pod(job: JobPlan, platform: PlatformPlan, meeting: Sequence[str] = ()) -> Template:
    """Return the specification of a job's pods; `meeting` tells torchrun how ranks find each other.

    A typed template takes jsii about 5 ms to convert, most of it for the hundred arguments. Pods of
    one shape are therefore converted once, and the texts of the job are put in here.
    """
    shape = _Shape(
        pool=job.pool.name if job.pool else None,
        claim=platform.claim_in(job.pool.zone) if job.pool else platform.claim,
        resources=job.resources,
        grace_seconds=job.grace_seconds,
        host_network=job.host_network,
        ipc_lock=job.ipc_lock,
        secrets=job.secrets,
        priority_class=job.priority_class,
        has_metrics=job.is_scraped,
        platform=platform,
    )
    spec = _spec(shape)
    (container,) = spec["containers"]
    env: Entries = [{"name": name, "value": value} for name, value in job.env.items()]
    env += [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": each.secret, "key": each.key}}}
        for name, each in job.secret_env.items()
    ]
    env += [{"name": VARIABLE, "value": str(job.metrics)}] if job.metrics else []
    own = {
        "image": job.image.uri,
        "command": [*job.launcher, *meeting, *job.program],
        "args": list(job.args),
        **({"env": env} if env else {}),
    }
    mounts = [*container["volumeMounts"], *file_mounts(job)]
    first = [{**each, "image": job.image.uri} for each in spec.get("initContainers", ())]
    return {
        **spec,
        **({"initContainers": first} if first else {}),
        "containers": [{**own, **container, "volumeMounts": mounts}],
        "volumes": [*spec["volumes"], *file_volumes(job)],
    }


@cache
def _spec(shape: _Shape) -> Template:
    template = k8s.PodTemplateSpec(spec=_typed_spec(shape))
    spec: Template = k8s.KubePodTemplate.manifest(template=template)["template"]["spec"]
    return spec


def _typed_spec(shape: _Shape) -> k8s.PodSpec:
    platform = shape.platform
    taint = [gpu_toleration(platform.gpu_taint)] if shape.pool else []
    return k8s.PodSpec(
        # Policies know no pod on the host's network.
        init_containers=None if shape.host_network else [policy_wait()],
        containers=[_container(shape)],
        volumes=_volumes(shape),
        node_selector={POOL_LABEL: shape.pool} if shape.pool else None,
        tolerations=[*taint, *leave_lost_node()],
        priority_class_name=shape.priority_class,
        security_context=unprivileged_pod(platform.pod_uid),
        termination_grace_period_seconds=shape.grace_seconds,
        # Without this a pod on the host network resolves with the node's servers, which do not
        # know the master's Service.
        host_network=shape.host_network or None,
        dns_policy="ClusterFirstWithHostNet" if shape.host_network else None,
        # No token of Kubernetes'; EKS adds one that is good for the role's credentials alone (EKS
        # User Guide, "Configure pods to use a Kubernetes service account").
        service_account_name=platform.service_account,
        automount_service_account_token=False,
        # Otherwise each Service of the namespace, one a rank, adds seven variables to each pod.
        enable_service_links=False,
    )


def _container(shape: _Shape) -> k8s.Container:
    ports = {_PORT_NAME: MASTER_PORT} if shape.host_network else {}
    ports |= {METRICS_PORT_NAME: METRICS_PORT} if shape.has_metrics else {}
    mounts = {_SHARED: shape.platform.mount_path, _MEMORY: "/dev/shm", _SCRATCH: "/tmp"}  # noqa: S108 -- in the pod
    return k8s.Container(
        name=CONTAINER,
        image_pull_policy="IfNotPresent",
        ports=[k8s.ContainerPort(name=name, container_port=port) for name, port in ports.items()]
        or None,
        resources=_resources(shape.resources),
        # A rank's last lines stay with its pod's status when the node and its logs are gone.
        termination_message_policy="FallbackToLogsOnError",
        security_context=unprivileged_container(*(["IPC_LOCK"] if shape.ipc_lock else [])),
        volume_mounts=[
            *(
                k8s.VolumeMount(name=name, mount_path=path)
                for name, path in mounts.items()
                if name != _MEMORY or shape.resources.shm_mib
            ),
            *(
                k8s.VolumeMount(name=secret.key, mount_path=secret.directory, read_only=True)
                for secret in shape.secrets
            ),
            *brought_mounts(shape.platform),
        ],
    )


def _resources(resources: Resources) -> k8s.ResourceRequirements:
    """Request what is limited, so that nothing is overcommitted, and leave the CPU unlimited."""
    sizes = {"memory": quantity(f"{resources.memory_mib}Mi")}
    if resources.gpus:
        sizes["nvidia.com/gpu"] = count(resources.gpus)
    if resources.efa:
        sizes["vpc.amazonaws.com/efa"] = count(resources.efa)
    if resources.hugepages_mib:
        sizes["hugepages-2Mi"] = quantity(f"{resources.hugepages_mib}Mi")
    cpu = quantity(f"{resources.cpu_millis}m")
    return k8s.ResourceRequirements(requests={**sizes, "cpu": cpu}, limits=sizes)


def _volumes(shape: _Shape) -> list[k8s.Volume]:
    claim = k8s.PersistentVolumeClaimVolumeSource(claim_name=shape.claim)
    # The node's NVMe: kubelet and containerd live there (NodeConfig, localStorage RAID0).
    scratch = k8s.EmptyDirVolumeSource(size_limit=quantity(f"{shape.resources.scratch_gib}Gi"))
    volumes = [k8s.Volume(name=_SHARED, persistent_volume_claim=claim)]
    if shape.resources.shm_mib:
        size = quantity(f"{shape.resources.shm_mib}Mi")
        memory = k8s.EmptyDirVolumeSource(medium="Memory", size_limit=size)
        volumes.append(k8s.Volume(name=_MEMORY, empty_dir=memory))
    volumes.append(k8s.Volume(name=_SCRATCH, empty_dir=scratch))
    for secret in shape.secrets:
        # A pod waits for a Secret that is not there, instead of failing later without a token.
        items = [k8s.KeyToPath(key=secret.key, path=secret.key)]
        source = k8s.SecretVolumeSource(secret_name=secret.secret, items=items, optional=False)
        volumes.append(k8s.Volume(name=secret.key, secret=source))
    return [*volumes, *brought_volumes(shape.platform)]
