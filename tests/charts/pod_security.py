"""The Pod Security Standards, as the API server's admission of Kubernetes 1.35 judges a pod spec.

Controls in the order of the Kubernetes documentation, "Pod Security Standards". Windows pods, user
namespaces and the old AppArmor annotations are outside what this project emits.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

Spec = Mapping[str, Any]

_CAPABILITIES = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_SELINUX_TYPES = frozenset(
    ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
)
_PROFILES = frozenset(("RuntimeDefault", "Localhost"))
_SYSCTLS = frozenset(
    {"kernel.shm_rmid_forced"}
    | {
        f"net.ipv4.{name}"
        for name in (
            "ip_local_port_range",
            "ip_local_reserved_ports",
            "ip_unprivileged_port_start",
            "ping_group_range",
            "tcp_fin_timeout",
            "tcp_keepalive_intvl",
            "tcp_keepalive_probes",
            "tcp_keepalive_time",
            "tcp_rmem",
            "tcp_syncookies",
            "tcp_wmem",
        )
    }
)
_VOLUMES = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
_HOOKS = (
    ("livenessProbe",),
    ("readinessProbe",),
    ("startupProbe",),
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
)


def violations(pod_spec: Spec, level: Literal["baseline", "restricted"]) -> list[str]:
    """Return what a namespace that enforces the level would refuse in the pod, one line each."""
    found = list(_baseline(pod_spec))
    if level == "restricted":
        found += _restricted(pod_spec)
    return found


def _baseline(spec: Spec) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"{field} is true"
    for volume in spec.get("volumes") or ():
        if "hostPath" in volume:
            yield f"volumes[{volume['name']}] is a hostPath"
    context = _context(spec)
    yield from _shared_fields("pod", context)
    for sysctl in context.get("sysctls") or ():
        if sysctl["name"] not in _SYSCTLS:
            yield f"pod sets sysctl {sysctl['name']}"
    for name, container in _containers(spec):
        yield from _shared_fields(name, _context(container))
        yield from _baseline_container(name, container)


def _baseline_container(name: str, container: Spec) -> Iterator[str]:
    context = _context(container)
    if context.get("privileged"):
        yield f"{name} is privileged"
    if context.get("procMount", "Default") != "Default":
        yield f"{name} sets procMount {context['procMount']}"
    for capability in _capabilities(container, "add"):
        if capability not in _CAPABILITIES:
            yield f"{name} adds capability {capability}"
    for port in container.get("ports") or ():
        if port.get("hostPort"):
            yield f"{name} takes host port {port['hostPort']}"
    yield from _hooks(name, container)


def _hooks(name: str, container: Spec) -> Iterator[str]:
    for path in _HOOKS:
        hook = container
        for part in path:
            hook = hook.get(part) or {}
        for action in ("httpGet", "tcpSocket"):
            if (hook.get(action) or {}).get("host"):
                yield f"{name} names a host in {'.'.join(path)}.{action}"


def _shared_fields(owner: str, context: Spec) -> Iterator[str]:
    """Judge the fields that a pod and a container both have."""
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield f"{owner} is a Windows host process"
    selinux = context.get("seLinuxOptions") or {}
    if selinux.get("type", "") not in _SELINUX_TYPES:
        yield f"{owner} sets SELinux type {selinux['type']}"
    if selinux.get("user") or selinux.get("role"):
        yield f"{owner} sets an SELinux user or role"
    for field in ("seccompProfile", "appArmorProfile"):
        profile = context.get(field)
        if profile is not None and profile.get("type") not in _PROFILES:
            yield f"{owner} sets {field} {profile.get('type')}"


def _restricted(spec: Spec) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        # A volume that names no type is an emptyDir.
        if set(volume) - {"name"} - _VOLUMES:
            yield f"volumes[{volume['name']}] is of a forbidden type"
    pod = _context(spec)
    if pod.get("runAsNonRoot") is False:
        yield "pod sets runAsNonRoot false"
    if pod.get("runAsUser") == 0:
        yield "pod runs as user 0"
    for name, container in _containers(spec):
        yield from _restricted_container(name, container, pod)


def _restricted_container(name: str, container: Spec, pod: Spec) -> Iterator[str]:
    context = _context(container)
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{name} does not forbid privilege escalation"
    if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"{name} does not set runAsNonRoot"
    if context.get("runAsUser") == 0:
        yield f"{name} runs as user 0"
    if not context.get("seccompProfile", pod.get("seccompProfile")):
        yield f"{name} has no seccomp profile"
    if "ALL" not in _capabilities(container, "drop"):
        yield f"{name} does not drop ALL capabilities"
    for capability in _capabilities(container, "add"):
        # Outside the baseline list it is reported once, there.
        if capability in _CAPABILITIES - {"NET_BIND_SERVICE"}:
            yield f"{name} adds capability {capability}"


def _containers(spec: Spec) -> Iterator[tuple[str, Spec]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            yield f"{field}[{container['name']}]", container


def _context(owner: Spec) -> Spec:
    return owner.get("securityContext") or {}


def _capabilities(container: Spec, change: Literal["add", "drop"]) -> list[str]:
    return (_context(container).get("capabilities") or {}).get(change) or []
