"""The shared file system as claims, and the Job that prepares its directories."""

import hashlib
import json
from collections.abc import Mapping

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from charts.pods import quantity, unprivileged_container
from megatron_eks.catalog import pins
from megatron_eks.config.outputs import PREVIEW_ANNOTATION, Efs, Lustre, Outputs
from megatron_eks.plan.cluster import ClusterPlan

# What EFS shows is as large as it gets; Kubernetes wants a number.
_EFS_CAPACITY = "1Ti"
_EFS_DRIVER = "efs.csi.aws.com"
_DRIVER = "fsx.csi.aws.com"
_VOLUME = "shared"
_SET_UP = "shared-directories"

# Busybox sh: owner, mode, then the directories. Each command repeats without harm.
_SCRIPT = 'owner=$1 mode=$2; shift 2; mkdir -p "$@"; chown "$owner" "$@"; chmod "$mode" "$@"'
_MODE = "0770"


class Storage(cdk8s.Chart):
    """A volume and a claim for the jobs, the same for the chores, and the set-up Job."""

    def __init__(
        self, scope: Construct, chart_id: str, *, plan: ClusterPlan, outputs: Outputs
    ) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        self._plan = plan
        for planned, lustre in zip(plan.storage.file_systems, outputs.file_systems, strict=True):
            self._lustre(planned.claim, lustre)
        if plan.platform.efs_claim is not None:
            self._efs(plan.platform.efs_claim, outputs.efs)

    def _lustre(self, claim: str, lustre: Lustre) -> None:
        platform = self._plan.platform
        # The kubelet tells volumes apart by driver and handle alone; a second volume on the same
        # file system needs another handle, and the driver mounts by DNS name whatever it is
        # (kubernetes-sigs/aws-fsx-csi-driver v1.9.0, pkg/driver/node.go).
        chores = platform.system_namespace
        for namespace, handle in (
            (platform.namespace, lustre.id),
            (chores, f"{lustre.id}::{chores}"),
        ):
            csi = k8s.CsiPersistentVolumeSource(
                driver=_DRIVER,
                volume_handle=handle,
                volume_attributes={"dnsname": lustre.dns_name, "mountname": lustre.mount_name},
            )
            # Without flock, file locks hold within one node only.
            capacity = f"{platform.capacity_gib}Gi"
            self._volume(namespace, claim, csi, "flock", capacity, preview=lustre.preview)
        self._set_up(claim, lustre)

    def _efs(self, claim: str, efs: Efs) -> None:
        # Encrypted on the way, which is the driver's default and here said.
        handle = f"{efs.id}::{efs.access_point}"
        csi = k8s.CsiPersistentVolumeSource(driver=_EFS_DRIVER, volume_handle=handle)
        namespace = self._plan.platform.namespace
        self._volume(namespace, claim, csi, "tls", _EFS_CAPACITY, preview=efs.preview)

    def _volume(
        self,
        namespace: str,
        claim: str,
        csi: k8s.CsiPersistentVolumeSource,
        option: str,
        size: str,
        *,
        preview: bool,
    ) -> None:
        name = f"{self._plan.name}-{namespace}-{claim}"
        capacity: Mapping[str, k8s.Quantity] = {"storage": quantity(size)}
        k8s.KubePersistentVolume(
            self,
            f"{namespace}-{claim}-volume",
            metadata=k8s.ObjectMeta(
                name=name, annotations={PREVIEW_ANNOTATION: "true"} if preview else None
            ),
            spec=k8s.PersistentVolumeSpec(
                capacity=capacity,
                volume_mode="Filesystem",
                access_modes=["ReadWriteMany"],
                persistent_volume_reclaim_policy="Retain",
                storage_class_name="",
                mount_options=[option],
                # No other claim can take the volume before its own is there.
                claim_ref=k8s.ObjectReference(
                    api_version="v1",
                    kind="PersistentVolumeClaim",
                    name=claim,
                    namespace=namespace,
                ),
                csi=csi,
            ),
        )
        k8s.KubePersistentVolumeClaim(
            self,
            f"{namespace}-{claim}",
            metadata=k8s.ObjectMeta(name=claim, namespace=namespace),
            spec=k8s.PersistentVolumeClaimSpec(
                access_modes=["ReadWriteMany"],
                # Empty, not absent: a default class would provision another file system.
                storage_class_name="",
                volume_name=name,
                resources=k8s.ResourceRequirements(requests=capacity),
            ),
        )

    def _set_up(self, claim: str, lustre: Lustre) -> None:
        """Make the directories of the pods' user: the root of a new file system is root's.

        The template of a Job cannot change, so the name carries a hash of it, and of the file
        system: a new one needs the directories too. There is no time to live, because a Job that
        is gone would run again with every `kubectl apply`.
        """
        spec = _set_up_spec(self._plan, claim)
        content = json.dumps([k8s.KubeJob.manifest(spec=spec), lustre.id], sort_keys=True)
        name = f"{_SET_UP}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
        namespace = self._plan.platform.system_namespace
        k8s.KubeJob(
            self,
            f"{_SET_UP}-{claim}",
            metadata=k8s.ObjectMeta(name=name, namespace=namespace, labels={"app": _SET_UP}),
            spec=spec,
        )


def _set_up_spec(plan: ClusterPlan, claim_name: str) -> k8s.JobSpec:
    platform = plan.platform
    owner = f"{platform.pod_uid}:{platform.pod_uid}"
    container = k8s.Container(
        name=_SET_UP,
        image=platform.egress.image(pins.BUSYBOX_IMAGE),
        image_pull_policy="IfNotPresent",
        command=["sh", "-euc", _SCRIPT, _SET_UP],
        args=[owner, _MODE, *platform.shared_directories],
        resources=k8s.ResourceRequirements(
            requests={"cpu": quantity("50m"), "memory": quantity("32Mi")},
            limits={"memory": quantity("64Mi")},
        ),
        # Giving files away takes CHOWN; on a second run the directories are another user's.
        security_context=unprivileged_container("CHOWN", "DAC_OVERRIDE", "FOWNER"),
        volume_mounts=[k8s.VolumeMount(name=_VOLUME, mount_path=platform.mount_path)],
    )
    claim = k8s.PersistentVolumeClaimVolumeSource(claim_name=claim_name)
    pod = k8s.PodSpec(
        # No toleration: it runs on the system nodes, before there is a GPU node.
        containers=[container],
        volumes=[k8s.Volume(name=_VOLUME, persistent_volume_claim=claim)],
        security_context=k8s.PodSecurityContext(
            run_as_user=0, seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault")
        ),
        restart_policy="Never",
        automount_service_account_token=False,
        enable_service_links=False,
    )
    return k8s.JobSpec(
        backoff_limit=6,
        template=k8s.PodTemplateSpec(
            metadata=k8s.ObjectMeta(labels={"app": _SET_UP}),
            spec=pod,
        ),
    )
