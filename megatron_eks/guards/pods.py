"""Guards of pods: what they ask of nodes and quotas, and what keeps them off."""

import re
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.values import NO, Value, report, warn, written

GPU, EFA, HUGE_PAGES = "nvidia.com/gpu", "vpc.amazonaws.com/efa", "hugepages-2Mi"
JOBS, MIB = ("Job", "PyTorchJob"), 1024**2
_NEEDED = "requiredDuringSchedulingIgnoredDuringExecution"
_RESOURCES = ("cpu", "memory", "ephemeral-storage", GPU, EFA, HUGE_PAGES, "hugepages-1Gi")
_POOL = "megatron-eks/pool"
_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PENDING, _REFUSED = "the pod stays Pending", "the API server refuses the pod"
_SHM = "/dev/shm"  # noqa: S108 -- in the pod
_SOON, _SHORTEST_GRACE = range(301), 60  # seconds
_PINNED = re.compile(r"(?!.*:latest$)(.+/)?[^/@]+(:[^/@:]+|@sha256:[0-9a-f]{64})")
_PULL = (("imagePullPolicy", ("IfNotPresent", "Always"), "a missing or old image is up to chance"),)
_POD = (
    ("enableServiceLinks", (NO,), "each Service of the namespace adds seven variables"),
    ("priorityClassName", (), "the pod waits behind checks, and is evicted first"),
)
_MAIN = (
    ("terminationMessagePolicy", ("FallbackToLogsOnError",), "nobody learns why it ended"),
    ("command", (), "the image starts what it likes"),
)
_LEVELS = (Level.WARNING, Level.ERROR)
_WHOLE = max(each.hugepages_mib for each in INSTANCES.values()) * MIB


@manifest_guard
def resources(manifests: Manifests) -> Iterator[Finding]:
    """Ask for whole devices that one node has, and huge pages with EFA (EKS, "EFA with Pods")."""
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
        yield from report(
            Code.NODE_ROOM,
            (not types, limits, f"{found}: {_PENDING}", "ask for what a node of the pool has"),
            (busy, cores, f"{cores.raw} of {most} cores: {_PENDING}", "leave some to the system"),
            (full, memory, f"{memory.raw} is too much: {_PENDING}", f"ask for less than {room}Mi"),
        )
        wrong = (efa or pages) and not 0 < (pages.quantity or 0) <= _WHOLE
        found = f"{pages.raw or 'no'} huge pages: EFA has no buffers, or no node has so many"
        yield from report(Code.HUGE_PAGES, (wrong, pages, found, "ask for 5120Mi"))
        has_efa = all(e.efa_interfaces for e in INSTANCES.values() if e.gpus == gpus.quantity)
        alone = pages or (gpus and len(pod.owner.pods) > 1 and has_efa)
        found = "no EFA devices: NCCL takes TCP, ten times slower, and huge pages serve nobody"
        yield from report(Code.EFA_NOT_REQUESTED, (alone and not efa, efa, found, "ask for them"))


def _pair(asked: Value, limit: Value, *, job: bool) -> Iterator[Finding]:
    name, want, most = asked.name, asked.quantity or 0, limit.quantity or 0
    device = "/" in name or name.startswith("hugepages-")
    if name not in _RESOURCES and "gpu.shared" not in name:
        near = get_close_matches(name, _RESOURCES, 1, 0.8) or [] if device else ["cpu"]
        found, remedy = f"no node offers {name!r}: {_PENDING}", f"write {''.join(near)}"
        yield from report(Code.UNKNOWN_RESOURCE, (near, asked or limit, found, remedy))
    for each in (asked, limit):
        number = each.quantity
        bad = number is None or number < 0 or ("/" in name and number.denominator != 1)
        found = f"{each.raw!r} is no quantity, or no whole device: {_REFUSED}"
        yield from report(Code.BAD_QUANTITY, (each and bad, each, found, "write such as 8 or 8Gi"))
    code = Code.EXTENDED_RESOURCES if device else Code.REQUEST_ABOVE_LIMIT
    wrong = want != most if device else limit and want > most
    both = f"{asked.raw} in requests and {limit.raw or 'none'} in limits: {_REFUSED}"
    yield from report(code, (asked and wrong, asked, both, "write the same in both"))
    lost = job and name == "memory" and not limit
    yield from warn(
        code if device else Code.NODE_ROOM,
        (not asked, asked, f"no request of {name}: nodes are overfilled", "ask for what it uses"),
        (lost, limit, "no memory limit: a full node ends any pod", "set a limit"),
    )


