"""The environment of a training pod: what the policy sets, and what the job file adds."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from megatron_eks.catalog.instances import InstanceType
    from megatron_eks.config.job import MegatronJob
    from megatron_eks.predict.memory import Layout

NCCL_LOG = "/tmp/nccl/%h.%p.log"  # noqa: S108 -- a path inside the pod, on its own volume

_BLACKWELL = 10


def job_environment(
    job: "MegatronJob", layout: "Layout", instance: "InstanceType", log_directory: str
) -> "Mapping[str, str]":
    """Return every variable of the pod; the operator adds torchrun's own."""
    env = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": NCCL_LOG,
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{log_directory}/flight-recorder-",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TRITON_CACHE_DIR": "/tmp/triton",  # noqa: S108 -- a path inside the pod
    }
    # Megatron asserts this for tensor and context parallelism before Blackwell: it orders
    # communication before the kernels that wait for it (arguments.py, validate_args).
    if (layout.tensor > 1 or layout.context > 1) and instance.gpu.cuda_major < _BLACKWELL:
        env["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    return dict(sorted((env | job.runtime.env).items()))
