"""Rules over what makes a job's pods fail or wait when they run."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import (
    EFA,
    GPU,
    HUGEPAGES,
    Manifest,
    Pod,
    asks_for_pages,
)

_SEVERAL = 2
_PAGES = "FI_EFA_USE_HUGE_PAGE"
_CHOWN = re.compile(r"\bchown\b(?!.*\|\|)", re.DOTALL)
# A relative path is a mistake of its own.
_SHARED_MEMORY = frozenset({"/dev/shm", "/dev/shm/", "dev/shm"})  # noqa: S108 -- inside a container
_SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        *(f"net.ipv4.{name}" for name in ("ip_local_port_range", "ip_local_reserved_ports")),
        *(f"net.ipv4.{name}" for name in ("ip_unprivileged_port_start", "ping_group_range")),
        *(f"net.ipv4.tcp_{name}" for name in ("fin_timeout", "keepalive_intvl", "rmem", "wmem")),
        *(f"net.ipv4.tcp_{name}" for name in ("keepalive_probes", "keepalive_time", "syncookies")),
    }
)
_NAMESPACED = ("kernel.msg", "kernel.sem", "kernel.shm", "fs.mqueue.", "net.")
_HOST_ROOTS = frozenset({"cluster-admin"})
_EVERYBODY = frozenset(
    {
        *("system:anonymous", "system:authenticated", "system:serviceaccounts"),
        "system:unauthenticated",
    }
)


def job_fields(manifest: Manifest) -> Iterator[Finding]:
    """Require of a Job what the API server demands, and an index where ranks count on one.

    Kubernetes API reference, JobSpec: restartPolicy Never or OnFailure; completions with Indexed.
    """
    if (manifest.group, manifest.kind) not in {("batch", "Job"), ("batch", "CronJob")}:
        return
    for pod in manifest.pods:
        policy = pod.spec.get("restartPolicy")
        if is_absent(policy) or policy == "Always":
            found = "restartPolicy Always, which a Job refuses; it is what a pod has without any"
            path = (*pod.path, "restartPolicy")
            yield Finding(Code.JOB_FIELDS, path, found, "use Never or OnFailure")
    if manifest.kind == "CronJob":
        return
    mode, completions = manifest.spec.get("completionMode"), manifest.spec.get("completions")
    if mode == "Indexed" and is_absent(completions):
        found = "Indexed without completions: the API server refuses the Job"
        yield manifest.find(
            Code.JOB_FIELDS, ("spec", "completions"), found, "write how many ranks there are"
        )
    parallel = number(manifest.spec.get("parallelism"))
    total = number(completions)
    together = mode == "Indexed" and any(pod.names(EFA) for pod in manifest.pods)
    if together and total is not None and parallel is not None and parallel < total:
        found = f"{parallel} of {total} ranks at a time, and they wait for each other"
        path = ("spec", "parallelism")
        yield manifest.find(Code.JOB_FIELDS, path, found, f"use {total}", Level.WARNING)


def shared_memory(manifest: Manifest) -> Iterator[Finding]:
    """Warn of several GPUs in a container with the 64 MiB of shared memory that it gets by default.

    NCCL User Guide, "Shared memory" in Docker; PyTorch's data loaders end with a bus error.
    """
    if not manifest.is_job:
        return
    for pod in manifest.pods:
        for container in pod.containers:
            gpus = container.amount(GPU)
            mounts = items(container.body.get("volumeMounts"))
            if container.is_init or gpus is None or gpus < _SEVERAL or mounts is None:
                continue
            paths = {text((mapping(each) or {}).get("mountPath")) for each in mounts}
            if pod.spec.get("hostIPC") is True or not paths.isdisjoint(_SHARED_MEMORY):
                continue
            if manifest.only_launches(pod):
                continue
            found = f"{gpus} GPUs and nothing at /dev/shm, which is 64 MiB then"
            remedy = "mount an emptyDir with medium Memory and a sizeLimit there"
            path = (*container.path, "volumeMounts")
            yield Finding(Code.SHARED_MEMORY, path, found, remedy, Level.WARNING)


def huge_pages(manifest: Manifest) -> Iterator[Finding]:
    """Warn of EFA without huge pages where others of the job, or its variables, ask for them.

    EKS User Guide, "Run machine learning training on Amazon EKS with EFA": nodes set 5128 of 2 MiB
    aside, and a pod gets none that it does not ask for; libfabric (fi_efa(7), FI_EFA_USE_HUGE_PAGE)
    then takes ordinary memory, as in AWS's own samples of training.
    """
    with_efa = [
        each
        for pod in (manifest.pods if manifest.is_job else ())
        for each in pod.containers
        if each.requested(EFA) > 0
    ]
    others = any(asks_for_pages(each) for each in with_efa)
    for container in with_efa:
        amounts = {**container.amounts("limits"), **container.amounts("requests")}
        limits: Path = (*container.path, "resources", "limits")
        if container.requested(f"{HUGEPAGES}1Gi") and f"{HUGEPAGES}2Mi" not in amounts:
            found = "huge pages of 1Gi, and nodes with EFA set aside those of 2Mi: the pod "
            found += "stays Pending where no node was given others"
            remedy, path = f"write {HUGEPAGES}2Mi: 5120Mi", (*limits, f"{HUGEPAGES}1Gi")
            yield Finding(Code.HUGE_PAGES, path, found, remedy, Level.WARNING)
        told = any(each.name == _PAGES and each.value == "1" for each in container.variables)
        # One that a template fills in may well be none.
        if not container.is_init and not asks_for_pages(container) and (others or told):
            who = "others of this job ask" if others else f"{_PAGES} asks"
            found = f"EFA and no huge pages, for which {who}"
            remedy, path = f"add {HUGEPAGES}2Mi: 5120Mi", (*limits, f"{HUGEPAGES}2Mi")
            yield Finding(Code.HUGE_PAGES, path, found, remedy, Level.WARNING)


def sysctls(manifest: Manifest) -> Iterator[Finding]:
    """Refuse kernel settings of the whole node, and warn of those that the kubelet forbids.

    Kubernetes, "Using sysctls in a Kubernetes Cluster", safe and unsafe sysctls: the pod ends with
    SysctlForbidden.
    """
    for pod in manifest.pods:
        context = mapping(pod.spec.get("securityContext")) or {}
        for index, value in enumerate(items(context.get("sysctls")) or []):
            name = (text((mapping(value) or {}).get("name")) or "").replace("/", ".")
            if not name or name in _SAFE_SYSCTLS or is_placeholder(name):
                continue
            of_pod = name.startswith(_NAMESPACED)
            path = (*pod.path, "securityContext", "sysctls", index)
            if of_pod:
                found = f"{shown(name)}, which the kubelet forbids unless it is told otherwise"
                remedy = "remove it, or list it in allowedUnsafeSysctls of the nodes' kubelet"
                level = Level.WARNING
            else:
                found = f"{shown(name)} is of the whole node, and no pod may set it"
                remedy, level = "set it in the node's user data", Level.ERROR
            yield Finding(Code.REFUSED_IN_POD, path, found, remedy, level)


def needless_privilege(manifest: Manifest) -> Iterator[Finding]:
    """Warn of privileges that training with EFA does not need.

    aws-efa-k8s-device-plugin: it passes the devices into an ordinary pod, on the pod network. The
    host network takes one job's ports from the next, and no network policy holds there.
    """
    if not manifest.is_job:
        return
    for pod in manifest.pods:
        if not pod.names(GPU):
            continue
        if pod.host_network:
            found = "the host network, which EFA does not need"
            yield _needless((*pod.path, "hostNetwork"), found)
        for container in pod.containers:
            context = mapping(container.body.get("securityContext")) or {}
            if context.get("privileged") is True:
                found = "privileged, which neither GPUs nor EFA need"
                yield _needless((*container.path, "securityContext", "privileged"), found)


def _needless(path: tuple[str | int, ...], found: str) -> Finding:
    return Finding(Code.NEEDLESS_PRIVILEGE, path, found, "remove it", Level.WARNING)


def owners_by_others(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an init container that gives files away, and is not root.

    Linux, chown(2): only a privileged process may change the owner of a file; a file system made by
    FSx for Lustre belongs to root.
    """
    for pod in manifest.pods:
        for container in pod.containers if manifest.is_job else ():
            holders = (container.body, pod.spec)
            contexts = [mapping(each.get("securityContext")) or {} for each in holders]
            users = [number(each["runAsUser"]) for each in contexts if "runAsUser" in each]
            if container.is_init and _CHOWN.search(container.line) and users and users[0]:
                found = f"chown as user {users[0]}, and only root may: the pod never starts"
                remedy = "write runAsUser: 0 and runAsNonRoot: false in its securityContext"
                yield Finding(Code.FILE_OWNERS, container.path, found, remedy, Level.WARNING)


