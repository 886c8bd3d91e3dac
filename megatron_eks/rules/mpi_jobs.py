"""Rules over MPIJobs: the processes that mpirun starts, and the slots that there are."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.training_flags import split_words
from megatron_eks.rules.values import is_absent, mapping, number
from megatron_eks.rules.workloads import GPU, Container, Manifest, Pod

_MPIRUN = re.compile(r"(^|/)(mpirun|mpiexec|mpiexec\.hydra)$")
_ALL = frozenset({"-np", "--np", "-n", "-c", "--n"})
_EACH = frozenset({"-N", "-npernode", "--npernode", "-ppn"})
# A mapping of its own, or more processes than slots on purpose.
_ELSEWHERE = frozenset({"--oversubscribe", "-oversubscribe", "--host", "-host", "-H"})
# Open MPI, mpirun(1): how many words follow an option; after an unknown one nothing is judged.
_ONE_VALUE = frozenset(
    {
        *_ALL,
        *_EACH,
        *_ELSEWHERE,
        *("-x", "--bind-to", "-bind-to", "--map-by", "-map-by", "--rank-by", "--prefix", "-wdir"),
        *("--hostfile", "-hostfile", "--machinefile", "-machinefile", "-f", "--output-filename"),
        *("--wdir", "--timeout", "--verbose-level", "-iface", "-genv"),
    }
) - {"--oversubscribe", "-oversubscribe"}
_TWO_VALUES = frozenset({"--mca", "-mca", "--gmca", "-gmca"})


def slots(manifest: Manifest) -> Iterator[Finding]:
    """Require of mpirun no more processes than the workers have slots, and as many as GPUs.

    kubeflow/mpi-operator, v2beta1: the host file names each worker with slotsPerWorker slots; Open
    MPI, mpirun(1): "There are not enough slots available in the system" ends the launch.
    """
    if (manifest.group, manifest.kind) != ("kubeflow.org", "MPIJob"):
        return
    by_name = {str(pod.path[3]): pod for pod in manifest.pods}
    worker, launcher = by_name.get("Worker"), by_name.get("Launcher")
    yield from _types(manifest, by_name)
    written = manifest.spec.get("slotsPerWorker")
    each = 1 if is_absent(written) else number(written)
    if worker is None or each is None:
        return
    gpus = sum(container.requested(GPU) for container in worker.containers)
    workers = 1 if worker.replicas is None else worker.replicas
    if gpus and each > gpus:
        found = f"{each} slots for {gpus} GPUs: two processes share one"
        path = ("spec", "slotsPerWorker")
        yield manifest.find(Code.PROCESSES_PER_NODE, path, found, f"write {gpus}", Level.WARNING)
    for container in launcher.containers if launcher is not None else ():
        yield from _asked(container, worker, each, workers)


def _asked(container: Container, worker: Pod, each: int, workers: int) -> Iterator[Finding]:
    words = arguments(container)
    if container.is_init or any(word in _ELSEWHERE for _, word in words):
        return
    for (path, word), (_, value) in zip(words, [*words[1:], ((), "")], strict=False):
        asked = number(value)
        if asked is None:
            continue
        total = workers * each
        if word in _ALL and asked > total:
            found = f"{asked} processes, and {workers} workers with {each} slots have {total}: "
            found += "mpirun ends at once"
            yield Finding(Code.PROCESSES_PER_NODE, path, found, f"write {total}, or add workers")
        elif word in _ALL and asked < total and worker.names(GPU):
            found = f"{asked} processes on {total} slots: the other GPUs idle"
            remedy = f"write {total}, unless it is meant"
            yield Finding(Code.PROCESSES_PER_NODE, path, found, remedy, Level.WARNING)
        elif word in _EACH and asked > each:
            found = f"{asked} processes on each worker, and it has {each} slots"
            yield Finding(Code.PROCESSES_PER_NODE, path, found, f"write {each}")


def arguments(container: Container) -> list[tuple[Path, str]]:
    """Return mpirun's own words; what follows its program is the program's."""
    words = [(path, word) for path, each in container.words for word in split_words(each)]
    start = next((n for n, (_, word) in enumerate(words) if _MPIRUN.search(word)), len(words))
    index = start + 1
    while index < len(words) and words[index][1].startswith("-"):
        option = words[index][1]
        index += 3 if option in _TWO_VALUES else 2 if option in _ONE_VALUE else 1
    return words[start + 1 : index]


def _types(manifest: Manifest, by_name: "dict[str, Pod]") -> Iterator[Finding]:
    """Require one launcher, and workers for it."""
    specs = mapping(manifest.spec.get("mpiReplicaSpecs"))
    if specs is None:
        return
    path = ("spec", "mpiReplicaSpecs")
    if specs and "Launcher" not in specs:
        found = "no Launcher: nothing starts mpirun"
        yield manifest.find(Code.MASTER_REPLICAS, path, found, "add one with replicas: 1")
    launcher = by_name.get("Launcher")
    if launcher is not None and launcher.replicas not in {None, 1}:
        found = f"{launcher.replicas} launchers: the API server refuses the job"
        place = (*path, "Launcher", "replicas")
        yield manifest.find(Code.MASTER_REPLICAS, place, found, "write 1")
