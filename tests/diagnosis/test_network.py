"""What NCCL, EFA and torch's sockets print in every run is blamed for nothing."""

import pytest

from megatron_eks.diagnosis.lines import read
from megatron_eks.diagnosis.signatures import Tier, match

HEALTHY = """
w-0:1:1 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: \
cannot open shared object file: No such file or directory
w-0:1:1 [0] NCCL INFO PROFILER/Plugin: Could not find: libnccl-profiler.so
w-0:1:1 [0] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin_v6 symbol.
w-0:1:1 [0] NCCL INFO TUNER/Plugin: Failed to find ncclTunerPlugin_v4 symbol.
w-0:1:1 [0] NCCL INFO NET/IB : No device found.
w-0:1:1 [0] NCCL INFO Failed to open libibverbs.so[.1]
w-0:1:1 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]
w-0:1:1 [0] NCCL INFO Failed to initialize NET plugin IB
w-0:1:1 [0] NCCL INFO NET/OFI Setting FI_EFA_FORK_SAFE environment variable to 1
w-0:1:1 [0] NCCL INFO NET/OFI Setting FI_OPT_EFA_SENDRECV_IN_ORDER_ALIGNED_128_BYTES not supported.
w-0:1:1 [0] NCCL INFO NET/OFI Running on p5.48xlarge platform, Setting NCCL_TOPO_FILE environment \
variable to /opt/aws-ofi-nccl/share/aws-ofi-nccl/xml/p5.48xl-topo.xml
w-0:1:1 [0] NCCL INFO P2P is disabled between connected GPUs 2 and 1. You can repress this message \
with NCCL_IGNORE_DISABLED_P2P=1.
w-0:1:1 [0] NCCL INFO NVLS multicast support is not available on dev 0
w-0:1:1 [0] NCCL INFO [Service thread] Connection closed by localRank 3
w-0:1:1 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.
w-0:1:1 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>
w-0:1:1 [0] NCCL INFO MNNVL busId 0x1a000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0
w-0:1:1 [0] NCCL INFO Could not initialize CollNet, using point-to-point network instead
w-0:1:1 [0] NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: client reregistration event(17)
libfabric:9:17::core:core:fi_getinfo_():1385<info> fi_getinfo: provider ofi_rxm returned -61 \
(No data available)
libfabric:9:17::core:core:cuda_gdrcopy_hmem_init():192<warn> gdrcopy_dl_hmem_init failed!
libibverbs: Warning: couldn't load driver 'libhns-rdmav34.so': libhns-rdmav34.so: cannot open \
shared object file: No such file or directory
[W1120 08:00:01.404 socket.cpp:464] [c10d] The server socket cannot be initialized on [::]:29500 \
(errno: 97 - Address family not supported by protocol).
[W1120 08:00:01.404 socket.cpp:200] [c10d] The hostname of the client socket cannot be retrieved. \
err=-3
[W1120 08:00:01.404 socket.cpp:663] [c10d] The client socket has failed to connect to \
[localhost]:29500 (errno: 99 - Cannot assign requested address).
WARNING:torch.distributed.run:master_addr is only used for static rdzv_backend
[I socket.cpp:725] [c10d] The client socket has connected to [x.ml.svc.cluster.local]:23456 on [y].
"""


@pytest.mark.parametrize("line", HEALTHY.strip().splitlines())
def test_line_of_every_run_is_no_cause(line: str) -> None:
    """It may be told as slow, or where nothing else is found; never before an error."""
    found = [match(each.text) for each in read([line])]
    tiers = [each.tier_of(line) for each in found if each is not None]
    assert all(tier >= Tier.MILD for tier in tiers)
