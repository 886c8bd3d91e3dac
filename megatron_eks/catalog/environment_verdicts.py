"""The verdict on a variable where it is set: by its value, the hardware, layout and network.

Sources, besides those of megatron_eks.catalog.environment: libfabric, man fi_efa(7); Megatron-LM
`megatron/training/arguments.py`, validate_args (core_v0.19); NCCL user guide, "NCCL_NVLS_ENABLE".
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
    r"FI_.*|RDMAV_.*|NCCL_(PROTO|ALGO|NET|NET_PLUGIN|TUNER_PLUGIN|TOPO_FILE|CROSS_NIC)"
    r"|NCCL_(BUFFSIZE|P2P_NET_CHUNKSIZE|MIN_NCHANNELS|IB_\w+|NET_GDR_\w+|SOCKET_NTHREADS"
    r"|NSOCKS_PERTHREAD)|OFI_NCCL_.*"
)
"""What is judged as it is because of EFA and its plugin."""
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
    by_place = _by_place(name, value, context)
    if by_place is not None:
        return by_place
    policy = by_value(name, value) or POLICIES.get(name)
    if policy is not None:
        return policy
    for prefix, policy in PREFIXES.items():
        if name.startswith(prefix):
            return policy
    if is_secret(name, value):
        return IN_CLEAR
    return allowed("nothing speaks against it")


def judge_any(name: str, value: str, contexts: Iterable[Context]) -> Policy:
    """Return the mildest policy of several places, of which one will be the real one."""
    order = [Verdict.ALLOWED, Verdict.SET, Verdict.ADVISED_AGAINST, Verdict.NO_EFFECT]
    found = [judge(name, value, context) for context in contexts]
    return min(
        found, key=lambda each: order.index(each.verdict) if each.verdict in order else len(order)
    )


def _by_place(name: str, value: str, context: Context) -> Policy | None:
    if name in _CACHES:
        inside = (f"{mount.rstrip('/')}/" for mount in context.shared)
        if f"{value}/".startswith(tuple(inside)):
            return advised_against("on a shared file system all ranks wait for one lock")
        return None
    own = BY_NAME.get(name)
    if own is not None:
        return own(name, value, context)
    instance = context.instance
    if instance is not None and not instance.efa_interfaces and ABOUT_EFA.fullmatch(name):
        return _without_efa(name, value, instance)
    return None


def _without_efa(name: str, value: str, instance: InstanceType) -> Policy | None:
    """Judge what is about EFA on a type that has none: its nodes talk by TCP."""
    if name in {"NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"}:
        return allowed(f"{instance.name} has no EFA, so NCCL uses TCP")
    if name in {"NCCL_ALGO", "NCCL_PROTO"}:
        return advised_against("NCCL chooses by the size of each message")
    if name.startswith(("FI_", "OFI_", "RDMAV_", "NCCL_NET_GDR_", "NCCL_IB_")):
        return no_effect(f"{instance.name} has no EFA, so NCCL uses TCP")
    if name == "NCCL_NET":
        return allowed("what NCCL uses here anyway") if value == "Socket" else None
    if name.endswith("_PLUGIN"):
        return None
    return allowed(f"{instance.name} has no EFA, whose plugin would set it")


def _device_rdma(_name: str, value: str, context: Context) -> Policy | None:
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
        return no_effect(f"{instance.name} has no EFA, so NCCL uses TCP")
    on = value.lower() in _TRUE
    if on and not instance.gpu_direct_rdma:
        reason = f"EFA of {instance.name} has no RDMA, and libfabric ends the program"
        return refused(reason)
    if not on and instance.gpu_direct_rdma:
        return advised_against("it keeps EFA from reading and writing the GPUs' memory")
    return None


def _gpu_direct(_name: str, _value: str, context: Context) -> Policy | None:
    instance = context.instance
    if instance is not None and not instance.gpu_direct_rdma:
        return no_effect(f"{instance.name} has no GPUDirect RDMA")
    return None


def _nvls(_name: str, value: str, context: Context) -> Policy | None:
    """Judge NVLink SHARP, which is in the switches between Hopper GPUs and their successors."""
    instance = context.instance
    if instance is not None and (instance.gpu.cuda_major < _HOPPER or not instance.nvlink_gb_s):
        return no_effect(f"{instance.name} has no NVLink SHARP")
    if value != "0":
        return allowed("NCCL uses NVLink SHARP where it is")
    return None


def _algorithm(name: str, value: str, context: Context) -> Policy | None:
    """Judge a choice of algorithms of which none is there (NCCL user guide, "NCCL_ALGO")."""
    instance = context.instance
    if instance is None:
        return None
    if not instance.efa_interfaces:
        return _without_efa(name, value, instance)
    named = {each.strip().lower() for each in value.split(",")}
    no_sharp = instance.gpu.cuda_major < _HOPPER or not instance.nvlink_gb_s
    if no_sharp and named <= {"nvls", "nvlstree"}:
        return refused(f"{instance.name} has no NVLink SHARP, and NCCL stops without another")
    if named <= {"collnetchain", "collnetdirect"}:
        return refused("EFA has no switches that add up, and NCCL stops without another")
    return None


def _cumem(_name: str, value: str, context: Context) -> Policy | None:
    """Judge memory by cuMem, without which NCCL has no NVLink SHARP ("NCCL_NVLS_ENABLE")."""
    instance = context.instance
    if value != "0" or instance is None or instance.gpu.cuda_major < _HOPPER:
        return None
    return advised_against("NVLink SHARP needs it") if instance.nvlink_gb_s else None


def _peer_to_peer(name: str, _value: str, context: Context) -> Policy | None:
    instance = context.instance
    if instance is None:
        return None
    if instance.gpus == 1:
        return no_effect(f"{instance.name} has one GPU")
    if name == "NCCL_P2P_DISABLE" and not instance.nvlink_gb_s:
        return advised_against("GPUs of a node then talk through the memory of the host")
    return None


def _cards(_name: str, _value: str, context: Context) -> Policy | None:
    instance = context.instance
    if instance is not None and instance.network_cards == 1:
        return no_effect(f"{instance.name} has one network card")
    return None


def _connections(_name: str, value: str, context: Context) -> Policy | None:
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


def _socket_interface(name: str, value: str, context: Context) -> Policy:
    names = [each.removeprefix("=") for each in value.split(",")]
    if context.host_network and all(each.startswith("en") for each in names):
        # Predictable names, as AL2023 and Bottlerocket give them: ens5 here, enp71s0 there.
        if name.startswith("NCCL") and "en" in names and not value.startswith("="):
            return allowed("every interface of a node begins so")
        instead = "use ^lo,docker,veth,pod-id-link" if name.startswith("NCCL") else REMOVE
        reason = f"{value!r} may be there: the names of a node's interfaces differ between types"
        return advised_against(reason, instead)
    reason, instead = _interfaces_fault(name, value, host_network=context.host_network)
    return refused(reason, instead) if reason else allowed("it leaves the right interface")


def _interfaces_fault(name: str, value: str, *, host_network: bool) -> tuple[str, str]:
    """Return what is wrong with a list and what to do, or nothing twice.

    A pod has eth0 alone, a node has many with other names. NCCL takes prefixes, exact names after
    `=`, and `^` for all but these (NCCL user guide, "NCCL_SOCKET_IFNAME"); Gloo takes exact names
    only (torch, ProcessGroupGloo: "Unable to find address for: ^lo"), and TensorPipe one of them.
    """
    if name.startswith(("GLOO", "TP_")):
        return _exact_interfaces(name.partition("_")[0], value, host_network=host_network)
    excludes = value.startswith("^")
    names = value.removeprefix("^").split(",")
    exact = names[0].startswith("=")
    names[0] = names[0].removeprefix("=")
    has_eth0 = "eth0" in names if exact else any("eth0".startswith(each) for each in names)
    if excludes and has_eth0 and not host_network:
        return "it excludes eth0, a pod's only interface", REMOVE
    if excludes or (not host_network and has_eth0):
        return "", ""
    remedy = "remove it, or use ^lo,docker,veth,pod-id-link on the host network"
    return _missing_interface(value, host_network=host_network), remedy


def _exact_interfaces(library: str, value: str, *, host_network: bool) -> tuple[str, str]:
    first, *others = value.split(",")
    remedy = REMOVE if host_network else "write eth0, or remove it"
    if first.startswith("^"):
        reader = "Gloo" if library == "GLOO" else "TensorPipe"
        reason = f"{reader} takes names alone, and looks for an interface called {first!r}"
        return reason, remedy
    if not host_network and "eth0" in {first, *others}:
        return "", ""
    return _missing_interface(value, host_network=host_network), remedy


def _missing_interface(value: str, *, host_network: bool) -> str:
    if host_network:
        return f"no interface named {value!r} exists on these nodes"
    return f"{value!r} leaves out eth0, through which alone a pod reaches others"


BY_NAME: dict[str, Callable[[str, str, Context], Policy | None]] = {
    "CUDA_DEVICE_MAX_CONNECTIONS": _connections,
    "FI_EFA_USE_DEVICE_RDMA": _device_rdma,
    "NCCL_ALGO": _algorithm,
    "NCCL_CUMEM_ENABLE": _cumem,
    "GLOO_SOCKET_IFNAME": _socket_interface,
    "NCCL_CROSS_NIC": _cards,
    "NCCL_NET_GDR_LEVEL": _gpu_direct,
    "NCCL_NET_GDR_READ": _gpu_direct,
    "NCCL_NVLS_ENABLE": _nvls,
    "NCCL_P2P_DISABLE": _peer_to_peer,
    "NCCL_SHM_DISABLE": _peer_to_peer,
    "NCCL_SOCKET_IFNAME": _socket_interface,
    "TP_SOCKET_IFNAME": _socket_interface,
}
