"""What is wrong with a list of interfaces for NCCL's, Gloo's or TensorPipe's sockets."""

_REMOVE = "remove it"


def interfaces_fault(name: str, value: str, *, host_network: bool) -> tuple[str, str]:
    """Return what is wrong with a list and what to do, or nothing twice.

    A pod has eth0 alone, a node has many with other names. NCCL takes prefixes, exact names after
    `=`, and `^` for all but these (NCCL user guide, "NCCL_SOCKET_IFNAME"); Gloo takes exact names
    only (torch, ProcessGroupGloo: "Unable to find address for: ^lo"), and TensorPipe one of them.
    """
    if name.startswith(("GLOO", "TP_")):
        return _exact(name.partition("_")[0], value, host_network=host_network)
    excludes = value.startswith("^")
    names = value.removeprefix("^").split(",")
    exact = names[0].startswith("=")
    names[0] = names[0].removeprefix("=")
    has_eth0 = "eth0" in names if exact else any("eth0".startswith(each) for each in names)
    if excludes and has_eth0 and not host_network:
        return "it excludes eth0, a pod's only interface", _REMOVE
    if excludes or (not host_network and has_eth0):
        return "", ""
    remedy = "remove it, or use ^lo,docker,veth,pod-id-link on the host network"
    return _missing(value, host_network=host_network), remedy


def _exact(library: str, value: str, *, host_network: bool) -> tuple[str, str]:
    first, *others = value.split(",")
    remedy = _REMOVE if host_network else "write eth0, or remove it"
    if first.startswith("^"):
        reader = "Gloo" if library == "GLOO" else "TensorPipe"
        reason = f"{reader} takes names alone, and looks for an interface called {first!r}"
        return reason, remedy
    if not host_network and "eth0" in {first, *others}:
        return "", ""
    return _missing(value, host_network=host_network), remedy


def _missing(value: str, *, host_network: bool) -> str:
    if host_network:
        return f"no interface named {value!r} exists on these nodes"
    return f"{value!r} leaves out eth0, through which alone a pod reaches others"
