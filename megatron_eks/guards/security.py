"""Guards of what a pod may do: Pod Security, users, and tokens of the API server."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.manifests import Manifests, Pod, manifest_guard
from megatron_eks.guards.pods import JOBS
from megatron_eks.guards.values import NO, YES, Row, Value, report, warn, written
from megatron_eks.guards.volumes import mounted

_LEVEL, _LEVELS = "pod-security.kubernetes.io", ("privileged", "baseline", "restricted")
_MODES = ("enforce", "audit", "warn")
_OF_THE_NODE = ("hostNetwork", "hostPID", "hostIPC")
_USER, _PROFILES = ("runAsNonRoot", "runAsUser", "runAsGroup"), ("RuntimeDefault", "Localhost")
# Kubernetes, "Pod Security Standards": what may be added, and the volumes that restricted takes.
_BASELINE = {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "SETUID"}
_BASELINE |= {"NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SYS_CHROOT"}
_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"}
_VOLUMES |= {"projected", "secret", "image", "name"}
_HARDENED: tuple[Row, ...] = (
    ("privileged", (NO, None), "the container sees every device of the node"),
    ("readOnlyRootFilesystem", (YES,), "an intruder can change the program for all that follows"),
    ("allowPrivilegeEscalation", (NO,), "a program with a set-user bit becomes root"),
    ("capabilities drop", (["ALL"],), "the container may do what it never needs"),
)


@manifest_guard
def pod_security(manifests: Manifests) -> Iterator[Finding]:
    """Give namespaces levels, and keep pods within ("Pod Security Standards" and "Admission")."""
    for each in manifests.of("Namespace"):
        labels = each["metadata"]["labels"]
        given, latest = labels[f"{_LEVEL}/enforce"].text, labels[f"{_LEVEL}/warn-version"].raw
        jobs = any(each.name == e.namespace for e in manifests.of("PyTorchJob", "ResourceQuota"))
        levels = _LEVELS[_LEVELS.index(given) if given in _LEVELS else 0 :]
        allowed = (_LEVELS[1 + jobs :], levels, levels)
        for mode, right in zip(_MODES, allowed, strict=True):
            why, code = "the namespace admits or reports other pods", Code.NAMESPACE_LEVEL
            yield from labels[f"{_LEVEL}/{mode}"].must_be(code, *right, why=why)
            version, why = labels[f"{_LEVEL}/{mode}-version"], "modes judge by different rules"
            yield from version.must_be(code, latest, why=why, level=Level.WARNING)
    for pod in manifests.pods:
        namespace = manifests.named("Namespace", pod.owner.namespace)
        given = namespace["metadata"]["labels"][f"{_LEVEL}/enforce"].text if namespace else ""
        # The file of one job alone: the project's namespace of jobs is restricted.
        alone = not namespace and pod.main["name"].text == "pytorch" and pod.owner.kind in JOBS
        enforced, level = ("restricted", Level.WARNING) if alone else (given, Level.ERROR)
        said = f"namespace {pod.owner.namespace} enforces {enforced}, and no pod is made"
        slips = _above(pod, strict=enforced == "restricted") if enforced in _LEVELS[1:] else []
        for place, remedy in slips:
            found = f"{place.name} is {written(place.raw)}: {said}"
            yield place.finding(Code.POD_ABOVE_NAMESPACE, found, remedy, level)


def _above(pod: Pod, *, strict: bool) -> Iterator[tuple[Value, str]]:
    sources = [item for volume in pod.spec["volumes"] for item in volume.items()]
    wrong = [e for key in _OF_THE_NODE if (e := pod.spec[key]).raw is True]
    wrong += [e for kind, e in sources if kind == "hostPath" or (strict and kind not in _VOLUMES)]
    for each in pod.containers:
        own, allowed = each["securityContext"], {"NET_BIND_SERVICE"} if strict else _BASELINE
        wrong += [e for e in own["capabilities"]["add"] if e.text not in allowed]
        wrong += [port["hostPort"] for port in each["ports"] if port["hostPort"].number]
        wrong += [own["privileged"]] if own["privileged"].raw is True else []
        profile, root, user = (pod.setting(each, key) for key in ("seccompProfile", *_USER[:2]))
        profile, drop = profile["type"], own["capabilities"]["drop"]
        if profile.text not in _PROFILES and (strict or profile):
            yield profile, "set it to 'RuntimeDefault'"
        if strict and own["allowPrivilegeEscalation"].raw is not False:
            yield own["allowPrivilegeEscalation"], "set it to False"
        if strict and "ALL" not in drop.texts:
            yield drop, "set it to [ALL]"
        if strict and (root.raw is not True or user.raw == 0):
            yield (user if user.raw == 0 else root), "use an ordinary user, and runAsNonRoot True"
    yield from ((each, "remove it") for each in wrong)


@manifest_guard
def users(manifests: Manifests) -> Iterator[Finding]:
    """Prove runAsNonRoot by a number, and give no more rights than needed ("Security Context")."""
    bindings = manifests.of("RoleBinding", "ClusterRoleBinding")
    bound = {subject["name"].text for each in bindings for subject in each["subjects"]}
    for pod in manifests.pods:
        kind, token = pod.owner.kind, pod.spec["automountServiceAccountToken"]
        for container in pod.containers:
            root, user, group = (pod.setting(container, key) for key in _USER)
            unproved = root.raw is True and not user.number
            found = f"runAsNonRoot and runAsUser {written(user.raw)}: the container does not start"
            yield from report(Code.REFUSED_IN_POD, (unproved, user, found, "set it to 10001"))
            found = "no runAsGroup: files belong to root's group, and other jobs cannot write them"
            lost = user.number and group.number is None
            yield from warn(Code.FILE_OWNERS, (lost, group, found, f"set it to {user.raw}"))
            if kind != "DaemonSet":
                code, context = Code.NEEDLESS_PRIVILEGE, container["securityContext"]
                yield from context.must_hold(code, _HARDENED, Level.WARNING)
        group = pod.spec["securityContext"]["fsGroup"]
        changes = group and mounted(pod, pod.main, "persistentVolumeClaim")
        found = "fsGroup: the kubelet changes the owner of every shared file before a pod starts"
        yield from report(Code.FILE_OWNERS, (changes, group, found, "remove it"))
        account, space = pod.spec["serviceAccountName"], pod.owner.namespace
        if account.text in bound:
            yield from token.must_be(Code.RIGHTS, YES, why="it cannot call the API server")
        elif kind != "Deployment":
            why, level = "it is there to be stolen", Level.WARNING
            yield from token.must_be(Code.NEEDLESS_PRIVILEGE, NO, why=why, level=level)
        given = [e.name for e in manifests.of("ServiceAccount") if e.namespace == space]
        if given and not account and pod.main["name"].text == "pytorch":
            found = "no service account: the default one has no role, and S3 refuses the job"
            yield account.finding(Code.ROLE_UNREAD, found, f"set it to {' or '.join(given)}")
