"""The environment of a pod: what the policy sets, and what the job file adds."""

from collections.abc import Mapping

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.config.job import Job
from megatron_eks.plan.job import SecretFile
from megatron_eks.predict.layout import Layout

NCCL_LOG = "/tmp/nccl/%h.%p.log"  # noqa: S108 -- a path inside the pod, on its own volume

_BLACKWELL = 10


def collectives(log_directory: str) -> Mapping[str, str]:
    """Return what every job needs whose ranks talk through NCCL."""
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": NCCL_LOG,
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{log_directory}/flight-recorder-",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TRITON_CACHE_DIR": "/tmp/triton",  # noqa: S108 -- a path inside the pod
    }


def megatron(layout: Layout, instance: InstanceType) -> Mapping[str, str]:
    """Return what Megatron asserts for tensor and context parallelism before Blackwell.

    It orders communication before the kernels that wait for it (arguments.py, validate_args).
    """
    asserted = (layout.tensor > 1 or layout.context > 1) and instance.gpu.cuda_major < _BLACKWELL
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if asserted else {}


def hugging_face(token: SecretFile | None) -> Mapping[str, str]:
    """Return where huggingface_hub finds its token (its reference, "Environment variables")."""
    return {"HF_TOKEN_PATH": token.path} if token else {}


def environment(job: Job, *parts: Mapping[str, str]) -> Mapping[str, str]:
    """Return every variable of a pod, in order; torchrun's own come from elsewhere."""
    env = {name: value for part in parts for name, value in part.items()}
    return dict(sorted((env | job.runtime.env).items()))