@manifest_guard
def shared_memory(manifests: Manifests) -> Iterator[Finding]:
    """NCCL needs a large /dev/shm, which counts against the memory (NCCL, "Troubleshooting")."""
    for pod in manifests.pods:
        limits, in_memory = pod.main["resources"]["limits"], set[str]()
        for volume in (each for each in pod.spec["volumes"] if each["emptyDir"]):
            size, most = volume["emptyDir"]["sizeLimit"], limits["memory"].quantity
            if memory := volume["emptyDir"]["medium"].text == "Memory":
                in_memory.add(volume["name"].text)
            wrong = not size.quantity or (memory and most and size.quantity >= most)
            found = f"{size.raw or 'no'} sizeLimit: a full one ends the container, or its node"
            code, level = Code.TMPFS_ABOVE_MEMORY if memory else Code.NODE_ROOM, _LEVELS[memory]
            yield from report(code, (wrong, size, found, "set it, such as 10Gi"), level=level)
        mounts = pod.main["volumeMounts"]
        shm = next((each for each in mounts if each["mountPath"].text == _SHM), mounts)
        found = f"{_SHM} is no memory volume: NCCL and data loaders end with a bus error"
        wrong = (limits[GPU].quantity or 0) > 1 and shm["name"].text not in in_memory
        yield from report(Code.SHARED_MEMORY, (wrong, shm, found, "use an emptyDir, medium Memory"))


@manifest_guard
def placement(manifests: Manifests) -> Iterator[Finding]:
    """Go to one pool, which has a taint ("Taints and Tolerations"; "Assigning Pods to Nodes")."""
    jobs = {(e.spec["nodeSelector"][_POOL].text, e.owner.name) for e in manifests.pods if e.of_job}
    pools = Counter(pool for pool, _ in jobs if pool)
    often = [each for each, count in pools.items() if count > 1]
    for pod in manifests.pods:
        listed, pool = pod.spec["tolerations"], pod.spec["nodeSelector"][_POOL]
        asks, tolerates = pod.asks(GPU) or pod.asks(EFA), any(map(_tolerates_pool, listed))
        found = f"no toleration of {GPU}: the pod stays Pending on the pool's tainted nodes"
        lost, remedy = (asks or pool) and not tolerates, f"add it: key {GPU}, NoSchedule"
        yield from report(Code.UNTOLERATED, (lost, listed, found, remedy))
        for name in _LOST if pod.of_job and pod.main["name"].text == "pytorch" else ():
            own = [each for each in listed if each["key"].text == name]
            soon = [e for e in own if e["tolerationSeconds"].raw in _SOON]
            right = "NoExecute" in [each["effect"].text for each in soon]
            found = f"no toleration of {name} for seconds: ranks wait for a pod on a lost node"
            row = (not right, listed, found, "add it: NoExecute, tolerationSeconds 30")
            yield from report(Code.TOLERATION, row, level=_LEVELS[bool(own)])
        lost = pod.of_job and (asks or tolerates) and not pool and not pod.spec["affinity"]
        found = f"no node selector {_POOL}: the pod may start in any pool, beside other types"
        named, level = (lost, pool, found, "add the pool's name"), _LEVELS[bool(asks)]
        yield from report(Code.NODE_SELECTOR, named, level=level)
        near = get_close_matches(pool.text, often, 1, 0.8) if pools[pool.text] == 1 else ()
        for other in near if pod.of_job else ():
            found = f"pool {pool.text!r}, and other pods name {other!r}: it may stay Pending"
            yield pool.finding(Code.NODE_SELECTOR, found, f"write {other}?", Level.WARNING)


@manifest_guard
def settings(manifests: Manifests) -> Iterator[Finding]:
    """Run one program on all ranks, which find each other and save ("Images"; "DNS for Pods")."""
    for pod in manifests.pods:
        for container in pod.containers:
            image = container["image"]
            if not _PINNED.fullmatch(image.text):
                found = f"{written(image.raw)} is no fixed image: ranks may run different programs"
                yield image.finding(Code.UNPINNED_IMAGE, found, "name a release or a digest")
            yield from container.must_hold(Code.MANIFEST_VALUE, _PULL, Level.WARNING)
        if pod.of_job:
            on_host = pod.spec["hostNetwork"].raw is True
            policy = ("ClusterFirstWithHostNet",) if on_host else ("ClusterFirst", None)
            why = "the pod asks the node's DNS, which does not know the master's Service"
            yield from pod.spec["dnsPolicy"].must_be(Code.HOST_NETWORK_DNS, *policy, why=why)
        if pod.of_job and pod.main["name"].text == "pytorch":
            grace = pod.spec["terminationGracePeriodSeconds"]
            found = f"{grace.raw or 'no'} seconds: the pod is killed before it saves a checkpoint"
            short = (grace.number or 0) < _SHORTEST_GRACE
            yield from warn(Code.IDLE, (short, grace, found, "set it to 480"))
            yield from pod.spec.must_hold(Code.IDLE, _POD, Level.WARNING)
            yield from pod.main.must_hold(Code.IDLE, _MAIN, Level.WARNING)


