"""The keys that Kubernetes knows in a pod, a container and the jobs that make pods.

Kubernetes API reference 1.35, `core/v1` PodSpec, Container, Volume and `batch/v1` JobSpec;
kubeflow/trainer v1.9.4, `kubeflow.org/v1` PyTorchJobSpec, ReplicaSpec and RunPolicy; read 2026-11.
"""


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


POD = _keys(
    "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy"
    " enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers"
    " hostname hostnameOverride imagePullSecrets initContainers nodeName nodeSelector os overhead"
    " preemptionPolicy priority priorityClassName readinessGates resourceClaims resources"
    " restartPolicy runtimeClassName schedulerName schedulingGates securityContext serviceAccount"
    " serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain"
    " terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes workloadRef"
)
CONTAINER = _keys(
    "args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports"
    " readinessProbe resizePolicy resources restartPolicy restartPolicyRules securityContext"
    " startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty"
    " volumeDevices volumeMounts workingDir"
)
VARIABLE = _keys("name value valueFrom")
VALUE_FROM = _keys("configMapKeyRef fieldRef fileKeyRef resourceFieldRef secretKeyRef")
RESOURCES = _keys("claims limits requests")
MOUNT = _keys("mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr")
CONTAINER_SECURITY = _keys(
    "allowPrivilegeEscalation appArmorProfile capabilities privileged procMount"
    " readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser seLinuxOptions seccompProfile"
    " windowsOptions"
)
POD_SECURITY = _keys(
    "appArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser"
    " seLinuxChangePolicy seLinuxOptions seccompProfile supplementalGroups"
    " supplementalGroupsPolicy sysctls windowsOptions"
)
VOLUME = _keys(
    "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI emptyDir"
    " ephemeral fc flexVolume flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi name"
    " nfs persistentVolumeClaim photonPersistentDisk portworxVolume projected quobyte rbd scaleIO"
    " secret storageos vsphereVolume"
)
EMPTY_DIR = _keys("medium sizeLimit")
CLAIM_SOURCE = _keys("claimName readOnly")
TOLERATION = _keys("effect key operator tolerationSeconds value")
PORT = _keys("containerPort hostIP hostPort name protocol")

JOB = _keys(
    "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy"
    " manualSelector maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy selector"
    " successPolicy suspend template ttlSecondsAfterFinished"
)
PYTORCH_JOB = _keys("elasticPolicy nprocPerNode pytorchReplicaSpecs runPolicy")
RUN_POLICY = _keys(
    "activeDeadlineSeconds backoffLimit cleanPodPolicy managedBy schedulingPolicy suspend"
    " ttlSecondsAfterFinished"
)
REPLICA = _keys("replicas restartPolicy template")
ELASTIC_POLICY = _keys(
    "maxReplicas maxRestarts metrics minReplicas nProcPerNode rdzvBackend rdzvConf rdzvHost rdzvId"
    " rdzvPort standalone"
)
