"""Rules over the launcher's command line in Jobs: nodes, processes, ranks and visible devices."""

import re
from collections.abc import Iterator
from fractions import Fraction

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.rendezvous import in_command, launcher_flags, left_of
from megatron_eks.rules.jobs.shell_scripts import commands_of
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import GPU, MAIN_CONTAINER, Container, Manifest

_INDEX = "JOB_COMPLETION_INDEX"
# Without a default, and not where a shell sets it itself.
_INDEX_USED = re.compile(rf"\$[({{]?{_INDEX}\b(?!:?[-=+])")
_INDEX_SET = re.compile(rf"(?<![\w$]){_INDEX}=")
_INDEX_FIELD = "job-completion-index"
# Ranks of these need no GPU.
OTHER_BACKEND = re.compile(r"\b(gloo|mpi)\b")
_DEVICE = re.compile(r"[0-9]+|(GPU|MIG)-[0-9a-f-]+")
_PYTHON = re.compile(r"(\S*/)?python[0-9.]*")
_SHELL_RUNS = re.compile(r"^\s*(exec\s+)?(\S*/)?python[0-9.]*\s+(-u\s+)?\S+\.py\b[^;&|\n]*$")
_OTHER_LAUNCHER = re.compile(
    r"accelerate|deepspeed|mpirun|colossal|lightning|\bray\b|spawn|launch|serve|\bdevices\b",
    re.IGNORECASE,
)


def nodes_of_a_job(manifest: Manifest) -> Iterator[Finding]:
    """Require as many pods of a Job as its launcher waits for, and no rank that is the same in all.

    torch/distributed/run.py: `--nnodes` waits for that many; Kubernetes, "Jobs", parallelism and
    completions. A Job for each rank, each with one pod, is another way to the same.
    """
    if (manifest.group, manifest.kind) != ("batch", "Job"):
        return
    parallel, total = (_count(manifest, key) for key in ("parallelism", "completions"))
    # Without completions all that run together belong together.
    total = parallel if is_absent(manifest.spec.get("completions")) else total
    if parallel is None or total is None:
        return
    together = min(parallel, total)
    for container in _launchers(manifest):
        flags = _single_flags(container)
        nodes = number(flags["nnodes"][1]) if "nnodes" in flags else None
        rank = flags.get("node-rank")
        if nodes is not None and nodes > 1 and nodes != together:
            # The one index of such a Job is 0, and no other Job has the others.
            of_index = rank is not None and _INDEX in rank[1]
            elsewhere = (
                total == 1
                and not of_index
                and not flags.keys().isdisjoint(("node-rank", "rdzv-endpoint", "master-addr"))
            )
            if not elsewhere:
                yield _other_nodes(flags["nnodes"][0], nodes, together)
        elif nodes is not None and 1 < nodes < total and rank is not None and _INDEX in rank[1]:
            found = f"--nnodes {nodes}, and {total} indices: the others start when these have "
            found += "ended, as ranks that there are not"
            remedy = f"set completions to {nodes}, or parallelism and --nnodes to {total}"
            yield Finding(Code.RENDEZVOUS_FLAG, flags["nnodes"][0], found, remedy)
        if rank is not None and number(rank[1]) is not None and total > 1 and nodes != 1:
            found = f"--node-rank {shown(rank[1])} in each of {total} pods: none is another rank"
            remedy = f"write --node-rank={in_command(container, _INDEX)}"
            if manifest.spec.get("completionMode") != "Indexed":
                remedy = remedy.replace("write", "use completionMode: Indexed and", 1)
            level = Level.ERROR if nodes is not None else Level.WARNING
            yield Finding(Code.RENDEZVOUS_FLAG, rank[0], found, remedy, level)


