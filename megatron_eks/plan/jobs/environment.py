"""The environment of a pod: what the plan sets, and which folders it may name."""

import re
from collections.abc import Collection, Mapping
from posixpath import normpath

from megatron_eks.catalog.allocator import ALLOCATOR, options
from megatron_eks.catalog.environment import FOLDERS, Policy, advised_against, allowed, refused
from megatron_eks.catalog.environment_values import off_efa
from megatron_eks.catalog.instances import InstanceType
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.job import GpuJob, Job, NcclTestJob
from megatron_eks.plan.cluster.storage import EFS_MOUNT_PATH
from megatron_eks.plan.jobs import tracking
from megatron_eks.plan.jobs.job import SecretFile
from megatron_eks.predict.layout import Layout

NCCL_LOG = "/tmp/nccl/%h.%p.log"  # noqa: S108 -- a path inside the pod, on its own volume

_BLACKWELL = 10

# Whose library puts the home directory, /tmp in our images, in the place of `~`.
_FILL_IN_HOME = frozenset({"HF_ASSETS_CACHE", "HF_HOME", "HF_HUB_CACHE"})
_WRITABLE = ("/tmp", "/dev/shm")  # noqa: S108 -- mounts of every pod
_BY_SHELL = re.compile(r"(?<!\$)\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*))")
_BY_KUBERNETES = re.compile(r"(?<!\$)\$\((?P<name>[^()]*)\)")
_SEGMENTS = "expandable_segments:True"
_BUFFER = "TORCH_NCCL_TRACE_BUFFER_SIZE"

# Subsystems in which NCCL and its EFA plugin name their network.
_READ = frozenset({"INIT", "NET"})


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
    env: dict[str, str] = {}
    for part in (tracking.variables(job), *parts):
        env |= part
    if job.runtime.rendezvous != "static":
        # Otherwise an agent that was the first before does not say again where its store is, and
        # who takes a lost node's place waits for it in vain (torch 2.15, dynamic_rendezvous.py).
        env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    return dict(sorted((env | job.runtime.env).items()))


# Sources: Kubernetes, "Configure a Security Context" (readOnlyRootFilesystem) and "Define Dependent
# Environment Variables"; huggingface_hub 2.4, constants.py, and datasets 5.2, config.py: the former
# fills in `~` and `$HOME`, the latter only `~`, and only in HF_HOME.


def mounts(cluster: ClusterConfig) -> tuple[str, ...]:
    """Return where the pods of a job can write."""
    return (*shared_mounts(cluster), *_WRITABLE)


def shared_mounts(cluster: ClusterConfig) -> tuple[str, ...]:
    """Return where all pods of a job see the same files."""
    efs = (EFS_MOUNT_PATH,) if cluster.storage.efs else ()
    return (cluster.storage.lustre.mount_path, *efs)


def misplaced(name: str, value: str, cluster: ClusterConfig) -> Policy | None:
    """Judge a folder that no pod can make: all of its file system but the mounts is read-only."""
    if name not in FOLDERS or not value or (name in _FILL_IN_HOME and value.startswith("~/")):
        return None
    mount_path = cluster.storage.lustre.mount_path
    instead = f"use a folder below {mount_path}/, or below /tmp/ for what may be lost"
    if not value.startswith("/"):
        reason = f"{value!r} does not begin at the root, and no shell fills in ~ or $HOME"
        return refused(reason, instead)
    place = normpath(value)
    if any(place == mount or place.startswith(f"{mount}/") for mount in mounts(cluster)):
        return None
    reason = f"a pod may not write to {value}: all but its mounts is read-only"
    return refused(reason, instead)


def unfilled(value: str, before: Collection[str]) -> Policy | None:
    """Judge a name in a value that stays as it is written; so many variables stand before it."""
    by_shell = _BY_SHELL.search(value)
    if by_shell:
        found = by_shell["plain"] or by_shell["braced"]
        reason = f"no shell reads {value!r}, and ${found} stays in it"
        return advised_against(reason, "write out what it stands for")
    for match in _BY_KUBERNETES.finditer(value):
        # Kubernetes gives the addresses of Services so.
        if match["name"] not in before and not match["name"].endswith(("_HOST", "_PORT")):
            reason = f"the pod has no {match['name']!r} before it, and $({match['name']}) stays"
            return advised_against(reason, "write out what it stands for")
    return None


PLANNED = {
    **collectives(""),
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "TORCH_FR_BUFFER_SIZE": collectives("")[_BUFFER],
    "TORCH_FR_DUMP_ON_TIMEOUT": "1",
}
"""What the plan sets, by every name that the programs know it by."""


def beside_plan(job: Job, name: str, value: str) -> Policy | None:
    """Judge what the plan sets too; None where its reason to set it speaks against the value."""
    if not isinstance(job, GpuJob):
        return None
    if PLANNED.get(name) == value or (name in ALLOCATOR and options(value) == options(_SEGMENTS)):
        return advised_against("the plan sets it to this already")
    # NCCL, `src/debug.cc`: levels in any case. A test of the network is where TRACE is looked at.
    levels = {"INFO", "TRACE"} if isinstance(job, NcclTestJob) else {"INFO"}
    keeps = {
        "NCCL_DEBUG": value.upper() in levels,
        "NCCL_DEBUG_SUBSYS": _logged(value) == _READ,
        # Of torch's options these take the place of the plan's.
        "PYTORCH_ALLOC_CONF": options(value).get("expandable_segments") == "True",
    }
    return allowed("it keeps what the plan sets") if keeps.get(name) else None


def _logged(value: str) -> frozenset[str]:
    """Return which of the subsystems that the start-up guard reads are logged.

    NCCL, `src/debug.cc`: names without spaces, between commas and in any case; `^` before the
    first one stands for all but these.
    """
    names = set(value.upper().removeprefix("^").split(","))
    named = _READ if "ALL" in names else _READ & names
    return _READ - named if value.startswith("^") else named


def shows_efa(env: Mapping[str, str]) -> bool:
    """Tell whether a job file leaves NCCL on EFA, and its log where the start-up guard reads it.

    `megatron_eks.programs.start.watch` ends ranks that do not say so, and may not look where they
    were told to do otherwise.
    """
    level = env.get("NCCL_DEBUG", "INFO").upper()
    said = level in {"INFO", "TRACE"} and _logged(env.get("NCCL_DEBUG_SUBSYS", "ALL")) == _READ
    log = env.get("NCCL_DEBUG_FILE", NCCL_LOG) == NCCL_LOG
    return said and log and not off_efa(env) and env.get("FI_EFA_IFACE", "all") == "all"
