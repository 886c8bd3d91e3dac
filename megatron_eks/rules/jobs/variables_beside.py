"""Rules over variables that contradict what stands beside them: the command, the GPUs, the node."""

from collections.abc import Iterator

from megatron_eks.catalog.environment_folders import FOLDERS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.hardware import instance_types
from megatron_eks.rules.jobs.job_launches import processes
from megatron_eks.rules.jobs.training_flags import PROGRAM, megatron_flags, megatron_words
from megatron_eks.rules.objects.pod_needs import has_closed_root
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.variables import variables_of
from megatron_eks.rules.workloads import GPU, Container, Manifest, Pod

_SWITCHES = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
_BACKENDS = {
    "flash": ("1", "0", "0"),
    "fused": ("0", "1", "0"),
    "unfused": ("0", "0", "1"),
    "auto": ("1", "1", "1"),
    "local": ("0", "0", "0"),
}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_WHOLE_NODE = 8


def attention(manifest: Manifest) -> Iterator[Finding]:
    """Refuse switches of Transformer Engine that say something else than --attention-backend.

    Megatron-LM core_v0.19, language_module.py, _set_attention_backend: an assertion ends the
    program; without the option it is auto, since core 0.9, so that this is a warning.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            words = [word for _, word in megatron_words(container)]
            if not words or PROGRAM.search(words[0]) is None:
                continue
            options = {flag: value for _, flag, value in megatron_flags(container)}
            chosen = options.get("--attention-backend", "auto")
            wanted = dict(zip(_SWITCHES, _BACKENDS.get(chosen, ()), strict=False))
            for path, name, value in variables_of(container):
                right = wanted.get(name)
                if right is None or value is None or value == right or not value.isdecimal():
                    continue
                said = "--attention-backend" in options
                how = f"--attention-backend {chosen}" if said else "no --attention-backend: auto"
                found = f"{shown(name)} is {value}, and with {how} Megatron ends at any but {right}"
                remedy = "remove it, and choose by --attention-backend: flash, fused or unfused"
                level = Level.ERROR if said else Level.WARNING
                yield Finding(Code.REFUSED_VARIABLE, path, found, remedy, level)


def devices(manifest: Manifest) -> Iterator[Finding]:
    """Judge which GPUs a variable shows in place of the device plugin.

    NVIDIA/k8s-device-plugin, README, "Device list strategy": the plugin sets this variable, and
    one of the container's own takes its place (kubelet, GenerateRunContainerOptions).
    """
    for pod in manifest.pods:
        sizes = [each.gpus for each in instance_types(pod)] or [_WHOLE_NODE]
        for container in pod.containers:
            gpus = container.amount(GPU)
            for each in container.variables if gpus else ():
                path = (*container.path, "env", each.index)
                if each.name != "NVIDIA_VISIBLE_DEVICES" or each.value is None or not gpus:
                    continue
                if each.value in {"none", "void"}:
                    found = f"NVIDIA_VISIBLE_DEVICES {shown(each.value)} hides every GPU of the pod"
                    yield Finding(Code.REFUSED_VARIABLE, path, found, "remove it")
                elif each.value == "all" and any(gpus < size for size in sizes):
                    found = "NVIDIA_VISIBLE_DEVICES shows every GPU of the node, and the pod asks "
                    found += f"for {gpus}: two pods may compute on one"
                    remedy = "remove it: the device plugin shows a container its own GPUs"
                    code = Code.VARIABLE_ADVISED_AGAINST
                    yield Finding(code, path, found, remedy, Level.WARNING)


def threads(manifest: Manifest) -> Iterator[Finding]:
    """Warn of more threads of all ranks than the node runs at once.

    PyTorch, torchrun: OMP_NUM_THREADS is that of each process, and 1 where nobody sets it.
    """
    for pod in manifest.pods:
        types = instance_types(pod)
        for container in pod.containers if types else ():
            ranks = processes(manifest, container)
            for path, name, value in variables_of(container):
                plain = value is not None and value.isdecimal() and not is_placeholder(value)
                if name not in _THREADS or not plain or not ranks or value is None:
                    continue
                most = max(types, key=lambda each: each.vcpus)
                if int(value) * ranks > most.vcpus:
                    found = f"{name}: {value} for each of {ranks} ranks, and a {most.name} has "
                    found += f"{most.vcpus} vCPUs"
                    remedy = f"use at most {max(1, most.vcpus // ranks)}"
                    code = Code.VARIABLE_ADVISED_AGAINST
                    yield Finding(code, path, found, remedy, Level.WARNING)


def folders(manifest: Manifest) -> Iterator[Finding]:
    """Refuse folders of caches in which a container may not write.

    Kubernetes, "Configure a Security Context": /root of an image belongs to root. A root that is
    closed for writing is a finding of its own.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            stranger = (pod.user_of(container) or 0) > 0
            for path, name, value in variables_of(container) if stranger else ():
                if name not in FOLDERS or value is None or is_placeholder(value):
                    continue
                mounted = any(f"{value}/".startswith(f"{each}/") for each in _mounts(container))
                if mounted or not value.startswith("/") or "$" in value:
                    continue
                if f"{value}/".startswith("/root/") and not has_closed_root(container):
                    found = f"{name}: the container may not write to {value}: /root belongs to root"
                    remedy = "name a folder of a mount, such as an emptyDir"
                    yield Finding(Code.REFUSED_VARIABLE, path, found, remedy)


def log_files(manifest: Manifest) -> Iterator[Finding]:
    """Warn of one file for the logs of several ranks.

    NCCL user guide, "NCCL_DEBUG_FILE": %h is the host and %p the process; each opens it anew. In
    containers processes of different pods have the same numbers.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            ranks = processes(manifest, container) or 1
            alone = len(manifest.pods) == 1 and pod.replicas in {None, 1}
            for path, name, value in variables_of(container):
                if name != "NCCL_DEBUG_FILE" or not value or not value.startswith("/"):
                    continue
                shared = not alone and any(
                    value.startswith(f"{each}/") for each in _claims(pod, container)
                )
                missing = [
                    sign
                    for sign, needed in (("%h", shared), ("%p", ranks > 1))
                    if needed and sign not in value
                ]
                if missing and "$" not in value and not value.startswith("/dev/"):
                    found = (
                        f"{name}: {value} is one file for several ranks, and each begins it anew"
                    )
                    remedy = f"add {' and '.join(missing)} to its name"
                    code = Code.VARIABLE_ADVISED_AGAINST
                    yield Finding(code, path, found, remedy, Level.WARNING)


def _mounts(container: Container) -> list[str]:
    places = [mapping(each) or {} for each in items(container.body.get("volumeMounts")) or []]
    return [(text(each.get("mountPath")) or "").rstrip("/") for each in places]


def _claims(pod: Pod, container: Container) -> list[str]:
    """Return where a container sees claims, which other pods see too."""
    volumes = [mapping(each) or {} for each in items(pod.spec.get("volumes")) or []]
    named = {text(each.get("name")) for each in volumes if "persistentVolumeClaim" in each}
    places = [mapping(each) or {} for each in items(container.body.get("volumeMounts")) or []]
    return [
        (text(each.get("mountPath")) or "").rstrip("/")
        for each in places
        if text(each.get("name")) in named
    ]