def file_owners(manifest: Manifest) -> Iterator[Finding]:
    """Warn of fsGroup on a job's claims without OnRootMismatch.

    aws-fsx-csi-driver, docs/troubleshooting.md: the kubelet changes the owner of every file of the
    volume at each start, and the pod hangs in ContainerCreating.
    """
    if not manifest.is_job:
        return
    for pod in manifest.pods:
        context = mapping(pod.spec.get("securityContext")) or {}
        if is_absent(context.get("fsGroup")) or not _has_claims(pod):
            continue
        if context.get("fsGroupChangePolicy") != "OnRootMismatch":
            found = f"fsGroup {shown(context['fsGroup'])}: every start walks over all files"
            remedy = "add fsGroupChangePolicy: OnRootMismatch"
            path = (*pod.path, "securityContext", "fsGroup")
            yield Finding(Code.FILE_OWNERS, path, found, remedy, Level.WARNING)


def _has_claims(pod: Pod) -> bool:
    volumes = items(pod.spec.get("volumes")) or []
    return any("persistentVolumeClaim" in (mapping(each) or {}) for each in volumes)


def broad_rights(manifest: Manifest) -> Iterator[Finding]:
    """Warn of subjects that may do everything.

    CIS EKS Benchmark 4.1.1 and 4.1.3; EKS Best Practices, "Employ least privileged access".
    """
    if manifest.kind in {"ClusterRoleBinding", "RoleBinding"}:
        role = mapping(manifest.body.get("roleRef")) or {}
        subjects = [mapping(each) or {} for each in items(manifest.body.get("subjects")) or []]
        others = [each for each in subjects if not _is_of_the_system(each)]
        accounts = any(each.get("kind") == "ServiceAccount" for each in others)
        if text(role.get("name")) in _HOST_ROOTS and others:
            who = "a service account" if accounts else "a user or group"
            found = f"{who} with cluster-admin"
            remedy = "bind a role with the verbs that it needs"
            yield manifest.find(Code.BROAD_RIGHTS, ("roleRef",), found, remedy, Level.WARNING)
    if manifest.kind in {"ClusterRole", "Role"}:
        for index, value in enumerate(items(manifest.body.get("rules")) or []):
            rule = mapping(value) or {}
            # Everything of a named group may be what an administrator of that group is for.
            groups = items(rule.get("apiGroups")) or []
            everything = all("*" in (items(rule.get(key)) or []) for key in ("resources", "verbs"))
            if everything and ("*" in groups or "" in groups):
                found, path = "every verb on every resource", ("rules", index)
                found += "" if "*" in groups else " of the core group, secrets included"
                remedy = "list the verbs and resources"
                yield manifest.find(Code.BROAD_RIGHTS, path, found, remedy, Level.WARNING)


def _is_of_the_system(subject: "dict[str, Json]") -> bool:
    """Tell a user or group of Kubernetes itself; those that mean everybody are none."""
    name = text(subject.get("name")) or ""
    service = subject.get("kind") == "ServiceAccount"
    return not service and name.startswith("system:") and name not in _EVERYBODY
