"""Rules over MPIJobs: the processes that mpirun starts, and the slots that there are."""

import re
from collections.abc import Iterator
from itertools import pairwise

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.training_flags import split_words
from megatron_eks.rules.values import is_absent, items, mapping, number, shown
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
_IDLES = re.compile(r"^(?!.*\bsshd\b)\s*(\S*/)?(sleep|tail|torchrun|python[0-9.]*)\b", re.DOTALL)
_TEST = re.compile(r"(^|/)\w+_perf$")
_REPLICA_TYPES = ("Launcher", "Worker")
_TWO_VALUES = frozenset({"--mca", "-mca", "--gmca", "-gmca"})


def slots(manifest: Manifest) -> Iterator[Finding]:
    """Require of mpirun no more processes than the workers have slots, and as many as GPUs.

    kubeflow/mpi-operator, v2beta1: the host file names each worker with slotsPerWorker slots, and
    with runLauncherAsWorker the launcher before them; Open MPI, mpirun(1): "There are not enough
    slots available in the system" ends the launch.
    """
    if (manifest.group, manifest.kind) != ("kubeflow.org", "MPIJob"):
        return
    by_name = {str(pod.path[3]): pod for pod in manifest.pods}
    worker, launcher = by_name.get("Worker"), by_name.get("Launcher")
    yield from _types(manifest, by_name)
    yield from _restarts(manifest, by_name)
    written = manifest.spec.get("slotsPerWorker")
    each = 1 if is_absent(written) else number(written)
    if worker is None or each is None:
        return
    gpus = sum(container.requested(GPU) for container in worker.containers)
    workers = 1 if worker.replicas is None else worker.replicas
    if manifest.spec.get("runLauncherAsWorker") is True:
        workers += 1
    if gpus and each > gpus:
        found, level = f"{each} slots for {gpus} GPUs: two processes share one", Level.WARNING
        starts = [_tests(one, each) for one in launcher.containers] if launcher else []
        # A privileged container sees all devices of its node.
        if max(starts, default=0) > gpus and not any(map(_is_privileged, worker.containers)):
            found = (
                f"{each} slots for {gpus} GPUs: NCCL's tests take one for each process, and stop"
            )
            level = Level.ERROR
        path, remedy = ("spec", "slotsPerWorker"), f"write {gpus}"
        yield manifest.find(Code.PROCESSES_PER_NODE, path, found, remedy, level)
    for container in launcher.containers if launcher is not None else ():
        yield from _asked(container, worker, each, workers)


def _restarts(manifest: Manifest, by_name: dict[str, Pod]) -> Iterator[Finding]:
    """Refuse words that Kubernetes or the training operator take, and this operator does not.

    kubeflow/mpi-operator, pkg/apis/kubeflow/validation, validRestartPolicies: Never or OnFailure,
    or its controller leaves the job as it is (ValidationError).
    """
    if manifest.body.get("apiVersion") != "kubeflow.org/v2beta1":
        return
    replicas = mapping(manifest.spec.get("mpiReplicaSpecs")) or {}
    for name in by_name:
        given = (mapping(replicas.get(name)) or {}).get("restartPolicy")
        # A launcher that is started again for ever has a finding of its own.
        if given == "ExitCode" or (given == "Always" and name != "Launcher"):
            found = f"{given}: the MPI operator takes Never or OnFailure, and makes no pod"
            path = ("spec", "mpiReplicaSpecs", name, "restartPolicy")
            yield manifest.find(Code.RESTART_POLICY, path, found, "write OnFailure or Never")


def _asked(container: Container, worker: Pod, each: int, workers: int) -> Iterator[Finding]:
    words = arguments(container)
    if container.is_init or any(word in _ELSEWHERE for _, word in words):
        return
    for (path, word), (_, value) in zip(words, [*words[1:], ((), "")], strict=False):
        asked = number(value)
        if asked is None:
            continue
        total, slots = workers * each, f"{each} slot{'' if each == 1 else 's'}"
        # With a slot for each GPU there is room for what is asked.
        gpus = sum(one.requested(GPU) for one in worker.containers)
        few = each < gpus and asked <= (gpus if word in _EACH else workers * gpus)
        room = f"write slotsPerWorker: {gpus} in spec, a slot for each GPU" if few else None
        if word in _ALL and asked > total:
            found = f"{asked} processes, and {workers} workers with {slots} have {total}: "
            found += "mpirun ends at once"
            remedy = room or f"write {total}, or add workers"
            yield Finding(Code.PROCESSES_PER_NODE, path, found, remedy)
        elif word in _ALL and asked * _held(container) < min(total, workers * gpus):
            found = f"{asked} processes on {total} slots: the other GPUs idle"
            remedy = f"write {total}, unless it is meant"
            yield Finding(Code.PROCESSES_PER_NODE, path, found, remedy, Level.WARNING)
        elif word in _EACH and asked > each:
            found = f"{asked} processes on each worker, and it has {slots}"
            yield Finding(Code.PROCESSES_PER_NODE, path, found, room or f"write {each}")


