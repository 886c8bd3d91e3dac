"""Guards of pods: what they ask of a node, and what keeps them off it."""

import re
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.manifests import Manifests, manifest_guard
from megatron_eks.guards.quotas import EFA, GPU, HUGE_PAGES, JOBS, MIB, node_types
from megatron_eks.guards.values import NO, Value, report, warn, written

_RESOURCES = ("cpu", "memory", "ephemeral-storage", GPU, EFA, HUGE_PAGES, "hugepages-1Gi")
_POOL = "megatron-eks/pool"
_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PENDING, _REFUSED = "the pod stays Pending", "the API server refuses the pod"
_SHM = "/dev/shm"  # noqa: S108 -- in the pod
_LONGEST_WAIT, _SHORTEST_GRACE = 300, 60  # seconds
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
_WHOLE = max(each.hugepages_mib for each in INSTANCES.values()) * MIB


@manifest_guard
def quantities(manifests: Manifests) -> Iterator[Finding]:
    """Ask for whole devices, and for what the node then keeps free ("Resource Management")."""
    for pod in manifests.pods:
        for resources in (each["resources"] for each in pod.containers):
            limits, requests = resources["limits"], resources["requests"]
            for name in {"cpu": 0, "memory": 0, **dict(limits.items()), **dict(requests.items())}:
                yield from _pair(requests[name], limits[name], job=pod.owner.kind in JOBS)


def _pair(asked: Value, limit: Value, *, job: bool) -> Iterator[Finding]:
    """Compare what a container asks for with what it may use."""
    name, want, most = asked.name, asked.quantity or 0, limit.quantity or 0
    device, memory = "/" in name or name.startswith("hugepages-"), job and name == "memory"
    if name not in _RESOURCES and "gpu.shared" not in name:
        near = get_close_matches(name, _RESOURCES, 1, 0.8)
        found, remedy = f"no node offers {name!r}: {_PENDING}", f"write {(near or ['cpu'])[0]}"
        row = (near or not device, asked or limit, found, remedy)
        yield from report(Code.UNKNOWN_RESOURCE, row)
    for each in (asked, limit):
        number = each.quantity
        bad = number is None or number < 0 or ("/" in name and number.denominator != 1)
        found = f"{each.raw!r} is no quantity, or no whole device: {_REFUSED}"
        yield from report(Code.BAD_QUANTITY, (each and bad, each, found, "write such as 8 or 8Gi"))
    code = Code.EXTENDED_RESOURCES if device else Code.REQUEST_ABOVE_LIMIT
    wrong = want != most if device else limit and want > most
    both = f"{asked.raw} in requests and {limit.raw or 'none'} in limits: {_REFUSED}"
    remedy = f"write the same in both, or {limit.raw} at most"
    yield from report(code, (asked and wrong, asked, both, remedy))
    little = f"{asked.raw} is far below the limit: the kernel ends the pod when its node is full"
    yield from warn(
        code if device else Code.NODE_ROOM,
        (not asked, asked, f"no request of {name}: nodes are overfilled", "ask for what it uses"),
        (memory and not limit, limit, "no memory limit: a full node ends any pod", "set a limit"),
        (memory and asked and want < most / 2, asked, little, f"ask for {limit.raw}"),
    )


@manifest_guard
def devices(manifests: Manifests) -> Iterator[Finding]:
    """Ask for what one node has, and for huge pages with EFA (EKS, "machine learning with EFA")."""
    for pod in manifests.pods:
        limits, cores = pod.main["resources"]["limits"], pod.main["resources"]["requests"]["cpu"]
        pages, efa, gpus, memory = (limits[e] for e in (HUGE_PAGES, EFA, GPU, "memory"))
        types = node_types(manifests, pod) if gpus or efa else [*INSTANCES.values()]
        most = max((each.vcpus for each in types), default=0)
        room = max((each.memory_mib - each.hugepages_mib for each in types), default=0)
        busy = types and (cores.quantity or 0) >= most
        full = types and (memory.quantity or 0) >= room * MIB
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
        roles = pod.owner["spec"]["pytorchReplicaSpecs"].items()
        ranks = sum(each["replicas"].quantity or 0 for _, each in roles)
        has_efa = all(e.efa_interfaces for e in INSTANCES.values() if e.gpus == gpus.quantity)
        alone = pages or (gpus and ranks > 1 and has_efa)
        found = "no EFA devices: NCCL takes TCP, ten times slower, and huge pages serve nobody"
        row = (alone and not efa, efa, found, f"ask for the node's devices: {EFA}")
        yield from report(Code.EFA_NOT_REQUESTED, row)


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
            row = (wrong, size, found, "set it to 10Gi, or below the memory limit")
            yield from report(Code.TMPFS_ABOVE_MEMORY, row)
        mounts = pod.main["volumeMounts"]
        shm = next((each for each in mounts if each["mountPath"].text == _SHM), mounts)
        found = f"{_SHM} is no memory volume: NCCL and data loaders end with a bus error"
        remedy = "mount an emptyDir with medium Memory and a sizeLimit there"
        wrong = (limits[GPU].quantity or 0) > 1 and shm["name"].text not in in_memory
        yield from report(Code.SHARED_MEMORY, (wrong, shm, found, remedy))


