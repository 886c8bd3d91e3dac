"""The verdict on a variable where it is set: by its value, the hardware, layout and network.

Sources, besides those of megatron_eks.catalog.environment: libfabric, man fi_efa(7); Megatron-LM
`megatron/training/arguments.py`, validate_args (core_v0.19); NCCL user guide, "NCCL_NVLS_ENABLE".
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from megatron_eks.catalog.environment import (
    POLICIES,
    PREFIXES,
    REMOVE,
    TABLE,
    Policy,
    Verdict,
    advised_against,
    allowed,
    is_secret,
    no_effect,
    refused,
)
from megatron_eks.catalog.environment_values import by_value
from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.tables import by_name

_HOPPER, _BLACKWELL = 9, 10

# Written out, but what the library does anyway.
_BY_DEFAULT = {name: values.split(",") for name, values in by_name(TABLE["defaults"]).items()}
ABOUT_EFA = re.compile(
    r"FI_.*|RDMAV_.*|NCCL_(NET|TOPO_FILE|CROSS_NIC)"
    r"|NCCL_(BUFFSIZE|P2P_NET_CHUNKSIZE|MIN_NCHANNELS|IB_\w+|NET_GDR_\w+|SOCKET_NTHREADS"
    r"|NSOCKS_PERTHREAD)|OFI_NCCL_.*"
)
"""What is judged as it is because of EFA and its plugin."""
_OF_EFA = ("FI_", "OFI_", "RDMAV_", "NCCL_NET_GDR_", "NCCL_IB_")
_CACHES = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR"})
_TRUE = frozenset({"1", "on", "true", "yes"})
_FALSE = frozenset({"0", "false", "no", "off"})
# CUDA C++ Programming Guide, "CUDA Environment Variables", CUDA_DEVICE_MAX_CONNECTIONS.
_QUEUES = re.compile(r"[1-9]|[12]\d|3[0-2]")
_WRITTEN = re.compile(r"[^${]+$")


@dataclass(frozen=True)
class Context:
    """Where a variable is set; what nobody knows is None, and then the usual verdict holds."""

    instance: InstanceType | None = None
    host_network: bool = False
    splits_layers: bool | None = None
    """Whether Megatron runs with tensor or context parallelism."""
    fsdp: bool = False
    """Whether weights are gathered while kernels run: FSDP2 or Megatron-FSDP."""
    shared: tuple[str, ...] = ()
    """Where shared file systems are mounted."""

    @property
    def is_hopper_or_before(self) -> bool:
        """Tell whether the GPUs may need one queue for the order of their work."""
        return self.instance is None or self.instance.gpu.cuda_major < _BLACKWELL


IN_CLEAR = Policy(
    Verdict.REFUSED,
    "a secret in a file or an environment ends in logs",
    "mount a Kubernetes Secret as a file",
)


def judge(name: str, value: str, context: Context) -> Policy:
    """Return the policy for one variable at one place."""
    if value in _BY_DEFAULT.get(name, ()):
        return allowed("what the library does anyway")
    own, instance = BY_NAME.get(name), context.instance
    by_place = own(value, context) if own else _by_place(name, value, context)
    policy = by_place or by_value(name, value) or POLICIES.get(name)
    stops = policy is not None and policy.verdict is Verdict.REFUSED
    lacks_efa = instance is not None and not instance.efa_interfaces
    if lacks_efa and not stops and ABOUT_EFA.fullmatch(name):
        said = no_effect if name.startswith(_OF_EFA) else allowed
        return said("nodes of this type have no EFA, so NCCL uses TCP")
    if policy is None:
        policy = next((of for prefix, of in PREFIXES.items() if name.startswith(prefix)), None)
    if policy is None and is_secret(name, value):
        return IN_CLEAR
    return policy or allowed("nothing speaks against it")


def judge_any(name: str, value: str, contexts: Iterable[Context]) -> Policy:
    """Return the mildest policy of several places, of which one will be the real one."""
    order = [Verdict.ALLOWED, Verdict.SET, Verdict.ADVISED_AGAINST, Verdict.NO_EFFECT]
    found = [judge(name, value, context) for context in contexts]
    return min(
        found, key=lambda each: order.index(each.verdict) if each.verdict in order else len(order)
    )


def _by_place(name: str, value: str, context: Context) -> Policy | None:
    inside = tuple(f"{mount.rstrip('/')}/" for mount in context.shared)
    if name in _CACHES and f"{value}/".startswith(inside):
        return advised_against("on a shared file system all ranks wait for one lock")
    return None


def _device_rdma(value: str, context: Context) -> Policy | None:
    """Judge what libfabric 1.18 and later find out themselves (fi_efa(7)).

    libfabric, prov/efa/src/rdm/efa_rdm_util.c, efa_rdm_get_use_device_rdma: abort() at any other
    word, and at a yes where the device cannot read.
    """
    instance, known = context.instance, value.lower() in _TRUE | _FALSE
    if not known and _WRITTEN.match(value) and (instance is None or instance.efa_interfaces):
        reason = f"{value!r} is neither yes nor no, and libfabric ends the program"
        return refused(reason)
    if instance is None:
        no = "where the hardware can, it keeps EFA from reading and writing the GPUs' memory"
        return advised_against(no) if value.lower() in _FALSE else None
    if not instance.efa_interfaces:
        return None
    on = value.lower() in _TRUE
    if on and not instance.gpu_direct_rdma:
        reason = f"EFA of {instance.name} has no RDMA, and libfabric ends the program"
        return refused(reason)
    if not on and instance.gpu_direct_rdma:
        return advised_against("it keeps EFA from reading and writing the GPUs' memory")
    return None


def _nvls(value: str, _context: Context) -> Policy | None:
    """Judge NVLink SHARP, which is in the switches between Hopper GPUs and their successors."""
    return None if value == "0" else allowed("NCCL uses NVLink SHARP where it is")


def _algorithm(value: str, context: Context) -> Policy | None:
    """Judge a choice of algorithms of which none is there (NCCL user guide, "NCCL_ALGO")."""
    instance = context.instance
    if instance is None or not instance.efa_interfaces:
        return None
    named = {each.strip().lower() for each in value.split(",")}
    no_sharp = instance.gpu.cuda_major < _HOPPER or not instance.nvlink_gb_s
    if no_sharp and named <= {"nvls", "nvlstree"}:
        return refused(f"{instance.name} has no NVLink SHARP, and NCCL stops without another")
    if named <= {"collnetchain", "collnetdirect"}:
        return refused("EFA has no switches that add up, and NCCL stops without another")
    return None


def _connections(value: str, context: Context) -> Policy | None:
    """Judge the number of queues between program and GPU (Megatron-LM, validate_args)."""
    if context.splits_layers is not True and not _QUEUES.fullmatch(value) and _WRITTEN.match(value):
        return advised_against(f"CUDA takes 1 to 32 queues, and no {value!r}")
    if context.fsdp:
        slow = "FSDP gathers weights while kernels run; one queue puts them in a row"
        return advised_against(slow) if value == "1" else allowed("FSDP wants more than one queue")
    if not context.is_hopper_or_before:
        slow = "Blackwell keeps the order without it, and one queue makes work wait"
        fine = "Blackwell keeps the order by itself"
        return advised_against(slow) if value == "1" else allowed(fine)
    if context.splits_layers and value != "1":
        return refused(
            "Megatron stops at any value but 1 with tensor or context parallelism before Blackwell",
            'write "1"',
        )
    if context.splits_layers is False:
        return allowed("without tensor and context parallelism nothing demands a value")
    return None


def _interfaces(value: str, context: Context, *, exact: bool = False) -> Policy:
    """Judge a list of interfaces: a pod has eth0 alone, a node has many with other names.

    NCCL takes prefixes, exact names after `=`, and `^` for all but these (NCCL user guide,
    "NCCL_SOCKET_IFNAME"); Gloo takes exact names only (torch, ProcessGroupGloo: "Unable to find
    address for: ^lo"), and TensorPipe one of them.
    """
    on_host, others, listed = context.host_network, value.startswith("^"), value.removeprefix("^")
    names = [each.removeprefix("=") for each in listed.split(",")]
    remedy = "remove it, or use ^lo,docker,veth,pod-id-link on the host network"
    remedy = "write eth0, or remove it" if exact else remedy
    if on_host and not others and all(each.startswith("en") for each in names):
        # Predictable names, as AL2023 and Bottlerocket give them: ens5 here, enp71s0 there.
        if "en" in names and not exact and not value.startswith("="):
            return allowed("every interface of a node begins so")
        reason = f"{value!r} may be there: the names of a node's interfaces differ between types"
        return advised_against(reason, REMOVE if exact else "use ^lo,docker,veth,pod-id-link")
    whole = exact or listed.startswith("=")
    of_pod = "eth0" in names if whole else any("eth0".startswith(each) for each in names)
    reason = ""
    if exact and others:
        reason = f"it takes names alone, and looks for an interface called {value!r}"
    elif others:
        reason = "it excludes eth0, a pod's only interface" if of_pod and not on_host else ""
    elif on_host:
        reason = f"no interface named {value!r} exists on these nodes"
    elif not of_pod:
        reason = f"{value!r} leaves out eth0, through which alone a pod reaches others"
    return refused(reason, remedy) if reason else allowed("it leaves the right interface")


BY_NAME: dict[str, Callable[[str, Context], Policy | None]] = {
    "CUDA_DEVICE_MAX_CONNECTIONS": _connections,
    "FI_EFA_USE_DEVICE_RDMA": _device_rdma,
    "NCCL_ALGO": _algorithm,
    "NCCL_NVLS_ENABLE": _nvls,
    "NCCL_SOCKET_IFNAME": _interfaces,
    **dict.fromkeys(("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), partial(_interfaces, exact=True)),
}
