"""Logs of NCCL in the shapes that public ones have: where each came from is said with it."""

_HEAD = """\
node-0:{pid}:{pid} [0] NCCL INFO Bootstrap : Using eth0:10.0.0.7<0>
"""

_TAIL = """\
node-0:9:30 [0] NCCL INFO ncclCommInitRankConfig comm 0x5 rank 0 nranks 16 cudaDev 0 - Init START
node-0:9:30 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
node-0:9:30 [0] NCCL INFO ncclCommInitRankConfig comm 0x5 rank 0 nranks 16 - Init COMPLETE
"""


def _lines(*words: str) -> str:
    return "".join(f"node-0:9:30 [0] NCCL INFO {line}\n" for line in words)


def _channels(how: str) -> str:
    return _lines(
        f"Channel 00/0 : 8[0] -> 0[0] [receive] via NET/{how}",
        f"Channel 00/0 : 0[0] -> 8[0] [send] via NET/{how}",
    )


HEAD = _HEAD.format(pid=9)

# aws-ofi-nccl 1.4 did not count (NVIDIA/nccl#527).
P4D_OLD = (
    HEAD
    + _lines(
        "NET/OFI Using aws-ofi-nccl 1.4.0aws",
        "NET/OFI Selected Provider is efa",
        "Using network AWS Libfabric",
    )
    + _TAIL
    + _channels("AWS Libfabric/0/GDRDMA")
)
# awslabs/awsome-distributed-ai, megatron-bridge on p5: plugin 1.18, 32 interfaces.
P5 = (
    HEAD
    + _lines(
        "NET/OFI Initializing aws-ofi-nccl 1.18.0",
        "NET/OFI Using Libfabric version 2.4",
        "NET/OFI Using transport protocol RDMA (platform set)",
        "NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)",
        "PROFILER/Plugin: Could not find: libnccl-profiler.so.",
        "Initialized NET plugin Libfabric",
        "Assigned NET plugin Libfabric to comm",
        "Using network Libfabric",
    )
    + _TAIL
    + _channels("Libfabric/3/GDRDMA")
)

# NVIDIA/nccl#1597, two p5en.
P5EN = (
    HEAD
    + _lines(
        "NET/OFI Initializing aws-ofi-nccl 1.14.0",
        "NET/OFI Selected Provider is efa (found 16 nics)",
        "NET/OFI NIC group 7 device #0 0000:a3:00.0",
        "NET/OFI Support for DMA-BUF registrations: false",
        "Using network Libfabric",
    )
    + _TAIL
    + _channels("Libfabric/0/GDRDMA")
)

# Published runs of pods that asked for 15 or 8 of a p5en's 16.
P5EN_PART = P5EN.replace("found 16", "found 15")

# Plugin 1.16 in a pod without EFA devices, then NCCL's own TCP.
NO_DEVICES = (
    HEAD
    + _lines(
        "NET/OFI Initializing aws-ofi-nccl 1.16.2",
        "NET/OFI Setting provider_filter to efa",
        "NET/OFI No eligible providers were found",
        "NET/IB : No device found.",
        "NET/Socket : Using [0]eth0:10.0.0.7<0>",
        "Initialized NET plugin Socket",
        "Using network Socket",
    )
    + _TAIL
    + _channels("Socket/0")
)

# No plugin in the image.
NO_PLUGIN = HEAD + _lines(
    "NET/Plugin: Could not find: libnccl-net.so",
    "NET/IB : No device found.",
    "NET/Socket : Using [0]eth0:10.0.0.7<0>",
    "Using network Socket",
)

# The plugin of a libfabric that was built without efa.
TCP_PROVIDER = HEAD + _lines(
    "NET/OFI Initializing aws-ofi-nccl 1.21.1",
    "NET/OFI Selected provider is tcp, fabric is 10.201.0.0/16 (found 1 nics)",
    "Using network Libfabric",
)

# aws-ofi-nccl 1.14 and later on instances whose GPUs EFA cannot reach.
NO_GPU_DIRECT = P5EN.replace("/GDRDMA", "")
