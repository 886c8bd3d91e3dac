"""What Kubernetes demands of values in code alone, which its schemas leave open."""

from typing import Any

# A shape of megatron_eks/rules/shapes, which has no narrower type.
Json = Any

_OPERATORS = {"=": ["DoesNotExist", "Exists", "In", "NotIn"]}
_MODES = [{"=": ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]}]
_MODE_OF_FILES = "whole 0 511"
_PORT = "whole 1 65535"
# pkg/apis/core/validation, apps/validation and batch/validation say this in code alone.
CHECKED: dict[tuple[str, str], Json] = {
    # Needed, and of the kind that the schema says; others without a spec may be patches.
    ("v1 PersistentVolume", "spec!"): None,
    ("v1 PersistentVolumeClaim", "spec!"): None,
    ("PodTemplateSpec", "spec!"): None,
    ("PersistentVolumeSpec", "capacity!"): {"storage!": "quantity"},
    ("PersistentVolumeClaimSpec", "resources!"): {
        "requests!": {"storage!": "quantity"},
        "limits": {"*": "quantity"},
    },
    ("RoleRef", "apiGroup"): {"=": ["", "rbac.authorization.k8s.io"]},
    ("RoleRef", "kind!"): {"=": ["ClusterRole", "Role"]},
    ("Subject", "kind!"): {"=": ["Group", "ServiceAccount", "User"]},
    ("PodFailurePolicyRule", "action!"): {"=": ["Count", "FailIndex", "FailJob", "Ignore"]},
    ("ScopedResourceSelectorRequirement", "operator!"): {
        "=": ["DoesNotExist", "Exists", "In", "NotIn"]
    },
    ("ScopedResourceSelectorRequirement", "scopeName!"): {
        "=": [
            *("BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating"),
            *("PriorityClass", "Terminating", "VolumeAttributesClass"),
        ]
    },
    ("CSIDriverSpec", "fsGroupPolicy"): {"=": ["File", "None", "ReadWriteOnceWithFSType"]},
    ("ConfigMapVolumeSource", "defaultMode"): _MODE_OF_FILES,
    ("Container", "imagePullPolicy"): {"=": ["Always", "IfNotPresent", "Never"]},
    ("ContainerPort", "containerPort!"): _PORT,
    ("ContainerPort", "protocol"): {"=": ["SCTP", "TCP", "UDP"]},
    ("CronJobSpec", "concurrencyPolicy"): {"=": ["Allow", "Forbid", "Replace"]},
    ("CronJobSpec", "failedJobsHistoryLimit"): "whole 0 -",
    ("CronJobSpec", "successfulJobsHistoryLimit"): "whole 0 -",
    ("DaemonSetUpdateStrategy", "type"): {"=": ["OnDelete", "RollingUpdate"]},
    ("DeploymentSpec", "replicas"): "whole 0 -",
    ("DeploymentStrategy", "type"): {"=": ["Recreate", "RollingUpdate"]},
    ("EmptyDirVolumeSource", "medium"): {
        "=": ["", "HugePages", "HugePages-1Gi", "HugePages-2Mi", "Memory"]
    },
    ("HTTPIngressPath", "pathType!"): {"=": ["Exact", "ImplementationSpecific", "Prefix"]},
    ("HostPathVolumeSource", "type"): {
        "=": [
            *("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File"),
            *("FileOrCreate", "Socket"),
        ]
    },
    ("JobSpec", "activeDeadlineSeconds"): "whole 0 -",
    ("JobSpec", "backoffLimit"): "whole 0 -",
    ("JobSpec", "completionMode"): {"=": ["Indexed", "NonIndexed"]},
    ("JobSpec", "completions"): "whole 0 -",
    ("JobSpec", "parallelism"): "whole 0 -",
    ("JobSpec", "ttlSecondsAfterFinished"): "whole 0 -",
    ("KeyToPath", "mode"): _MODE_OF_FILES,
    ("LabelSelectorRequirement", "operator!"): _OPERATORS,
    ("MutatingWebhook", "failurePolicy"): {"=": ["Fail", "Ignore"]},
    ("MutatingWebhook", "matchPolicy"): {"=": ["Equivalent", "Exact"]},
    ("MutatingWebhook", "reinvocationPolicy"): {"=": ["IfNeeded", "Never"]},
    ("NetworkPolicyPort", "protocol"): {"=": ["SCTP", "TCP", "UDP"]},
    ("NetworkPolicySpec", "policyTypes"): [{"=": ["Egress", "Ingress"]}],
    ("NodeSelectorRequirement", "operator!"): {"=": [*_OPERATORS["="], "Gt", "Lt"]},
    ("PersistentVolumeClaimSpec", "accessModes!"): _MODES,
    ("PersistentVolumeClaimSpec", "volumeMode"): {"=": ["Block", "Filesystem"]},
    ("PersistentVolumeSpec", "accessModes!"): _MODES,
    ("PersistentVolumeSpec", "persistentVolumeReclaimPolicy"): {
        "=": ["Delete", "Recycle", "Retain"]
    },
    ("PersistentVolumeSpec", "volumeMode"): {"=": ["Block", "Filesystem"]},
    ("PodSpec", "dnsPolicy"): {"=": ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]},
    ("PodSpec", "preemptionPolicy"): {"=": ["Never", "PreemptLowerPriority"]},
    ("PodSpec", "restartPolicy"): {"=": ["Always", "Never", "OnFailure"]},
    ("PodSpec", "terminationGracePeriodSeconds"): "whole 0 -",
    ("Probe", "failureThreshold"): "whole 1 -",
    ("Probe", "initialDelaySeconds"): "whole 0 -",
    ("Probe", "periodSeconds"): "whole 1 -",
    ("Probe", "successThreshold"): "whole 1 -",
    ("Probe", "timeoutSeconds"): "whole 1 -",
    ("ProjectedVolumeSource", "defaultMode"): _MODE_OF_FILES,
    ("RuleWithOperations", "operations"): [{"=": ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]}],
    ("RuleWithOperations", "scope"): {"=": ["*", "Cluster", "Namespaced"]},
    ("SeccompProfile", "type!"): {"=": ["Localhost", "RuntimeDefault", "Unconfined"]},
    ("SecretVolumeSource", "defaultMode"): _MODE_OF_FILES,
    ("ServicePort", "port!"): _PORT,
    ("ServicePort", "protocol"): {"=": ["SCTP", "TCP", "UDP"]},
    ("ServiceSpec", "type"): {"=": ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]},
    ("StatefulSetSpec", "podManagementPolicy"): {"=": ["OrderedReady", "Parallel"]},
    ("StatefulSetSpec", "replicas"): "whole 0 -",
    ("StatefulSetUpdateStrategy", "type"): {"=": ["OnDelete", "RollingUpdate"]},
    ("TopologySpreadConstraint", "maxSkew!"): "whole 1 -",
    ("TopologySpreadConstraint", "whenUnsatisfiable!"): {"=": ["DoNotSchedule", "ScheduleAnyway"]},
    ("ValidatingWebhook", "failurePolicy"): {"=": ["Fail", "Ignore"]},
    ("ValidatingWebhook", "matchPolicy"): {"=": ["Equivalent", "Exact"]},
    ("VolumeMount", "mountPropagation"): {"=": ["Bidirectional", "HostToContainer", "None"]},
    ("WeightedPodAffinityTerm", "weight!"): "whole 1 100",
    ("AppArmorProfile", "type!"): {"=": ["Localhost", "RuntimeDefault", "Unconfined"]},
    ("CSIDriverSpec", "volumeLifecycleModes"): [{"=": ["Ephemeral", "Persistent"]}],
    ("Container", "terminationMessagePolicy"): {"=": ["FallbackToLogsOnError", "File"]},
    ("ContainerResizePolicy", "restartPolicy!"): {"=": ["NotRequired", "RestartContainer"]},
    ("HTTPGetAction", "scheme"): {"=": ["HTTP", "HTTPS"]},
    ("JobSpec", "podReplacementPolicy"): {"=": ["Failed", "TerminatingOrFailed"]},
    ("PodDisruptionBudgetSpec", "unhealthyPodEvictionPolicy"): {
        "=": ["AlwaysAllow", "IfHealthyBudget"]
    },
    ("PodFailurePolicyOnExitCodesRequirement", "operator!"): {"=": ["In", "NotIn"]},
    ("PodFailurePolicyOnPodConditionsPattern", "status"): {"=": ["False", "True", "Unknown"]},
    ("PodOS", "name!"): {"=": ["linux", "windows"]},
    ("PodSecurityContext", "fsGroupChangePolicy"): {"=": ["Always", "OnRootMismatch"]},
    ("PodSecurityContext", "supplementalGroupsPolicy"): {"=": ["Merge", "Strict"]},
    ("scheduling.k8s.io/v1 PriorityClass", "preemptionPolicy"): {
        "=": ["Never", "PreemptLowerPriority"]
    },
    ("ResourceQuotaSpec", "scopes"): [
        {
            "=": [
                "BestEffort",
                "CrossNamespacePodAffinity",
                "NotBestEffort",
                "NotTerminating",
                "PriorityClass",
                "Terminating",
                "VolumeAttributesClass",
            ]
        }
    ],
    ("SecurityContext", "procMount"): {"=": ["Default", "Unmasked"]},
    ("ServiceSpec", "externalTrafficPolicy"): {"=": ["Cluster", "Local"]},
    ("ServiceSpec", "internalTrafficPolicy"): {"=": ["Cluster", "Local"]},
    ("ServiceSpec", "ipFamilies"): [{"=": ["IPv4", "IPv6"]}],
    ("ServiceSpec", "ipFamilyPolicy"): {
        "=": ["PreferDualStack", "RequireDualStack", "SingleStack"]
    },
    ("ServiceSpec", "sessionAffinity"): {"=": ["ClientIP", "None"]},
    ("StatefulSetPersistentVolumeClaimRetentionPolicy", "whenDeleted"): {"=": ["Delete", "Retain"]},
    ("StatefulSetPersistentVolumeClaimRetentionPolicy", "whenScaled"): {"=": ["Delete", "Retain"]},
    ("storage.k8s.io/v1 StorageClass", "reclaimPolicy"): {"=": ["Delete", "Recycle", "Retain"]},
    ("storage.k8s.io/v1 StorageClass", "volumeBindingMode"): {
        "=": ["Immediate", "WaitForFirstConsumer"]
    },
    ("TopologySpreadConstraint", "nodeAffinityPolicy"): {"=": ["Honor", "Ignore"]},
    ("TopologySpreadConstraint", "nodeTaintsPolicy"): {"=": ["Honor", "Ignore"]},
    ("VolumeMount", "recursiveReadOnly"): {"=": ["Disabled", "Enabled", "IfPossible"]},
}