def _other_nodes(path: Path, nodes: int, together: int) -> Finding:
    pods = f"{together} pod{'' if together == 1 else 's'}"
    if nodes > together:
        found = (
            f"--nnodes {nodes}, and {pods} at a time: the launcher waits for ever, with its GPUs"
        )
        level = Level.ERROR
    else:
        found = f"--nnodes {nodes}, and {pods} at a time: the others have no place in it"
        # Several groups of ranks, each with an address of its own, are possible.
        level = Level.WARNING if together % nodes == 0 else Level.ERROR
    remedy = f"set parallelism and completions to {nodes}, or --nnodes to {together}"
    return Finding(Code.RENDEZVOUS_FLAG, path, found, remedy, level)


def _count(manifest: Manifest, key: str) -> int | None:
    value = manifest.spec.get(key)
    return 1 if is_absent(value) else number(value)


def processes_of_a_job(manifest: Manifest) -> Iterator[Finding]:
    """Require no more processes than GPUs, and warn of fewer.

    torch/distributed/run.py: each process takes the GPU of its local rank; one that is not there
    ends with "invalid device ordinal".
    """
    # There it is a rule over the operator's own field.
    if manifest.pytorch_replicas is not None:
        return
    for container in _launchers(manifest):
        flags, gpus = _single_flags(container), container.amount(GPU)
        path, written = flags.get("nproc-per-node", ((), ""))
        count = number(written)
        if not gpus or gpus < 1 or count is None or OTHER_BACKEND.search(container.line):
            continue
        many = f"{count} process{'' if count == 1 else 'es'} for {gpus} GPU{'s' * (gpus > 1)}"
        remedy = f"write --nproc-per-node={gpus}"
        if count > gpus:
            found = f"{many}: the last ones end with 'invalid device ordinal'"
            yield Finding(Code.PROCESSES_PER_NODE, path, found, remedy)
        elif count < gpus:
            found = f"{many}: the others idle"
            yield Finding(Code.PROCESSES_PER_NODE, path, found, remedy, Level.WARNING)


def completion_index(manifest: Manifest) -> Iterator[Finding]:
    """Require an Indexed Job where a pod reads its index.

    Kubernetes, "Jobs", completion mode: only there the variable and the annotation exist.
    """
    job = manifest.spec
    if (manifest.group, manifest.kind) == ("batch", "CronJob"):
        job = mapping((mapping(manifest.spec.get("jobTemplate")) or {}).get("spec")) or {}
    elif (manifest.group, manifest.kind) != ("batch", "Job"):
        return
    mode = job.get("completionMode")
    if not is_absent(mode) and mode != "NonIndexed":
        return
    for pod in manifest.pods:
        for container in pod.containers:
            read = _reads_index(container)
            if read is not None:
                path, left = read
                found = f"reads {_INDEX}, which only an Indexed Job sets: {left}"
                yield Finding(Code.JOB_FIELDS, path, found, "add completionMode: Indexed")


def _reads_index(container: Container) -> tuple[Path, str] | None:
    """Return where a container first reads the index, and what it gets for it.

    None where something else may set it.
    """
    own = any(each.name == _INDEX for each in container.variables)
    if own or container.body.get("envFrom") or _INDEX_SET.search(container.line):
        return None
    for path, word in container.words:
        if _INDEX_USED.search(word):
            return path, left_of(container, _INDEX, word)
    for index, value in enumerate(items(container.body.get("env")) or []):
        entry = mapping(value) or {}
        source = mapping((mapping(entry.get("valueFrom")) or {}).get("fieldRef")) or {}
        field = text(source.get("fieldPath")) or ""
        if (used := _INDEX_USED.search(text(entry.get("value")) or "")) or _INDEX_FIELD in field:
            left = f"$({_INDEX}) stays as it is written" if used else "it is empty"
            return (*container.path, "env", index), left
    return None