@manifest_guard
def tolerations(manifests: Manifests) -> Iterator[Finding]:
    """Pools carry the taint nvidia.com/gpu=true:NoSchedule ("Taints and Tolerations")."""
    for pod in manifests.pods:
        listed, job = pod.spec["tolerations"], pod.owner.kind in JOBS
        tainted = pod.asks(GPU) or pod.asks(EFA) or pod.spec["nodeSelector"][_POOL]
        found = f"no toleration of {GPU}: the pod stays Pending on the pool's tainted nodes"
        remedy = f"add it: key {GPU}, operator Exists, effect NoSchedule"
        wrong = tainted and not any(map(_tolerates_pool, listed))
        yield from report(Code.UNTOLERATED, (wrong, listed, found, remedy))
        for name in _LOST if job and pod.main["name"].text == "pytorch" else ():
            own = [each for each in listed if each["key"].text == name]
            seconds = [
                e["tolerationSeconds"].number for e in own if e["effect"].text == "NoExecute"
            ]
            right = any(0 <= (-1 if each is None else each) <= _LONGEST_WAIT for each in seconds)
            found = f"no toleration of {name} for seconds: ranks wait for a pod on a lost node"
            remedy = f"add it: key {name}, effect NoExecute, tolerationSeconds 30"
            level = Level.ERROR if own else Level.WARNING
            yield from report(Code.TOLERATION, (not right, listed, found, remedy), level=level)
        for key in (each["key"] for each in listed):
            found = "no key: the pod goes to every tainted node, also to one that is cordoned"
            yield from warn(Code.TOLERATION, (not key, key, found, f"set {GPU!r}"))


@manifest_guard
def node_selectors(manifests: Manifests) -> Iterator[Finding]:
    """Pods with GPUs go to one pool, whose nodes are alike ("Assigning Pods to Nodes")."""
    code, pods = Code.NODE_SELECTOR, [e for e in manifests.pods if e.owner.kind in JOBS]
    used = {(pod.spec["nodeSelector"][_POOL].text, pod.owner.name) for pod in pods}
    pools = Counter(pool for pool, _ in used if pool)
    often = [each for each, count in pools.items() if count > 1]
    for pod in pods:
        pool, asks = pod.spec["nodeSelector"][_POOL], pod.asks(GPU) or pod.asks(EFA)
        allowed = asks or any(map(_tolerates_pool, pod.spec["tolerations"]))
        found = f"no node selector {_POOL}: the pod may start in any pool, beside other types"
        wrong, level = allowed and not pod.spec["affinity"], Level.ERROR if asks else Level.WARNING
        row = (wrong and not pool, pool, found, f"add {_POOL}: the pool's name")
        yield from report(code, row, level=level)
        if pools[pool.text] == 1 and (near := get_close_matches(pool.text, often, 1, 0.8)):
            found = f"pool {pool.text!r}, and other pods name {near[0]!r}: it may stay Pending"
            yield pool.finding(code, found, f"did you mean {near[0]}?", Level.WARNING)


@manifest_guard
def settings(manifests: Manifests) -> Iterator[Finding]:
    """Run one program on all ranks, which find each other and save ("Images"; "DNS for Pods")."""
    for pod in manifests.pods:
        for container in pod.containers:
            image = container["image"]
            found = f"{written(image.raw)} is no fixed image: two ranks may run different programs"
            row = (not _PINNED.fullmatch(image.text), image, found, "name a release or a digest")
            yield from report(Code.UNPINNED_IMAGE, row)
            yield from container.must_hold(Code.MANIFEST_VALUE, _PULL, Level.WARNING)
        if pod.owner.kind in JOBS:
            on_host = pod.spec["hostNetwork"].raw is True
            policy = ("ClusterFirstWithHostNet",) if on_host else ("ClusterFirst", None)
            why = "the pod asks the node's DNS, which does not know the master's Service"
            yield from pod.spec["dnsPolicy"].must_be(Code.HOST_NETWORK_DNS, *policy, why=why)
        if pod.owner.kind in JOBS and pod.main["name"].text == "pytorch":
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
