"""Values that a library does not take, and names that are nearly those which it reads."""

import pytest

from megatron_eks.catalog.environment import POLICIES, Verdict, meant
from megatron_eks.catalog.environment_verdicts import Context, judge

REFUSED, ADVISED, ALLOWED = Verdict.REFUSED, Verdict.ADVISED_AGAINST, Verdict.ALLOWED

WRONG = [
    (REFUSED, "TORCH_DISTRIBUTED_DEBUG", "VERBOSE", "use OFF, INFO or DETAIL"),
    (REFUSED, "WANDB_MODE", "disable", "did you mean disabled?"),
    (REFUSED, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "true", "write a whole number"),
    (REFUSED, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "30m", "write the number alone"),
    (REFUSED, "TORCH_NCCL_DUMP_ON_TIMEOUT", "on", "use 1 or 0"),
    (REFUSED, "NVTE_DEBUG", "true", "use 0 or 1"),
    (REFUSED, "HF_HUB_DOWNLOAD_TIMEOUT", "60s", "write seconds, without a unit"),
    (REFUSED, "HF_ENDPOINT", "hub.example.com", "write https://hub.example.com"),
    (ADVISED, "FI_PROVIDER", "^efa,tcp", "remove it"),
    (ADVISED, "FI_PROVIDER", "efa ", "remove it"),
    (REFUSED, "PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMalloc", "remove it"),
    (REFUSED, "PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:16", "remove it"),
    (REFUSED, "PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:80", "remove it"),
    (ADVISED, "FI_PROVIDER", "EFA", "write efa"),
    (ADVISED, "NCCL_DEBUG", "DEBUG", "use VERSION, WARN, INFO, ABORT or TRACE"),
    (ADVISED, "NCCL_DEBUG", "TRCE", "did you mean TRACE?"),
    (ADVISED, "NCCL_DEBUG_SUBSYS", "INIT,NETWORK", "did you mean NET?"),
    (ADVISED, "NCCL_P2P_LEVEL", "NVLINK", "did you mean NVL?"),
    (ADVISED, "NCCL_P2P_LEVEL", "nvl", "did you mean NVL?"),
    (ADVISED, "NCCL_LAUNCH_MODE", "GROUPS", "did you mean GROUP?"),
    (ADVISED, "NCCL_NTHREADS", "2048", "use 64, 128, 256 or 512"),
    (ADVISED, "NCCL_SOCKET_FAMILY", "IPv4", "use AF_INET, or remove it"),
    (ADVISED, "FI_LOG_LEVEL", "verbose", "use warn, trace, info or debug"),
    (ADVISED, "CUDA_DEVICE_ORDER", "PCI", "use FASTEST_FIRST or PCI_BUS_ID"),
    (ADVISED, "CUDA_DEVICE_MAX_CONNECTIONS", "64", "remove it"),
    (ADVISED, "CUBLAS_WORKSPACE_CONFIG", ":4096", "use :4096:8 or :16:8"),
    (ADVISED, "RDMAV_HUGEPAGES_SAFE", "1", "remove it"),
]
RIGHT = [
    *(("NCCL_P2P_LEVEL", value) for value in ("NVL", "PIX", "5", "$LEVEL")),
    *(("TORCH_NCCL_ASYNC_ERROR_HANDLING", value) for value in ("1", "2", "3")),
    *(("WANDB_MODE", value) for value in ("offline", "shared", "dryrun", "")),
    *(("FI_PROVIDER", value) for value in ("efa", "efa,shm", "^tcp")),
    *(("TORCH_DISTRIBUTED_DEBUG", value) for value in ("info", "OFF")),
    *(("CUBLAS_WORKSPACE_CONFIG", value) for value in (":4096:8", ":4096:2:16:8")),
    ("TORCH_NCCL_TRACE_CPP_STACK", "True"),
    ("NCCL_NTHREADS", "512"),
    ("NCCL_LAUNCH_MODE", "PARALLEL"),
    ("FI_LOG_LEVEL", "WARN"),
    ("HF_ENDPOINT", "http://mirror:8080"),
    ("NVTE_DEBUG_LEVEL", "2"),
    ("TP_SOCKET_IFNAME", "eth0"),
    ("TORCHELASTIC_ERROR_FILE", "/shared/error.json"),
]


@pytest.mark.parametrize(("verdict", "name", "value", "instead"), WRONG)
def test_values_that_no_library_takes(verdict, name, value, instead):
    """Each is judged by what the library makes of it, and the remedy says what to write."""
    policy = judge(name, value, Context())
    assert (policy.verdict, policy.instead) == (verdict, instead)


@pytest.mark.parametrize(("name", "value"), RIGHT)
def test_values_that_a_library_takes(name, value):
    """Words in the case that counts, old words, numbers and what is filled in later are right."""
    assert judge(name, value, Context()).verdict is ALLOWED


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("NCCL_DEGUB", "NCCL_DEBUG"),
        ("FI_EFA_USE_DEVICE_RMDA", "FI_EFA_USE_DEVICE_RDMA"),
        ("NCCL_SOKCET_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("NVTE_FLASH_ATTENTION", "NVTE_FLASH_ATTN"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
        ("NCCL_NVLS_NCHANELS", "NCCL_NVLS_NCHANNELS"),
    ],
)
def test_names_that_were_meant(name, right):
    """Letters that changed places, a letter too few, another case, a word written out."""
    assert meant(name, POLICIES) == right


@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_P2P_NVL_CHUNKSIZE", "NCCL_NVB_DISABLE", "NCCL_ENV_PLUGIN", "NCCL_LL_BUFFSIZE"),
        *("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_CPP_STACK", "FI_EFA_RX_SIZE", "HF_HOME"),
        *("NCCL_VERSION", "NCCL_HOME", "NCCL_TESTS_VERSION", "NCCL_ROOT_DIR", "EFA_VERSION"),
        *("TORCH_HOME", "RANK", "FI_EFA_VERSION", "AWS_OFI_NCCL_VERSION", "OUTPUT_DIR"),
    ],
)
def test_names_of_their_own(name):
    """What another library reads, or a build, is no slip."""
    assert meant(name, POLICIES) is None
