"""Rule over the file of settings that accelerate is given from a ConfigMap."""

from collections.abc import Iterator
from pathlib import PurePosixPath

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.jobs.other_launchers import launches, working_pods
from megatron_eks.rules.jobs.output_places import place_of
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import items, mapping, number, text
from megatron_eks.rules.workloads import GPU, Container, Manifest, Pod

_FLAG, _ALL, _MACHINES = "config-file", "num_processes", "num_machines"


def counts(together: ManifestSet) -> Iterator[Found]:
    """Require of accelerate's file the processes of all machines, and as many machines as pods.

    Hugging Face Accelerate, "The Command Line", accelerate launch: --num_processes is "the total
    number of processes to be launched in parallel", and a flag wins over the file.
    """
    seen: set[tuple[int, str]] = set()
    for manifest in together.objects:
        for pod in manifest.pods if manifest.is_job else ():
            for container in pod.containers:
                for launch in launches(container, ("accelerate", "launch")):
                    file = launch.flags.get(_FLAG, ((), ""))[1]
                    kept, key = _kept(together, manifest, pod, container, file)
                    if kept is None or (id(kept), key) in seen:
                        continue
                    seen.add((id(kept), key))
                    given = {each.replace("-", "_") for each in launch.flags}
                    yield from _judged(kept, key, given, container, working_pods(manifest))


def _kept(
    together: ManifestSet, manifest: Manifest, pod: Pod, container: Container, file: str
) -> "tuple[Manifest | None, str]":
    """Return the ConfigMap that holds a file, and its key there."""
    place = place_of(file, container, pod) if file.startswith("/") else None
    source = mapping(place.volume.get("configMap")) if place is not None else None
    name = text((source or {}).get("name"))
    if place is None or name is None or items((source or {}).get("items")):
        return None, ""
    return together.named(manifest, "ConfigMap", name), PurePosixPath(file).name


def _judged(
    kept: Manifest, key: str, given: set[str], container: Container, pods: int | None
) -> Iterator[Found]:
    written = text((mapping(kept.body.get("data")) or {}).get(key))
    try:
        settings = mapping(yaml.safe_load(written)) if written else None
    except yaml.YAMLError:
        return
    count, machines = (number((settings or {}).get(each)) for each in (_ALL, _MACHINES))
    gpus, path = container.amount(GPU), ("data", key)
    if machines is None or machines < 2 or _MACHINES in given:  # noqa: PLR2004 -- of one it is the same
        return
    if pods is not None and machines != pods:
        few = "it waits for more" if machines > pods else "the others have no place"
        found = f"{_MACHINES} {machines}, and the job has {pods} pods: {few}"
        yield kept, kept.find(Code.RENDEZVOUS_FLAG, path, found, f"write {_MACHINES}: {pods}")
    elif count and gpus and _ALL not in given and count != int(gpus) * machines:
        wanted = int(gpus) * machines
        found = f"{_ALL} {count} is the number on all {machines} machines, which have {wanted} GPUs"
        some = count % machines == 0 and gpus < count < wanted
        level = Level.WARNING if some else Level.ERROR
        remedy = f"write {_ALL}: {wanted}"
        yield kept, kept.find(Code.PROCESSES_PER_NODE, path, found, remedy, level)
