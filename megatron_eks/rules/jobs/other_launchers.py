"""Rules over launchers besides torchrun: accelerate, DeepSpeed's own, and Lightning in a script."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.megatron_layouts import world_of
from megatron_eks.rules.jobs.training_flags import split_words
from megatron_eks.rules.values import items, mapping, number, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest

_ENDS = frozenset({"&&", "||", ";", "|", "&"})
_BEFORE = frozenset({"exec", "time", "nohup", "env"})
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*")
_PROGRAM = re.compile(r".+\.py|-m|--module")
_FILE = "config-file"
_LIGHTNING = re.compile(
    r"\+*(?:--)?(?:trainer|trainer\.strategy)\.(?P<key>num_nodes|devices)=(?P<value>[0-9]+)"
)
_LOOP = frozenset({"0.0.0.0", "127.0.0.1", "localhost"})  # noqa: S104 -- not to bind to
_ENVIRONMENT = re.compile(r"ACCELERATE_|PET_")

Flags = dict[str, tuple[Path, str]]


@dataclass(frozen=True)
class Launch:
    """One command of a launcher."""

    path: Path
    flags: Flags
    """With dashes, and without the two before them."""


def accelerate(manifest: Manifest) -> Iterator[Finding]:
    """Require of accelerate the processes of all machines, and machines that are the job's pods.

    Hugging Face Accelerate, "The Command Line", accelerate launch: --num_processes is the total
    number of processes, --machine_rank 0 where nothing is said.
    """
    pods = working_pods(manifest)
    both = {"Master", "Worker"} <= (manifest.pytorch_replicas or {}).keys()
    for replicas, container in _containers(manifest):
        for launch in launches(container, ("accelerate", "launch")):
            flags = launch.flags
            elsewhere = _FILE in flags or any(
                _ENVIRONMENT.match(each.name) for each in container.variables
            )
            machines = _count(flags, "num-machines")
            yield from _processes(container, flags, machines)
            if machines is not None and pods is not None and machines not in {1, pods}:
                few = "it waits for more" if machines > pods else "the others have no place"
                found = f"--num_machines {machines}, and the job has {pods} pods: {few}"
                path = flags["num-machines"][0]
                yield _apart(path, found, f"write --num_machines {pods}")
            alone = "num-machines" not in flags and not elsewhere and (pods or 1) > 1
            # Without a flag all may stand in the file that accelerate config writes.
            if alone and not flags.keys().isdisjoint({"num-processes", "multi-gpu"}):
                found = f"{pods} pods, and accelerate is told of one machine: each trains alone"
                remedy = f"add --num_machines {pods} --machine_rank $RANK --main_process_ip "
                remedy += "$MASTER_ADDR"
                yield replace(_apart(launch.path, found, remedy), level=Level.WARNING)
            if (machines or 1) > 1:
                yield from _rank(launch, replicas, elsewhere=elsewhere)
                path, rank = launch.flags.get("machine-rank", (launch.path, ""))
                if both and "Worker" in container.path and (replicas, number(rank)) == (1, 0):
                    found = f"--machine_rank {shown(rank)}, and the Master is machine 0 already"
                    yield _apart(path, found, "write --machine_rank $RANK in both")


def _processes(container: Container, flags: Flags, machines: int | None) -> Iterator[Finding]:
    count, gpus = _count(flags, "num-processes"), container.amount(GPU)
    if not count or not gpus or not machines or machines < 2:  # noqa: PLR2004 -- of one machine it is the same
        return
    wanted = int(gpus) * machines
    if count != wanted:
        found = f"--num_processes {count} is the number on all {machines} machines, which have "
        found += f"{wanted} GPUs"
        level = Level.WARNING if count % machines == 0 and count > gpus else Level.ERROR
        level = Level.ERROR if count > wanted else level
        remedy, path = f"write --num_processes {wanted}", flags["num-processes"][0]
        yield Finding(Code.PROCESSES_PER_NODE, path, found, remedy, level)


def _rank(launch: Launch, replicas: int, *, elsewhere: bool) -> Iterator[Finding]:
    path, rank = launch.flags.get("machine-rank", (launch.path, None))
    if rank is None and not elsewhere:
        found = "several machines and no --machine_rank: each pod is machine 0"
        yield _apart(path, found, "add --machine_rank $RANK")
    elif rank is not None and number(rank) is not None and replicas > 1:
        found = f"--machine_rank {shown(rank)} in each of {replicas} pods: none is another machine"
        yield _apart(path, found, "write --machine_rank $RANK")
    address = launch.flags.get("main-process-ip")
    if address is None and "rdzv-backend" not in launch.flags and not elsewhere:
        found = "several machines and no --main_process_ip: each waits at its own 127.0.0.1"
        yield _apart(launch.path, found, "add --main_process_ip $MASTER_ADDR")
    # The first machine may call itself so, if the others do not.
    first = replicas == 1 and number(rank) == 0
    if address is not None and address[1] in _LOOP and not first:
        found = f"--main_process_ip {shown(address[1])}: each pod waits at itself"
        yield _apart(address[0], found, "write --main_process_ip $MASTER_ADDR")


def deepspeed(manifest: Manifest) -> Iterator[Finding]:
    """Refuse DeepSpeed's launcher in each of several pods when it is told of no other.

    DeepSpeed, deepspeed/launcher/runner.py, fetch_hostfile: without a host file it goes on with
    local resources only, and takes 127.0.0.1 for the master; --no_ssh starts each node by itself.
    """
    pods = working_pods(manifest)
    for _, container in _containers(manifest) if (pods or 1) > 1 else ():
        for launch in launches(container, ("deepspeed",)):
            told = launch.flags.keys() & {"hostfile", "no-ssh", "launcher", "H"}
            listed = any(
                (text((mapping(each) or {}).get("mountPath")) or "").startswith("/job")
                for each in items(container.body.get("volumeMounts")) or []
            )
            if not told and not listed and "hostfile" not in container.line:
                found = f"{pods} pods, and deepspeed is told of no other: each trains alone"
                remedy = "start it with torchrun, or add --no_ssh --node_rank and --master_addr"
                yield _apart(launch.path, found, remedy)


def lightning(manifest: Manifest) -> Iterator[Finding]:
    """Require of Lightning's trainer the nodes and devices that torchrun starts.

    Lightning, plugins/environments/torchelastic.py, validate_settings: another product than the
    world size ends the program. NeMo hands its trainer's settings on.
    """
    for _, container in _containers(manifest):
        given: Flags = {}
        for path, line in container.words:
            for word in split_words(line):
                match = _LIGHTNING.fullmatch(word)
                if match is not None:
                    given[match["key"]] = (path, match["value"])
        nodes, devices = _count(given, "num_nodes"), _count(given, "devices")
        world = world_of(manifest, container) if nodes else None
        gpus = container.amount(GPU)
        each = devices or (int(gpus) if gpus else None)
        if nodes and world and each and nodes * each != world:
            found = f"{nodes} nodes with {each} devices, and torchrun starts {world} ranks: "
            path = given["num_nodes"][0]
            remedy = f"write num_nodes={world // each}" if world % each == 0 else "let them agree"
            yield _apart(path, f"{found}Lightning stops", remedy)


def _apart(path: Path, found: str, remedy: str) -> Finding:
    return Finding(Code.RENDEZVOUS_FLAG, path, found, remedy)


def _containers(manifest: Manifest) -> Iterator[tuple[int, Container]]:
    """Return the containers that work, each with how many pods have it."""
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            if not container.is_init:
                yield 1 if pod.replicas is None else pod.replicas, container


def working_pods(manifest: Manifest) -> int | None:
    """Return how many pods work together; None where runs may be of one pod each."""
    indexed = manifest.kind == "Job" and manifest.spec.get("completionMode") == "Indexed"
    of_a_set = (manifest.group, manifest.kind) == ("jobset.x-k8s.io", "JobSet")
    if not indexed and not of_a_set and manifest.pytorch_replicas is None:
        return None
    # Those that only prepare or report are no machines.
    working = [pod for pod in manifest.pods if pod.names(GPU)] or manifest.pods
    return sum(1 if pod.replicas is None else pod.replicas for pod in working)


def launches(container: Container, names: tuple[str, ...]) -> Iterator[Launch]:
    """Return the commands that begin so, each with the flags before its program."""
    words = [(path, word) for path, line in container.words for word in split_words(line)]
    for index, (path, _) in enumerate(words):
        following = [word for _, word in words[index : index + len(names)]]
        first = [following[0].rpartition("/")[2], *following[1:]]
        before = words[index - 1][1] if index else ";"
        starts = before in _ENDS | _BEFORE or _ASSIGNED.fullmatch(before) or before == "-c"
        if first != list(names) or not starts:
            continue
        rest = words[index + len(names) :]
        flags: Flags = {}
        for place, (where, word) in enumerate(rest):
            # What a shell puts in may be any option.
            many = word.startswith("$") and not rest[place - 1][1].startswith("-")
            if word in _ENDS or _PROGRAM.fullmatch(word):
                break
            if many:
                flags[_FILE] = flags["launcher"] = (where, word)
            if word.startswith("-"):
                flag, _, value = word.lstrip("-").partition("=")
                after = rest[place + 1][1] if place + 1 < len(rest) else ""
                flags[flag.replace("_", "-")] = (where, value or after)
        yield Launch(path, flags)


def _count(flags: Flags, name: str) -> int | None:
    return number(flags[name][1]) if name in flags else None
