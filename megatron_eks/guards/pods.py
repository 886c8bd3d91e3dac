"""Guards of pods: what they ask of nodes and quotas, what keeps them off, what they may do."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.node_repair import LOST_NODE_SECONDS
from megatron_eks.catalog.pins import POD_UID
from megatron_eks.catalog.workloads import CONTROLLED
from megatron_eks.config.codes import Code
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import Manifests, Pod, manifest_guard
from megatron_eks.guards.node_types import EFA, GPU, MIB, left_out, node_types
from megatron_eks.guards.values import NO, YES, Found, Row, Value, report, warn, written

HUGE_PAGES = "hugepages-2Mi"
_RESOURCES = ("cpu", "memory", "ephemeral-storage", GPU, EFA, HUGE_PAGES, "hugepages-1Gi")
POOL = "megatron-eks/pool"
_PENDING, _REFUSED = "the pod stays Pending", "the API server refuses the pod"
_SHM = "/dev/shm"  # noqa: S108 -- in the pod
_LEAST_SHM = 1024 * MIB  # NCCL alone maps some ten MiB for each pair of ranks
_SOON, _SHORTEST_GRACE = range(301), 60  # seconds
PINNED = re.compile(r"(?!.*:latest$)(.+/)?[^/@]+(:[^/@:]+|@sha256:[0-9a-f]{64})")
_PULL = ("IfNotPresent", "Always")
_ENDS = "containers name=pytorch terminationMessagePolicy"
_RANK = (
    ("enableServiceLinks", (NO,), "each Service of the namespace adds seven variables to it"),
    ("priorityClassName", (), "the pod waits behind checks, and is evicted first"),
    (_ENDS, ("FallbackToLogsOnError",), "nobody learns why it ended"),
    ("containers name=pytorch livenessProbe", (None,), "a rank that is busy is killed for it"),
    ("containers name=pytorch command", (), "the image decides what it starts"),
)
_WHOLE = max(each.hugepages_mib for each in INSTANCES.values()) * MIB
_LEVEL, _LEVELS = "pod-security.kubernetes.io", ("privileged", "baseline", "restricted")
_MODES = ("enforce", "audit", "warn")
_USER, _PROFILES = ("runAsNonRoot", "runAsUser", "runAsGroup"), ("RuntimeDefault", "Localhost")
_HARDENED: tuple[Row, ...] = (
    ("privileged", (NO, None), "the container sees every device of the node"),
    ("readOnlyRootFilesystem", (YES,), "an intruder can change the program for all that follows"),
    ("allowPrivilegeEscalation", (NO,), "a program with a set-user bit becomes root"),
    ("capabilities drop", (["ALL"],), "the container may do what it never needs"),
)


@manifest_guard
def resources(manifests: Manifests) -> Found:
    """Ask for whole devices that one node has, and huge pages with EFA (EKS, "EFA with Pods")."""
    misnamed = left_out(manifests)  # told once, where it is mended
    for pod in manifests.pods:
        for each in pod.containers:
            both = [each["resources"][kind] for kind in ("requests", "limits")]
            for name in dict.fromkeys(["cpu", "memory", *(n for e in both for n, _ in e.items())]):
                yield from _pair(both[0][name], both[1][name], job=pod.of_job)
        limits, cores = pod.main["resources"]["limits"], pod.main["resources"]["requests"]["cpu"]
        pages, efa, gpus, memory = (limits[e] for e in (HUGE_PAGES, EFA, GPU, "memory"))
        types = node_types(manifests, pod) if gpus or efa else INSTANCES.values()
        most = max((each.vcpus for each in types), default=1 << 20)
        room = max((each.memory_mib - each.hugepages_mib for each in types), default=1 << 40)
        busy, full = (cores.quantity or 0) >= most, (memory.quantity or 0) >= room * MIB
        found = f"no node has {gpus.raw or 0} GPUs, {efa.raw or 0} EFA devices and {memory.raw}"
        remedy, found = "ask for what a node of the pool has", f"{found}: {_PENDING}"
        yield from report(Rule.NODE_ROOM, not types and not misnamed, limits, found, remedy)
        found = f"{cores.raw} of {most} cores: {_PENDING}"
        yield from report(Rule.NODE_ROOM, busy, cores, found, "leave some for the system")
        found = f"{memory.raw} is too much: {_PENDING}"
        yield from report(Rule.NODE_ROOM, full, memory, found, f"ask for less than {room}Mi")
        size = pages.quantity or 0
        wrong = (efa or pages) and not (0 < size <= _WHOLE and size % (2 * MIB) == 0)
        found = f"{pages.raw or 'none'} of huge pages: EFA has no buffers, or no node has that many"
        yield from report(Rule.HUGE_PAGES, wrong, pages, found, "ask for 5120Mi")
        has_efa = all(e.efa_interfaces for e in INSTANCES.values() if e.gpus == gpus.quantity)
        alone = pages or (gpus and len(pod.owner.pods) > 1 and has_efa)
        found = "no EFA devices: NCCL falls back to TCP on one card, and huge pages are wasted"
        yield from report(Rule.EFA_NOT_REQUESTED, alone and not efa, efa, found, f"request {EFA}")


def _pair(asked: Value, limit: Value, *, job: bool) -> Found:
    name, want, most = asked.name, asked.quantity or 0, limit.quantity or 0
    device = "/" in name or name.startswith("hugepages-")
    near = "".join(get_close_matches(name, _RESOURCES, 1, 0.85) if device else ["cpu"])
    unknown, found = near and name not in _RESOURCES, f"no node offers {name!r}: {_PENDING}"
    yield from report(Rule.UNKNOWN_RESOURCE, unknown, asked or limit, found, f"write {near}")
    for each in (asked, limit):
        number = each.quantity
        bad = number is None or number < 0 or ("/" in name and number.denominator != 1)
        found = f"{each.raw!r} is no quantity, or not whole devices: {_REFUSED}"
        yield from report(Rule.BAD_QUANTITY, each and bad, each, found, "write 8, or 8Gi")
    code = Rule.EXTENDED_RESOURCES if device else Rule.REQUEST_ABOVE_LIMIT
    wrong = want != most if device else limit and want > most
    both = f"{asked.raw} in requests and {limit.raw or 'none'} in limits: {_REFUSED}"
    yield from report(code, asked and wrong, asked, both, "write the same in both")
    code, found = code if device else Rule.NODE_ROOM, f"no request for {name}: nodes get overfull"
    yield from warn(code, not asked, asked, found, "request what it uses")
    lost = job and name == "memory" and (not limit or 2 * (want or most) < most)
    found = "no limit, or far above the request: a full node kills any pod"
    yield from warn(code, lost, limit, found, "set it")


@manifest_guard
def shared_memory(manifests: Manifests) -> Found:
    """NCCL needs a large /dev/shm, which counts against the memory (NCCL, "Troubleshooting")."""
    for pod in manifests.pods:
        limits, in_memory = pod.main["resources"]["limits"], dict[str, Value]()
        for volume in (each for each in pod.spec["volumes"] if each["emptyDir"]):
            size, most = volume["emptyDir"]["sizeLimit"], limits["memory"].quantity
            if memory := volume["emptyDir"]["medium"].text == "Memory":
                in_memory[volume["name"].text] = size
            wrong = not size.quantity or (memory and most and size.quantity >= most)
            room = f", and {limits['memory'].raw} of memory in all" if memory and most else ""
            found = f"{size.raw or 'no'} sizeLimit{room}: when full, it ends the container or node"
            code, remedy = Rule.NODE_ROOM, "set one, such as 10Gi"
            if memory:
                code, remedy = Rule.TMPFS_ABOVE_MEMORY, f"{remedy}, below the memory limit"
            yield from report(code, wrong, size, found, remedy, warns=not memory)
        mounts = pod.main["volumeMounts"]
        shm = next((each for each in mounts if each["mountPath"].text == _SHM), mounts)
        found = f"{_SHM} is not in memory: NCCL and data loaders die with a bus error"
        several, own = (limits[GPU].quantity or 0) > 1, in_memory.get(shm["name"].text)
        none = several and own is None
        yield from report(Rule.SHARED_MEMORY, none, shm, found, "use emptyDir, medium Memory")
        if several and own is not None and 0 < (own.quantity or 0) < _LEAST_SHM:
            found = f"{own.raw} of {_SHM}: NCCL and data loaders die with a bus error"
            yield own.finding(Rule.SHARED_MEMORY, found, "give some GiB for each GPU")


@manifest_guard
def placement(manifests: Manifests) -> Found:
    """Go to one pool, which has a taint ("Taints and Tolerations"; "Assigning Pods to Nodes")."""
    for pod in manifests.pods:
        listed, pool = pod.spec["tolerations"], pod.spec["nodeSelector"][POOL]
        asks, tolerates = pod.asks(GPU) or pod.asks(EFA), any(map(tolerates_pool, listed))
        found = f"no toleration for {GPU}: the pod stays Pending on the pool's tainted nodes"
        lost, remedy = (asks or pool) and not tolerates, f"add one: key {GPU}, effect NoSchedule"
        yield from report(Rule.UNTOLERATED, lost, listed, found, remedy)
        for each in (e for e in listed if pod.of_job and not e["key"]):
            found = "no key: the pod also goes to nodes that are drained, or not ready"
            yield each.finding(Rule.TOLERATION, found, f"name {GPU}", warns=True)
        ranks = pod.of_job and pod.main["name"].text == "pytorch"
        for name, seconds in LOST_NODE_SECONDS.items() if ranks else ():
            own = [each for each in listed if each["key"].text == name]
            waits = [e["tolerationSeconds"].raw for e in own if e["effect"].text == "NoExecute"]
            found = f"not {seconds} s for {name}: ranks wait for a lost node, or leave a slow one"
            remedy = f"tolerate it: effect NoExecute, tolerationSeconds {seconds}"
            works, other = any(each in _SOON for each in waits), waits != [seconds]
            row = (other, listed, found, remedy)
            yield from report(Rule.TOLERATION, *row, warns=works or not own)
        lost = pod.of_job and (asks or tolerates) and not pool and not pod.spec["affinity"]
        missing = pool and manifests.pools and pool.text not in manifests.pools
        found = f"the templates have no pool {pool.raw!r}: {_PENDING}"
        remedy = f"use {' or '.join(sorted(manifests.pools))}"
        yield from report(Rule.NODE_SELECTOR, missing, pool, found, remedy)
        found = f"no node selector {POOL}: the pod may start in any pool, on other types"
        named = "add the pool's name"
        yield from report(Rule.NODE_SELECTOR, lost, pool, found, named, warns=not asks)


@manifest_guard
def settings(manifests: Manifests) -> Found:
    """Run one program on all ranks, which find each other and save ("Images"; "DNS for Pods")."""
    for pod in manifests.pods:
        for container in pod.containers:
            image = container["image"]
            if not PINNED.fullmatch(image.text):
                found = f"{written(image.raw)} is not pinned: ranks may run different programs"
                yield image.finding(Code.UNPINNED_IMAGE, found, "name a release or a digest")
            pull, why = container["imagePullPolicy"], "no node fetches an image that it lacks"
            why = why if pull else "the tag decides: latest is fetched at every start"
            yield from pull.must_be(Rule.MANIFEST_VALUE, *_PULL, why=why, warns=True)
        if pod.of_job:
            why = "the pod asks the node's DNS, which does not know the master's Service"
            right = ("ClusterFirst", "ClusterFirstWithHostNet", None)
            yield from pod.spec["dnsPolicy"].must_be(Rule.HOST_NETWORK_DNS, *right, why=why)
        if pod.of_job and pod.main["name"].text == "pytorch":
            grace = pod.spec["terminationGracePeriodSeconds"]
            found = f"{grace.raw or 'no'} seconds: the pod is killed before it saves a checkpoint"
            short = (grace.number or 0) < _SHORTEST_GRACE
            yield from warn(Rule.IDLE, short, grace, found, "set it to 480")
            yield from pod.spec.must_hold(Rule.IDLE, *_RANK, warns=True)


def tolerates_pool(toleration: Value) -> bool:
    """Tell whether a toleration is one of the taint of GPU nodes."""
    key, operator = toleration["key"].text, toleration["operator"].text
    keyed = key == GPU and (operator == "Exists" or toleration["value"].text == "true")
    every = not toleration["key"] and operator == "Exists"
    return (keyed or every) and toleration["effect"].raw in (None, "NoSchedule")


@manifest_guard
def pod_security(manifests: Manifests) -> Found:
    """Give namespaces levels, and keep pods within ("Pod Security Standards" and "Admission")."""
    for each in manifests.of("Namespace"):
        labels = each.labels
        given = labels[f"{_LEVEL}/enforce"].text
        jobs = any(each.name == e.namespace for e in manifests.of(*CONTROLLED, "ResourceQuota"))
        levels = _LEVELS[2 if jobs else _LEVELS.index(given) if given in _LEVELS else 0 :]
        # Both that `platform.pod_security` may say.
        allowed = (_LEVELS[::-2] if jobs else _LEVELS[1:], levels, levels)
        for mode, right in zip(_MODES, allowed, strict=True):
            why, code = "the namespace admits, or warns about, the wrong pods", Rule.NAMESPACE_LEVEL
            level = labels[f"{_LEVEL}/{mode}"]
            if level.text not in right:
                yield from level.must_be(code, *(_LEVELS[2:] if jobs else right), why=why)
        versions = [labels[f"{_LEVEL}/{mode}-version"] for mode in _MODES]
        differ = any(versions) and len({written(value.raw) for value in versions}) > 1
        found = "not one version for all modes: pods that run today are refused after an upgrade"
        yield from report(Rule.NAMESPACE_LEVEL, differ, labels, found, "write one for all three")
    for pod in manifests.pods:
        namespace = manifests.named("Namespace", pod.owner.namespace)
        given = namespace.labels[f"{_LEVEL}/enforce"].text if namespace else ""
        # The file of one job alone: the project's namespace of jobs is restricted.
        alone = not namespace and pod.main["name"].text == "pytorch" and pod.of_job
        enforced = "restricted" if alone else given
        said = f"namespace {pod.owner.namespace} enforces {enforced}, and no pod is created"
        slips = _above(pod, strict=enforced == "restricted") if enforced in _LEVELS[1:] else []
        for place, remedy in slips:
            found = f"{place.name} is {written(place.raw)}: {said}"
            yield place.finding(Rule.POD_ABOVE_NAMESPACE, found, remedy, warns=alone)


def _above(pod: Pod, *, strict: bool) -> Iterator[tuple[Value, str]]:
    wrong = [e for key in ("hostNetwork", "hostPID", "hostIPC") if (e := pod.spec[key]).raw is True]
    wrong += [e for volume in pod.spec["volumes"] if (e := volume["hostPath"])]
    for each in pod.containers:
        own = each["securityContext"]
        wrong += [e for e in own["capabilities"]["add"] if strict and e.text != "NET_BIND_SERVICE"]
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
def users(manifests: Manifests) -> Found:
    """Prove runAsNonRoot by a number, and give no more rights than needed ("Security Context")."""
    code, bindings = Rule.NEEDLESS_PRIVILEGE, manifests.of("RoleBinding", "ClusterRoleBinding")
    bound = {subject["name"].text for each in bindings for subject in each["subjects"]}
    for pod in manifests.pods:
        kind, token = pod.owner.kind, pod.spec["automountServiceAccountToken"]
        for container in pod.containers:
            root, user, group = (pod.setting(container, key) for key in _USER)
            unproved = root.raw is True and not user.number
            found = f"runAsNonRoot, but runAsUser {written(user.raw)}: the container does not start"
            remedy = f"set it to {manifests.user(pod.owner.namespace) or POD_UID}"
            yield from report(Rule.REFUSED_IN_POD, unproved, user, found, remedy)
            found = "no runAsGroup: files belong to root's group, and other jobs cannot write them"
            lost = user.number and group.number is None
            yield from warn(Rule.FILE_OWNERS, lost, group, found, f"set it to {user.raw}")
            if kind != "DaemonSet":
                yield from container["securityContext"].must_hold(code, *_HARDENED, warns=True)
        account, space = pod.spec["serviceAccountName"], pod.owner.namespace
        if account.text in bound:
            yield from token.must_be(Rule.RIGHTS, YES, why="it cannot call the API server")
        elif kind != "Deployment":
            yield from token.must_be(code, NO, why="a token nobody needs can be stolen", warns=True)
        known = {e.name for e in manifests.of("ServiceAccount") if e.namespace == space}
        given = known - bound
        other = account.text in known & bound or not account  # one that is not there is said so
        if given and other and pod.main["name"].text == "pytorch":
            found = f"service account {account.text or 'default'} has no role: S3 refuses the job"
            yield account.finding(Rule.ROLE_UNREAD, found, f"set it to {min(given)}")
