"""The shared file system as claims, and the Job that prepares its directories."""

import hashlib
import json

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from charts.pods import quantity, unprivileged_container
from megatron_eks.catalog import pins
from megatron_eks.config.outputs import PREVIEW_ANNOTATION, Lustre
from megatron_eks.plan.cluster import ClusterPlan

_DRIVER = "fsx.csi.aws.com"
_VOLUME = "shared"
_SET_UP = "shared-directories"

# Busybox sh: owner, mode, then the directories. Each command repeats without harm.
_SCRIPT = 'owner=$1 mode=$2; shift 2; mkdir -p "$@"; chown "$owner" "$@"; chmod "$mode" "$@"'
_MODE = "0770"


class Storage(cdk8s.Chart):
    """A volume and a claim for the jobs, the same for the chores, and the set-up Job."""

    def __init__(
        self, scope: Construct, chart_id: str, *, plan: ClusterPlan, lustre: Lustre
    ) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        platform = plan.platform
        self._volume(plan, lustre, platform.namespace, handle=lustre.id)
        # The kubelet tells volumes apart by driver and handle alone; a second volume on the same
        # file system needs another handle, and the driver mounts by DNS name whatever it is
        # (kubernetes-sigs/aws-fsx-csi-driver v1.9.0, pkg/driver/node.go).
        chores = platform.system_namespace
        self._volume(plan, lustre, chores, handle=f"{lustre.id}::{chores}")
        self._set_up(plan, lustre)

    def _volume(self, plan: ClusterPlan, lustre: Lustre, namespace: str, *, handle: str) -> None:
        claim = plan.platform.claim
        name = f"{plan.name}-{namespace}-{claim}"
        capacity = {"storage": quantity(f"{plan.platform.capacity_gib}Gi")}
        k8s.KubePersistentVolume(
            self,
            f"{namespace}-volume",
            metadata=k8s.ObjectMeta(
                name=name, annotations={PREVIEW_ANNOTATION: "true"} if lustre.preview else None
            ),
            spec=k8s.PersistentVolumeSpec(
                capacity=capacity,
                volume_mode="Filesystem",
                access_modes=["ReadWriteMany"],
                persistent_volume_reclaim_policy="Retain",
                storage_class_name="",
                # Without flock, file locks hold within one node only.
                mount_options=["flock"],
                # No other claim can take the volume before its own is there.
                claim_ref=k8s.ObjectReference(
                    api_version="v1",
                    kind="PersistentVolumeClaim",
                    name=claim,
                    namespace=namespace,
                ),
                csi=k8s.CsiPersistentVolumeSource(
                    driver=_DRIVER,
                    volume_handle=handle,
                    volume_attributes={
                        "dnsname": lustre.dns_name,
                        "mountname": lustre.mount_name,
                    },
                ),
            ),
        )
        k8s.KubePersistentVolumeClaim(
            self,
            f"{namespace}-claim",
            metadata=k8s.ObjectMeta(name=claim, namespace=namespace),
            spec=k8s.PersistentVolumeClaimSpec(
                access_modes=["ReadWriteMany"],
                # Empty, not absent: a default class would provision another file system.
                storage_class_name="",
                volume_name=name,
                resources=k8s.ResourceRequirements(requests=capacity),
            ),
        )

    def _set_up(self, plan: ClusterPlan, lustre: Lustre) -> None:
        """Make the directories of the pods' user: the root of a new file system is root's.

        The template of a Job cannot change, so the name carries a hash of it, and of the file
        system: a new one needs the directories too. There is no time to live, because a Job that
        is gone would run again with every `kubectl apply`.
        """
        spec = _set_up_spec(plan)
        content = json.dumps([k8s.KubeJob.manifest(spec=spec), lustre.id], sort_keys=True)
        name = f"{_SET_UP}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
        namespace = plan.platform.system_namespace
        k8s.KubeJob(
            self,
            _SET_UP,
            metadata=k8s.ObjectMeta(name=name, namespace=namespace, labels={"app": _SET_UP}),
            spec=spec,
        )


def _set_up_spec(plan: ClusterPlan) -> k8s.JobSpec:
    platform = plan.platform
    owner = f"{platform.pod_uid}:{platform.pod_uid}"
    container = k8s.Container(
        name=_SET_UP,
        image=pins.BUSYBOX_IMAGE,
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
    claim = k8s.PersistentVolumeClaimVolumeSource(claim_name=platform.claim)
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
