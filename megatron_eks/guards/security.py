"""Guards of what a pod may do: Pod Security, users, and tokens of the API server."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.manifests import Manifests, Pod, manifest_guard
from megatron_eks.guards.pods import JOBS
from megatron_eks.guards.values import NO, YES, Value, report, written

_LEVEL = "pod-security.kubernetes.io/enforce"
# Kubernetes, "Pod Security Standards": what may be added, and the volumes that restricted takes.
_BASELINE = {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "SETUID"}
_BASELINE |= {"NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SYS_CHROOT"}
_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"}
_VOLUMES |= {"projected", "secret", "image", "name"}
_HARDENED = (
    ("privileged", (NO, None), "the container sees every device of the node"),
    ("readOnlyRootFilesystem", (YES,), "an intruder can change the program for all that follows"),
    ("allowPrivilegeEscalation", (NO,), "a program with a set-user bit becomes root"),
)


@manifest_guard
def pod_security(manifests: Manifests) -> Iterator[Finding]:
    """Keep pods within the level of their namespace ("Pod Security Standards")."""
    for pod in manifests.pods:
        namespace = manifests.named("Namespace", pod.owner.namespace)
        given = namespace["metadata"]["labels"][_LEVEL].text if namespace else ""
        # The file of one job alone: the project's namespace of jobs is restricted.
        alone = not namespace and pod.main["name"].text == "pytorch" and pod.owner.kind in JOBS
        enforced = "restricted" if alone else given
        level = Level.WARNING if alone else Level.ERROR
        said = f"namespace {pod.owner.namespace} enforces {enforced}, and no pod is made"
        slips = _above(pod, strict=enforced == "restricted")
        for place, remedy in slips if enforced in {"baseline", "restricted"} else ():
            found = f"{place.name} is {written(place.raw)}: {said}"
            yield place.finding(Code.POD_ABOVE_NAMESPACE, found, remedy, level)


@manifest_guard
def users(manifests: Manifests) -> Iterator[Finding]:
    """Prove runAsNonRoot by a number, and keep the owners of files ("Security Context")."""
    for pod in manifests.pods:
        for container in pod.containers:
            keys = ("runAsNonRoot", "runAsUser", "runAsGroup")
            root, user, group = (_either(pod, container, key) for key in keys)
            found = (
                f"runAsNonRoot, and runAsUser is {written(user.raw)}: the kubelet does not start it"
            )
            row = (root.raw is True and not user.number, user, found, "set it to 10001")
            yield from report(Code.REFUSED_IN_POD, row)
            found = "no runAsGroup: files belong to root's group, and other jobs cannot write them"
            row = (
                bool(user.number) and group.number is None,
                group,
                found,
                f"set it to {user.raw}",
            )
            yield from report(Code.FILE_OWNERS, row, level=Level.WARNING)
            if pod.owner.kind != "DaemonSet":
                code, context = Code.NEEDLESS_PRIVILEGE, container["securityContext"]
                yield from context.must_hold(code, _HARDENED, Level.WARNING)
        group = pod.spec["securityContext"]["fsGroup"]
        claims = any(each["persistentVolumeClaim"] for each in pod.spec["volumes"])
        found = "fsGroup: the kubelet changes the owner of every shared file before a pod starts"
        yield from report(Code.FILE_OWNERS, (group and claims, group, found, "remove it"))


@manifest_guard
def tokens(manifests: Manifests) -> Iterator[Finding]:
    """Only what calls the API server has a token ("Configure Service Accounts for Pods")."""
    bindings = manifests.of("RoleBinding", "ClusterRoleBinding")
    bound = {subject["name"].text for each in bindings for subject in each["subjects"]}
    for pod in manifests.pods:
        space, account = pod.owner.namespace, pod.spec["serviceAccountName"]
        token, right = pod.spec["automountServiceAccountToken"], account.text in bound
        if right or pod.owner.kind != "Deployment":
            why = "it cannot call the API server" if right else "it is there to be stolen"
            code = Code.RIGHTS if right else Code.NEEDLESS_PRIVILEGE
            level = Level.ERROR if right else Level.WARNING
            yield from token.must_be(code, right, why=why, level=level)
        accounts = [e.name for e in manifests.of("ServiceAccount") if e.namespace == space]
        if accounts and not account and pod.main["name"].text == "pytorch":
            found = "no service account: the default one has no role, and S3 refuses the job"
            yield account.finding(Code.ROLE_UNREAD, found, f"set it to {accounts[0]!r}")


def _either(pod: Pod, container: Value, key: str) -> Value:
    """Return a container's setting, or that of its pod."""
    return container["securityContext"][key] or pod.spec["securityContext"][key]


def _above(pod: Pod, *, strict: bool) -> Iterator[tuple[Value, str]]:
    """Return what a level refuses, baseline or restricted, with what to do about it."""
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.spec[key].raw is True:
            yield pod.spec[key], "remove it"
    for kind, source in (item for volume in pod.spec["volumes"] for item in volume.items()):
        if kind == "hostPath" or (strict and kind not in _VOLUMES):
            yield source, "use an emptyDir or the shared claim"
    for container in pod.containers:
        context, allowed = container["securityContext"], {"NET_BIND_SERVICE"}
        dropped, added = context["capabilities"]["drop"], context["capabilities"]["add"]
        profile = _either(pod, container, "seccompProfile")["type"]
        root, user = (_either(pod, container, key) for key in ("runAsNonRoot", "runAsUser"))
        wrong = [e for e in added if e.text not in (allowed if strict else _BASELINE)]
        wrong += [each["hostPort"] for each in container["ports"] if each["hostPort"].number]
        wrong += [context["privileged"]] if context["privileged"].raw is True else []
        yield from ((each, "remove it") for each in wrong)
        if profile.text == "Unconfined" or (strict and not profile):
            yield profile, "set it to 'RuntimeDefault'"
        if strict and context["allowPrivilegeEscalation"].raw is not False:
            yield context["allowPrivilegeEscalation"], "set it to False"
        if strict and "ALL" not in dropped.texts:
            yield dropped, "set it to [ALL]"
        if strict and (root.raw is not True or user.raw == 0):
            yield (user if user.raw == 0 else root), "use an ordinary user, and runAsNonRoot True"
