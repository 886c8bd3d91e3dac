"""Guards of pods: what they ask of a node, and what keeps them off it."""

import re
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.manifests import Manifests, manifest_guard
from megatron_eks.guards.quotas import EFA, GPU, HUGE_PAGES, MIB, node_types
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
_LEVELS = (Level.WARNING, Level.ERROR)
_WHOLE = max(each.hugepages_mib for each in INSTANCES.values()) * MIB


@manifest_guard
def quantities(manifests: Manifests) -> Iterator[Finding]:
    """Ask for whole devices, and for what the node then keeps free ("Resource Management")."""
    for pod in manifests.pods:
        for resources in (each["resources"] for each in pod.containers):
            limits, requests = resources["limits"], resources["requests"]
            for name in {"cpu": 0, "memory": 0, **dict(limits.items()), **dict(requests.items())}:
                yield from _pair(requests[name], limits[name], job=pod.of_job)


def _pair(asked: Value, limit: Value, *, job: bool) -> Iterator[Finding]:
    """Compare what a container asks for with what it may use."""
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
def devices(manifests: Manifests) -> Iterator[Finding]:
    """Ask for what one node has, and for huge pages with EFA (EKS, "machine learning with EFA")."""
    for pod in manifests.pods:
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
            found = f"no toleration of {name} for seconds: ranks wait for a pod on a lost node"
            right, remedy = any(map(_goes_soon, own)), "add it: NoExecute, tolerationSeconds 30"
            row, level = (not right, listed, found, remedy), _LEVELS[bool(own)]
            yield from report(Code.TOLERATION, row, level=level)
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


def _goes_soon(toleration: Value) -> bool:
    seconds = toleration["tolerationSeconds"].number
    soon = seconds is not None and 0 <= seconds <= _LONGEST_WAIT
    return soon and toleration["effect"].text == "NoExecute"


def _tolerates_pool(toleration: Value) -> bool:
    key, operator = toleration["key"].text, toleration["operator"].text
    keyed = key == GPU and (operator == "Exists" or toleration["value"].text == "true")
    every = not toleration["key"] and operator == "Exists"
    return (keyed or every) and toleration["effect"].raw in (None, "NoSchedule")