def _tolerates_pool(toleration: Value) -> bool:
    key, operator = toleration["key"].text, toleration["operator"].text
    keyed = key == GPU and (operator == "Exists" or toleration["value"].text == "true")
    every = not toleration["key"] and operator == "Exists"
    return (keyed or every) and toleration["effect"].raw in (None, "NoSchedule")


@manifest_guard
def quotas(manifests: Manifests) -> Iterator[Finding]:
    """Count devices of classes that exist, in whole nodes, with room for each job (Quotas)."""
    named = {v.text for e in manifests.of("DaemonSet") if "efa" in e.name for v in type_values(e)}
    types = [INSTANCES[each] for each in named & INSTANCES.keys()]
    classes = " or ".join(sorted(e.name for e in manifests.of("PriorityClass")))
    for quota in manifests.of("ResourceQuota"):
        hard, scope = quota["spec"]["hard"], _scope(quota)
        for each in scope["values"]:
            found = f"no priority class {each.text!r}: the quota counts nothing for it"
            if manifests.lacks("PriorityClass", each.text) and not each.text.startswith("system-"):
                yield each.finding(Code.MISSING_OBJECT, found, f"name {classes}")
        gpus, efa = (hard[f"requests.{each}"].quantity or 0 for each in (GPU, EFA))
        for node in types if len(types) == 1 else ():
            wrong = gpus % node.gpus or gpus * node.efa_interfaces != efa * node.gpus
            found = f"{gpus} GPUs and {efa} EFA devices are no whole nodes: the last is never used"
            remedy = f"write {node.gpus} and {node.efa_interfaces} for each {node.name}"
            yield from report(Code.ABOVE_QUOTA, (wrong, hard, found, remedy))
        for job in manifests.of("PyTorchJob", "Job"):
            if job.namespace == quota.namespace and job.main_pod:
                yield from _room(quota, job, job.main_pod)


def _room(quota: Object, job: Object, pod: Pod) -> Iterator[Finding]:
    scope, own = _scope(quota), pod.spec["priorityClassName"].text
    if scope and (own in scope["values"].texts) != (scope["operator"].text == "In"):
        return
    roles = [e["replicas"] for _, e in job["spec"]["pytorchReplicaSpecs"].items()]
    pods = int(sum(e.number or 0 for e in roles or [job["spec"]["parallelism"]])) or 1
    for name, limit in quota["spec"]["hard"].items():
        asked = pod.main["resources"]["requests"][name.removeprefix("requests.")].quantity or 0
        amount = pods * (1 if name == "pods" else asked)
        found = f"{amount} of {name}, and quota {quota.name} ends at {limit.raw}: pods are not made"
        wrong = limit.quantity is not None and amount > limit.quantity
        row = (wrong, job["spec"], found, f"use fewer nodes, or set {name} to {amount}")
        yield from report(Code.ABOVE_QUOTA, row)


def type_values(daemon: Object) -> Iterator[Value]:
    """Return the instance types that a DaemonSet's affinity lists."""
    for pod in daemon.pods:
        for term in pod.spec["affinity"]["nodeAffinity"][_NEEDED]["nodeSelectorTerms"]:
            for each in term["matchExpressions"]:
                yield from each["values"] if "instance-type" in each["key"].text else ()


def node_types(manifests: Manifests, pod: Pod) -> list[InstanceType]:
    """Return the types that a pod's nodes may have: those of the EFA plugin, or the smallest."""
    asked = pod.main["resources"]["limits"]
    gpus, efa, size = (int(asked[e].quantity or 0) for e in (GPU, EFA, "memory"))
    plugins = [each for each in manifests.of("DaemonSet") if "efa" in each.name and efa]
    named = sorted({value.text for each in plugins for value in type_values(each)})
    known = [INSTANCES[each] for each in named if each in INSTANCES]
    # A pod has the EFA devices beside its GPUs; one that asks for no GPU takes all of them.
    fitting = [
        each
        for each in known or INSTANCES.values()
        if each.gpus >= max(gpus, 1) and (not efa or efa == _share(each, gpus))
    ]
    large = [e.memory_mib for e in fitting if e.memory_mib - e.hugepages_mib > size / MIB]
    return [each for each in fitting if known or each.memory_mib == min(large, default=0)]


def _share(node: InstanceType, gpus: int) -> int:
    whole = node.efa_interfaces
    return max(whole * (gpus or node.gpus) // node.gpus, min(whole, 1))


def _scope(quota: Object) -> Value:
    return quota["spec"]["scopeSelector"]["matchExpressions"][0]
