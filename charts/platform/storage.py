"""The shared file system as claims, and the Job that prepares its directories."""

import hashlib
from collections.abc import Mapping

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.charts.platform.shared_directories import set_up_job
from megatron_eks.charts.pods import quantity
from megatron_eks.config.outputs import PREVIEW_ANNOTATION, Efs, Lustre, Outputs
from megatron_eks.plan.cluster.cluster import ClusterPlan

# What EFS shows is as large as it gets; Kubernetes wants a number.
_EFS_CAPACITY = "1Ti"
_EFS_DRIVER = "efs.csi.aws.com"
_DRIVER = "fsx.csi.aws.com"


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
        platform, folder = self._plan.platform, self._plan.storage.subfolder
        # The kubelet tells volumes apart by driver and handle alone; a second volume on the same
        # file system needs another handle, and the driver mounts by DNS name whatever it is
        # (kubernetes-sigs/aws-fsx-csi-driver v1.9.0, pkg/driver/node.go).
        chores = platform.system_namespace
        # Of an existing file system jobs may have a folder alone. The driver writes
        # DNSNAME@tcp:/MOUNTNAME, and Lustre takes a path there (same file; FSx for Lustre User
        # Guide, "Mounting specific filesets"). The set-up Job makes it, so it sees the whole.
        # Another folder is another volume, because neither volume nor claim can change.
        mark = hashlib.sha256(folder.encode()).hexdigest()[:8]
        whole = (lustre.id, lustre.mount_name, claim)
        part = (f"{lustre.id}::{mark}", f"{lustre.mount_name}/{folder}", f"{claim}-{mark}")
        mounted = {platform.namespace: part if folder else whole}
        if platform.first:
            mounted[chores] = (f"{lustre.id}::{chores}", *whole[1:])
        for namespace, (handle, source, name) in mounted.items():
            csi = k8s.CsiPersistentVolumeSource(
                driver=_DRIVER,
                volume_handle=handle,
                volume_attributes={"dnsname": lustre.dns_name, "mountname": source},
            )
            # Without flock, file locks hold within one node only.
            capacity = f"{platform.capacity_gib}Gi"
            place = (namespace, claim, name)
            self._volume(place, csi, "flock", capacity, preview=lustre.preview)
        if platform.first:
            set_up_job(
                self,
                f"shared-directories-{claim}",
                plan=self._plan,
                claim=claim,
                file_system=lustre.id,
            )

    def _efs(self, claim: str, efs: Efs) -> None:
        # Encrypted on the way, which is the driver's default and here said.
        handle = f"{efs.id}::{efs.access_point}"
        csi = k8s.CsiPersistentVolumeSource(driver=_EFS_DRIVER, volume_handle=handle)
        namespace = self._plan.platform.namespace
        place = (namespace, claim, claim)
        self._volume(place, csi, "tls", _EFS_CAPACITY, preview=efs.preview)

    def _volume(
        self,
        place: tuple[str, str, str],
        csi: k8s.CsiPersistentVolumeSource,
        option: str,
        size: str,
        *,
        preview: bool,
    ) -> None:
        namespace, claim, volume = place
        name = f"{self._plan.name}-{namespace}-{volume}"
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