def visible_devices(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a list of visible devices that is shorter than the GPUs that the container keeps.

    CUDA C++ Programming Guide, "CUDA Environment Variables": the program sees no other device.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            gpus = container.amount(GPU)
            for each in container.variables if gpus and not container.is_init else ():
                if each.name != "CUDA_VISIBLE_DEVICES" or each.value is None:
                    continue
                devices = [part.strip() for part in each.value.split(",")] if each.value else []
                seen = len({part for part in devices if _DEVICE.fullmatch(part)})
                if is_placeholder(each.value) or gpus is None or seen >= gpus:
                    continue
                started = processes(manifest, container)
                found = f"CUDA_VISIBLE_DEVICES shows {seen} of {gpus} GPUs"
                idle = started is None or started <= seen
                found += (
                    ": the others idle"
                    if idle
                    else f", and the launcher starts {started} processes"
                )
                code = Code.VARIABLE_ADVISED_AGAINST if idle else Code.REFUSED_VARIABLE
                level = Level.WARNING if idle else Level.ERROR
                path = (*container.path, "env", each.index)
                remedy = "remove it: the device plugin shows a container its own GPUs"
                yield Finding(code, path, found, remedy, level)


def processes(manifest: Manifest, container: Container) -> int | None:
    """Return how many ranks a launcher starts in a container, if it says so."""
    if not container.has_launcher:
        return None
    flags = _single_flags(container)
    written = flags["nproc-per-node"][1] if "nproc-per-node" in flags else None
    return number(written if written is not None else manifest.spec.get("nprocPerNode"))


def without_launcher(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a PyTorchJob's container with several GPUs that starts one Python process.

    kubeflow/trainer v1.9.4, envvar.go: the operator sets variables for a launcher, and starts no
    process itself. A program may start its other ranks alone.
    """
    for pod in manifest.pods if manifest.pytorch_replicas is not None else ():
        for container in pod.containers:
            gpus = container.amount(GPU)
            if container.name != MAIN_CONTAINER or gpus is None or gpus <= 1:
                continue
            words = [word for _, word in container.words]
            other = container.has_launcher or _OTHER_LAUNCHER.search(container.line)
            if not words or other or not _runs_python(words):
                continue
            found = f"python without torchrun: one rank in each pod, {_missing(manifest, gpus)}"
            path = (*container.path, "command")
            remedy = "start it with torchrun, unless the program starts the others"
            yield Finding(Code.PROCESSES_PER_NODE, path, found, remedy, Level.WARNING)


def _missing(manifest: Manifest, gpus: Fraction) -> str:
    """Say what one rank in each pod leaves: ranks that the others wait for, or idle GPUs.

    kubeflow/trainer v1.9.4, envvar.go: WORLD_SIZE, of jobs with a Master, is nprocPerNode for each
    pod.
    """
    each, types = number(manifest.spec.get("nprocPerNode")) or 1, manifest.pytorch_replicas or {}
    pods = sum(1 if pod.replicas is None else pod.replicas for pod in manifest.pods)
    if each > 1 and "Master" in types:
        return f"where nprocPerNode makes WORLD_SIZE {pods * each}: they wait for ever"
    return f"and {gpus - 1} idle GPUs"


def _runs_python(words: list[str]) -> bool:
    """Tell whether a command is Python with a program, alone or as a shell's last one."""
    if _PYTHON.fullmatch(words[0]):
        return any(word.endswith(".py") for word in words[1:3])
    shell = words[0].rpartition("/")[2] in {"bash", "sh"} and "-c" in words[1:-1]
    last = commands_of(words[-1])[-1:] if shell and "<<" not in words[-1] else []
    return any(_SHELL_RUNS.match(each) is not None for each in last)


def _launchers(manifest: Manifest) -> Iterator[Container]:
    for pod in manifest.pods:
        for each in pod.containers:
            if each.has_launcher and not each.is_init:
                yield each


def _single_flags(container: Container) -> dict[str, tuple[Path, str]]:
    """Return the launcher's flags; one that a script gives twice is a choice, and has no value."""
    given: dict[str, list[tuple[Path, str]]] = {}
    for path, flag, value in launcher_flags(container):
        given.setdefault(flag, []).append((path, value))
    return {
        flag: found[0] if len(found) == 1 else (found[0][0], "") for flag, found in given.items()
    }
