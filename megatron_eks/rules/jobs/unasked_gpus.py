"""Rules over ranks for GPUs that their container does not ask for."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.hardware import instance_types
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.values import items, mapping, number
from megatron_eks.rules.workloads import EFA, GPU, Container, Manifest

_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
# What only looks at them.
_WATCHES = re.compile(r"dcgm|exporter|nvidia-smi|nvtop")
_NCCL_TEST = re.compile(r"\b(all_reduce|all_gather|alltoall|reduce_scatter|sendrecv)_perf\b")
_OTHER_WAYS = ("hostIPC", "hostPID", "runtimeClassName", "schedulerName")
_NO_GPUS = ("gloo", "mpi", "--no_cuda", "--use_cpu", "--cpu")


def gpus(manifest: Manifest) -> Iterator[Finding]:
    """Warn of several ranks on a node with GPUs, in a container that asks for none.

    Kubernetes, "Schedule GPUs": the device plugin gives a container the devices of its limit; one
    that sees all by NVIDIA_VISIBLE_DEVICES takes those of others (NVIDIA/k8s-device-plugin).
    """
    for pod in manifest.pods:
        claimed = bool(items(pod.spec.get("resourceClaims")))
        if claimed or all(_asks(each) for each in pod.containers):
            continue
        meant = any(each.gpus for each in instance_types(pod)) or pod.names(EFA)
        for container in pod.containers:
            if container.is_init or _asks(container):
                continue
            seen = any(each.name == _VISIBLE for each in container.variables)
            several = _several(container) and not any(each in container.line for each in _NO_GPUS)
            if not several or not (meant or seen):
                continue
            found = f"several ranks and no {GPU}: the container is given no GPU"
            if seen:
                found = f"several ranks and no {GPU}: they take GPUs that others were given"
            path = (*container.path, "resources", "limits", GPU)
            remedy = "ask for as many as there are ranks"
            yield Finding(Code.EXTENDED_RESOURCES, path, found, remedy, Level.WARNING)


def of_mpi(manifest: Manifest) -> Iterator[Finding]:
    """Warn of NCCL's tests on workers that ask for no GPU.

    NVIDIA/nccl-tests, README: each rank takes a GPU of its node; kubeflow/mpi-operator: ranks run
    in the workers.
    """
    launchers = [pod for pod in manifest.pods if "Launcher" in pod.path]
    tests = any(_NCCL_TEST.search(each.line) for pod in launchers for each in pod.containers)
    if manifest.kind != "MPIJob" or not tests or any(pod.names(GPU) for pod in manifest.pods):
        return
    for pod in manifest.pods:
        asks = any(_asks(each) for each in pod.containers) or pod.spec.get("resourceClaims")
        meant = any(each.gpus for each in instance_types(pod)) or pod.names(EFA)
        for container in pod.containers[:1] if "Worker" in pod.path and meant and not asks else ():
            found = f"ranks of NCCL's tests and no {GPU}: the container is given no GPU"
            path = (*container.path, "resources", "limits", GPU)
            remedy = "ask for as many as there are slots"
            yield Finding(Code.EXTENDED_RESOURCES, path, found, remedy, Level.WARNING)


def looked_at(manifest: Manifest) -> Iterator[Finding]:
    """Warn of nvidia-smi in a container that asks for no GPU.

    NVIDIA/k8s-device-plugin, README: the driver's programs come into a container with its devices.
    """
    for pod in manifest.pods if manifest.is_job or manifest.kind == "Pod" else ():
        claimed = bool(items(pod.spec.get("resourceClaims")) or pod.annotations)
        # Another runtime or scheduler, or a pod that sees the node, has ways of its own.
        claimed = claimed or any(key in pod.spec for key in _OTHER_WAYS)
        for container in pod.containers if not claimed else ():
            rights = mapping(container.body.get("securityContext")) or {}
            added = (mapping(rights.get("capabilities")) or {}).get("add")
            if container.is_init or rights.get("privileged") is True or items(added):
                continue
            first = container.words[0] if container.words else ((), "")
            told = any(each.name == _VISIBLE for each in container.variables)
            if first[1].rpartition("/")[2] != "nvidia-smi" or _asks(container) or told:
                continue
            found = f"nvidia-smi and no {GPU}: the container has neither the driver nor a GPU"
            path = (*container.path, "resources", "limits", GPU)
            yield Finding(Code.EXTENDED_RESOURCES, path, found, "ask for 1", Level.WARNING)


def seen(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a container of a job that sees every GPU of its node, and asks for none.

    NVIDIA/k8s-device-plugin, README, NVIDIA_VISIBLE_DEVICES: all is what images of CUDA bring, and
    in a pod it shows GPUs that others were given.
    """
    for pod in manifest.pods if manifest.is_job or manifest.group == "ray.io" else ():
        for container in pod.containers:
            shows = [
                each
                for each in container.variables
                if each.name == _VISIBLE and each.value == "all"
            ]
            watches = _WATCHES.search(f"{container.body.get('image')} {container.line}")
            if not shows or _asks(container) or watches or _several(container):
                continue
            found = "all GPUs of the node, and none asked for: it takes those of others"
            path = (*container.path, "env", shows[0].index)
            remedy = 'ask for nvidia.com/gpu, or write "void"'
            yield Finding(Code.EXTENDED_RESOURCES, path, found, remedy, Level.WARNING)


def _several(container: Container) -> bool:
    counts = [number(v) for _, name, v in launcher_flags(container) if name == "nproc-per-node"]
    return container.has_launcher and any(each is not None and each > 1 for each in counts)


def _asks(container: Container) -> bool:
    names = [*container.amounts("limits"), *container.amounts("requests")]
    return any(each.startswith("nvidia.com/") for each in names)