def _is_privileged(container: Container) -> bool:
    return (mapping(container.body.get("securityContext")) or {}).get("privileged") is True


def _tests(container: Container, slots: int) -> int:
    """Return how many processes of NCCL's tests mpirun starts on the first worker; 0 of others.

    Open MPI, mpirun(1): it fills a host's slots before the next one's, or as -N says;
    NVIDIA/nccl-tests, src/common.cu: each process takes the device of its local rank.
    """
    words = [word for _, each in container.words for word in split_words(each)]
    if (
        container.is_init
        or not any(map(_TEST.search, words))
        or "NCCL_TESTS_DEVICE" in container.line
    ):
        return 0
    asked = {word: number(value) for (_, word), (_, value) in pairwise(arguments(container))}
    if not _ELSEWHERE.isdisjoint(asked):
        return 0
    of_all, of_each = (
        next((asked[word] for word in asked if word in options), None) for options in (_ALL, _EACH)
    )
    return of_each if of_each is not None else min(slots, of_all or slots)


def _held(container: Container) -> int:
    """Return how many GPUs each process of NCCL's tests takes (README, -g and -t)."""
    words = [word for _, each in container.words for word in split_words(each)]
    start = next((n for n, word in enumerate(words) if _TEST.search(word)), len(words))
    given = {word: number(value) or 1 for word, value in pairwise(words[start:])}
    each = given.get("-g", given.get("--ngpus", 1))
    return each * given.get("-t", given.get("--nthreads", 1))


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
    for name in specs:
        if name not in _REPLICA_TYPES:
            found = f"unknown replica type {shown(name)}: the operator makes none of its pods"
            where = (*path, name)
            yield manifest.find(Code.MASTER_REPLICAS, where, found, "use Launcher and Worker")
    launcher = by_name.get("Launcher")
    if launcher is not None and launcher.replicas not in {None, 1}:
        found = f"{launcher.replicas} launchers: the API server refuses the job"
        place = (*path, "Launcher", "replicas")
        yield manifest.find(Code.MASTER_REPLICAS, place, found, "write 1")


def workers(manifest: Manifest) -> Iterator[Finding]:
    """Refuse workers of an MPIJob that run no SSH server.

    kubeflow/mpi-operator v2beta1, README: mpirun starts the ranks by ssh; a worker's own command
    takes the place of `sshd -De`, which the operator gives it.
    """
    if (manifest.group, manifest.kind) != ("kubeflow.org", "MPIJob"):
        return
    served = str(manifest.body.get("apiVersion")).endswith("/v2beta1")
    for pod in manifest.pods if served else ():
        for container in pod.containers if "Worker" in pod.path else ():
            started = items(container.body.get("command"))
            if container.is_init or not started or not _IDLES.search(container.line):
                continue
            found = "no sshd here, and mpirun starts the ranks by ssh: connection refused"
            path = (*container.path, "command")
            yield Finding(Code.MPI_WORKERS, path, found, "remove it, or run /usr/sbin/sshd -De")


def gpus_of_ranks(manifest: Manifest) -> Iterator[Finding]:
    """Refuse NCCL's tests with more GPUs for all ranks of a worker than it has.

    NVIDIA/nccl-tests, README: -g is GPUs for each thread, -t threads for each process; the usual
    one is -g 1 with a process for each GPU.
    """
    for pod in manifest.pods if manifest.kind == "MPIJob" else ():
        for container in pod.containers if "Launcher" in pod.path else ():
            yield from _test(manifest, container)


def _test(manifest: Manifest, container: Container) -> Iterator[Finding]:
    words = [(path, word) for path, each in container.words for word in split_words(each)]
    start = next((n for n, (_, word) in enumerate(words) if _TEST.search(word)), len(words))
    own = words[start:]
    given = {
        word: (path, number(value))
        for (path, word), (_, value) in pairwise(own)
        if word in {"-g", "--ngpus", "-t", "--nthreads"}
    }
    path, each = given.get("-g", given.get("--ngpus", ((), 1)))
    _, threads = given.get("-t", given.get("--nthreads", ((), 1)))
    slots = manifest.spec.get("slotsPerWorker")
    ranks = 1 if is_absent(slots) else number(slots)
    told = [number(v) for (_, w), (_, v) in pairwise(words) if w in _EACH]
    ranks = told[0] if told and told[0] else ranks
    worker = next((pod for pod in manifest.pods if "Worker" in pod.path), None)
    gpus = sum(one.requested(GPU) for one in worker.containers) if worker is not None else 0
    held = (each or 0) * (threads or 0)
    # More processes than GPUs are too many slots, whatever each of them takes.
    if path and held > 1 and ranks and gpus and held * ranks > gpus:
        found = f"{ranks} processes with {held} GPUs each, and a worker has {gpus}"
        yield Finding(Code.PROCESSES_PER_NODE, path, found, "write -g 1")
