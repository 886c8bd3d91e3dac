"""Rule over variables that are called nearly as one which libraries read."""

from collections.abc import Iterator

from megatron_eks.catalog.environment import POLICIES
from megatron_eks.catalog.environment_names import READ, meant_by_a_library
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.values import shown
from megatron_eks.rules.variables import variables_of
from megatron_eks.rules.workloads import Manifest

_MORE = (
    *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_VISIBLE_DEVICES", "FI_PROVIDER", "HF_HOME", "HF_TOKEN"),
    *("LD_LIBRARY_PATH", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "OMP_NUM_THREADS"),
    *("NCCL_SOCKET_IFNAME", "NVIDIA_VISIBLE_DEVICES", "PYTHONPATH", "PYTORCH_ALLOC_CONF"),
    *("PYTORCH_CUDA_ALLOC_CONF", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    *("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TRITON_CACHE_DIR", "WANDB_API_KEY", "LOCAL_RANK"),
)
_LEAST = 6


def _bare(name: str) -> str:
    """Return a name without what is easily mistaken: dashes, cases, and the plural."""
    return name.upper().replace("_", "").replace("-", "").rstrip("S")


_KNOWN = frozenset({*POLICIES, *READ, *_MORE})
_BY_BARE = {_bare(name): name for name in sorted(_KNOWN) if len(name) >= _LEAST}


def names(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a variable whose name differs from a known one by underscores, case or letters.

    NCCL user guide, "Environment Variables", libfabric, fi_efa(7), and PyTorch, "CUDA Environment
    Variables": what is called otherwise is read by nobody.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            # Where both are set the program may well read its own.
            listed = [(path, name) for path, name, _ in variables_of(container)]
            given = {name for _, name in listed}
            for path, name in listed:
                meant = _BY_BARE.get(_bare(name)) or meant_by_a_library(name)
                if name in _KNOWN or meant is None or meant in given:
                    continue
                # What is written in small letters is a program's own.
                if name.islower():
                    continue
                found, remedy = f"nobody reads {shown(name)}", f"did you mean {meant}?"
                yield Finding(Code.VARIABLE_ADVISED_AGAINST, path, found, remedy, Level.WARNING)
