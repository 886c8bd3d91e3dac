"""Rules over the values of fields that the API server checks only when it is too late."""

import re
from collections.abc import Iterator
from fractions import Fraction

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.objects.field_types import (
    ANY,
    Field,
    formed,
    one_of,
    whole,
    wrong_values,
)
from megatron_eks.rules.values import is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_PORT = whole(1, 65535)


def _port_or_name(value: Json) -> tuple[str, str] | None:
    """Take a number, or a name; Kubernetes, apimachinery, IsValidPortName: one has a letter."""
    if isinstance(value, str) and value.isdecimal():
        found = f"{shown(value)} is taken for a port's name, which needs a letter"
        return f"{found}: the API server refuses it", f"write {value}, without quotes"
    return None


_PROTOCOL = one_of("TCP", "UDP", "SCTP")
_SECCOMP = one_of("Localhost", "RuntimeDefault", "Unconfined")
_ACCESS = one_of("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_LEVEL = one_of("privileged", "baseline", "restricted")
# kubernetes/pod-security-admission, api/helpers.go, ParseVersion: on a new namespace, an error.
_LEVEL_VERSION = formed(r"latest|v1\.[0-9]{1,4}", "write latest, or v and two numbers: v1.34")
_TERM = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")

# Kubernetes API reference v1.35, PodSpec.
_POD = (
    # Kubernetes, "Pod Priority and Preemption": no other class may have a name with this prefix.
    Field(
        ("priorityClassName",),
        formed(
            r"system-(cluster|node)-critical|(?!system-)(.|\n)*",
            "write system-node-critical or system-cluster-critical: no other name begins so",
        ),
    ),
    Field(("terminationGracePeriodSeconds",), whole(0)),
    Field(("dnsPolicy",), one_of("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")),
    *(
        Field(("securityContext", name), whole(0))
        for name in ("fsGroup", "runAsGroup", "runAsUser")
    ),
    Field(("securityContext", "fsGroupChangePolicy"), one_of("Always", "OnRootMismatch")),
    Field(("securityContext", "seccompProfile", "type"), _SECCOMP),
    Field(("tolerations", ANY, "tolerationSeconds"), whole(0)),
    Field(
        ("topologySpreadConstraints", ANY, "whenUnsatisfiable"),
        one_of("DoNotSchedule", "ScheduleAnyway"),
    ),
    Field(("topologySpreadConstraints", ANY, "maxSkew"), whole(1)),
    Field(
        (*_TERM, "nodeSelectorTerms", ANY, "matchExpressions", ANY, "operator"),
        one_of("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"),
    ),
    Field(
        ("affinity", ANY, "preferredDuringSchedulingIgnoredDuringExecution", ANY, "weight"),
        whole(1, 100),
    ),
)
_CONTAINER = (
    Field(("ports", ANY, "containerPort"), _PORT),
    Field(("ports", ANY, "hostPort"), _PORT),
    Field(("ports", ANY, "protocol"), _PROTOCOL),
    *(Field(("securityContext", name), whole(0)) for name in ("runAsGroup", "runAsUser")),
    Field(("securityContext", "seccompProfile", "type"), _SECCOMP),
)
_RUN_POLICY = (
    Field(("activeDeadlineSeconds",), whole(1)),
    Field(("backoffLimit",), whole(0)),
    Field(("ttlSecondsAfterFinished",), whole(0)),
)
# Kueue, API reference, v1beta1 and v1beta2, ClusterQueueSpec, FlavorFungibility and
# ClusterQueuePreemption.
_CLUSTER_QUEUE = (
    Field(("spec", "queueingStrategy"), one_of("BestEffortFIFO", "StrictFIFO")),
    Field(("spec", "stopPolicy"), one_of("Hold", "HoldAndDrain", "None")),
    Field(
        ("spec", "preemption", "withinClusterQueue"),
        one_of("LowerOrNewerEqualPriority", "LowerPriority", "Never"),
    ),
    Field(("spec", "preemption", "reclaimWithinCohort"), one_of("Any", "LowerPriority", "Never")),
    Field(("spec", "preemption", "borrowWithinCohort", "policy"), one_of("LowerPriority", "Never")),
    Field(
        ("spec", "flavorFungibility", "whenCanBorrow"),
        one_of("Borrow", "MayStopSearch", "TryNextFlavor"),
    ),
    Field(
        ("spec", "flavorFungibility", "whenCanPreempt"),
        one_of("MayStopSearch", "Preempt", "TryNextFlavor"),
    ),
    *(
        Field(("spec", "resourceGroups", ANY, "flavors", ANY, "resources", ANY, key), whole(0))
        for key in ("borrowingLimit", "lendingLimit", "nominalQuota")
    ),
)
_MODES = [
    ("metadata", "labels", f"pod-security.kubernetes.io/{each}")
    for each in ("enforce", "audit", "warn")
]
# Kubernetes API reference v1.35; kubeflow/trainer v1.9.4, the CRD of PyTorchJob.
_OBJECTS: dict[str, tuple[Field, ...]] = {
    "PersistentVolumeClaim": (Field(("spec", "accessModes", ANY), _ACCESS),),
    "PersistentVolume": (
        Field(("spec", "accessModes", ANY), _ACCESS),
        Field(("spec", "persistentVolumeReclaimPolicy"), one_of("Delete", "Recycle", "Retain")),
    ),
    "StorageClass": (
        Field(("reclaimPolicy",), one_of("Delete", "Retain")),
        Field(("volumeBindingMode",), one_of("Immediate", "WaitForFirstConsumer")),
    ),
    "LimitRange": (
        Field(
            ("spec", "limits", ANY, "type"),
            formed(
                r"Container|PersistentVolumeClaim|Pod|.+/.+",
                "write Container, Pod or PersistentVolumeClaim",
            ),
        ),
    ),
    "PodDisruptionBudget": tuple(
        Field(
            ("spec", key),
            formed(r"([0-9]{1,2}|100)%|[0-9]*", "write a number, or at most 100%"),
        )
        for key in ("maxUnavailable", "minAvailable")
    ),
    # Kueue, API reference, ResourceFlavorSpec and ResourceQuota.
    "ResourceFlavor": tuple(
        Field(("spec", key, ANY, "effect"), one_of("NoExecute", "NoSchedule", "PreferNoSchedule"))
        for key in ("nodeTaints", "tolerations")
    ),
    "PriorityClass": (Field(("preemptionPolicy",), one_of("Never", "PreemptLowerPriority")),),
    "NetworkPolicy": (
        Field(("spec", "policyTypes", ANY), one_of("Egress", "Ingress")),
        *(
            Field(("spec", side, ANY, "ports", ANY, key), check)
            for side in ("egress", "ingress")
            for key, check in (("port", _port_or_name), ("protocol", _PROTOCOL))
        ),
    ),
    "Namespace": (
        *(Field(path, _LEVEL) for path in _MODES),
        *(Field((*outer, f"{mode}-version"), _LEVEL_VERSION) for *outer, mode in _MODES),
    ),
    "Service": (
        Field(("spec", "type"), one_of("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")),
        Field(("spec", "ports", ANY, "port"), _PORT),
        Field(("spec", "ports", ANY, "targetPort"), _port_or_name),
        Field(("spec", "ports", ANY, "protocol"), _PROTOCOL),
        Field(
            ("spec", "clusterIP"),
            formed(r"None|(?![nN][oO][nN][eE]$)(.|\n)*", "write None, with a capital"),
        ),
    ),
    "Ingress": (
        Field(
            ("spec", "rules", ANY, "http", "paths", ANY, "pathType"),
            one_of("Exact", "ImplementationSpecific", "Prefix"),
        ),
    ),
    # aws/karpenter-provider-aws, pkg/apis/v1/ec2nodeclass.go, MetadataOptions.
    "EC2NodeClass": (Field(("spec", "metadataOptions", "httpPutResponseHopLimit"), whole(1, 64)),),
    "Job": (
        *(Field(("spec", *each.path), each.check) for each in _RUN_POLICY),
        Field(("spec", "completionMode"), one_of("Indexed", "NonIndexed")),
    ),
    "ClusterQueue": _CLUSTER_QUEUE,
    # kubeflow/mpi-operator, pkg/apis/kubeflow/validation: another word, and no pod is made.
    "MPIJob": (
        *(Field(("spec", "runPolicy", *each.path), each.check) for each in _RUN_POLICY),
        Field(("spec", "runPolicy", "cleanPodPolicy"), one_of("All", "None", "Running")),
    ),
    "PyTorchJob": (
        *(Field(("spec", "runPolicy", *each.path), each.check) for each in _RUN_POLICY),
        Field(("spec", "elasticPolicy", "rdzvBackend"), one_of("c10d", "etcd", "etcd-v2")),
        *(
            Field(("spec", "elasticPolicy", name), whole(1 if name != "maxRestarts" else 0))
            for name in ("maxReplicas", "maxRestarts", "minReplicas")
        ),
    ),
}

# capabilities(7), without CAP_.
_CAPABILITIES = frozenset(
    {
        *("ALL", "AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF"),
        *("CHECKPOINT_RESTORE", "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID"),
        *("IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN"),
        *("MAC_OVERRIDE", "MKNOD", "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW"),
        *("PERFMON", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYSLOG", "SYS_ADMIN", "SYS_BOOT"),
        *("SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO"),
        *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "WAKE_ALARM"),
    }
)
# distribution/reference: lower-case path, a tag of up to 128 signs, a digest of 64.
_IMAGE = re.compile(
    r"([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[\w][\w.-]{0,127})?"
    r"(@sha256:[0-9a-f]{64}|@sha512:[0-9a-f]{128})?"
)
_MOST_CORES, _LEAST_MEMORY = 2048, 2**20


def values(manifest: Manifest) -> Iterator[Finding]:
    """Refuse values that the API server refuses: other words, quoted numbers, one text for a list.

    Kubernetes API reference v1.35; kubeflow/trainer v1.9.4, the CRD of PyTorchJob. Pods that an
    operator makes are refused long after the job was accepted.
    """
    fields = _OBJECTS.get(manifest.kind, ())
    for path, found, remedy in wrong_values(dict(manifest.body), fields):
        yield manifest.find(Code.MANIFEST_VALUE, path, found, remedy)
    for pod in manifest.pods:
        for path, found, remedy in wrong_values(dict(pod.spec), _POD):
            yield Finding(Code.MANIFEST_VALUE, (*pod.path, *path), found, remedy)
        for container in pod.containers:
            for path, found, remedy in wrong_values(dict(container.body), _CONTAINER):
                yield Finding(Code.MANIFEST_VALUE, (*container.path, *path), found, remedy)


def host_ports(manifest: Manifest) -> Iterator[Finding]:
    """Refuse on the host network a port of the node that is not the container's.

    Kubernetes, pkg/apis/core/validation, checkHostPortConflicts and validateHostNetwork: "must
    match `containerPort` when `hostNetwork` is true".
    """
    for pod in manifest.pods:
        for container in pod.containers if pod.spec.get("hostNetwork") is True else ():
            for index, value in enumerate(items(container.body.get("ports")) or []):
                body = mapping(value) or {}
                outer, inner = number(body.get("hostPort")), number(body.get("containerPort"))
                if outer and inner and outer != inner:
                    found = f"hostPort {outer} of containerPort {inner} on the host network: "
                    found += "the API server refuses the pod"
                    path: Path = (*container.path, "ports", index, "hostPort")
                    remedy = f"write {inner}, or remove it"
                    yield Finding(Code.MANIFEST_VALUE, path, found, remedy)


def container_words(manifest: Manifest) -> Iterator[Finding]:
    """Refuse what the node refuses: images that are none, unknown capabilities, relative mounts.

    distribution/reference; capabilities(7), without CAP_ as in Kubernetes; OCI runtime
    specification, mounts.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            image = text(container.body.get("image"))
            plain = image and image == image.strip() and not is_placeholder(image)
            # Upper-case letters have a finding of their own.
            if plain and not _IMAGE.fullmatch((image or "").lower()):
                found = f"{shown(image)} is no name of an image: the pod does not start"
                remedy = "write REGISTRY/NAME:TAG in lower case, or ...@sha256:64 digits"
                yield _refused(container, ("image",), found, remedy)
            yield from _capabilities(container)
            for index, value in enumerate(items(container.body.get("volumeMounts")) or []):
                path = text((mapping(value) or {}).get("mountPath"))
                if path and not _is_absolute(path) and not is_placeholder(path):
                    found = f"{shown(path)} is not absolute: the container does not start"
                    places = ("volumeMounts", index, "mountPath")
                    yield _refused(container, places, found, f"write /{path}")


def _is_absolute(path: str) -> bool:
    """Tell a path from the root, on Linux or on Windows, where it may begin with a drive."""
    return path.startswith(("/", "\\")) or path[1:2] == ":"


def _capabilities(container: Container) -> Iterator[Finding]:
    context = mapping(container.body.get("securityContext")) or {}
    for key in ("add", "drop"):
        listed = items((mapping(context.get("capabilities")) or {}).get(key)) or []
        for index, value in enumerate(listed):
            name = text(value)
            if name and name.upper() not in _CAPABILITIES and not is_placeholder(name):
                found = f"Linux has no capability {shown(name)}, written like this"
                bare = name.upper().removeprefix("CAP_")
                fits = next((each for each in _CAPABILITIES if each.replace("_", "") == bare), bare)
                remedy = f"write {fits}" if fits in _CAPABILITIES else "see capabilities(7)"
                path = ("securityContext", "capabilities", key, index)
                yield _refused(container, path, found, remedy)


def _refused(container: Container, path: Path, found: str, remedy: str) -> Finding:
    return Finding(Code.REFUSED_IN_POD, (*container.path, *path), found, remedy)


def odd_amounts(manifest: Manifest) -> Iterator[Finding]:
    """Refuse amounts that slipped by a unit: thousands of cores, memory of a few bytes.

    Kubernetes, "Resource Management for Pods and Containers": `m` is a thousandth, also of a byte.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for kind in ("requests", "limits"):
                for name, value in container.amounts(kind).items():
                    size = quantity(value)
                    wrong = _odd(name, size) if size else None
                    if wrong:
                        path = (*container.path, "resources", kind, name)
                        found = f"{shown(value)} is {wrong[0]}"
                        yield Finding(Code.BAD_QUANTITY, path, found, wrong[1])
        for index, value in enumerate(items(pod.spec.get("volumes")) or []):
            empty = mapping((mapping(value) or {}).get("emptyDir")) or {}
            size = quantity(empty.get("sizeLimit"))
            if size and 0 < size < _LEAST_MEMORY:
                path = (*pod.path, "volumes", index, "emptyDir", "sizeLimit")
                found = f"{shown(empty.get('sizeLimit'))} is less than 1Mi"
                yield Finding(Code.BAD_QUANTITY, path, found, "write it like 64Gi")


def _odd(name: str, size: Fraction) -> tuple[str, str] | None:
    if name == "cpu" and size > _MOST_CORES:
        return "more cores than any node has", "write thousandths with m: 93000m"
    if name in {"memory", "ephemeral-storage"} and 0 < size < _LEAST_MEMORY:
        return "less than 1Mi", "write it like 64Gi; m is a thousandth of a byte"
    return None
