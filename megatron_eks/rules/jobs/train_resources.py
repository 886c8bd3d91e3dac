"""Rules over what a TrainJob's nodes get, of its own and of its runtime."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import mapping, number, text
from megatron_eks.rules.workloads import EFA, GPU, Container, Manifest

_KIND = "ClusterTrainingRuntime"
_NODE = "node"


def runtime_of(manifest: Manifest, together: ManifestSet) -> Manifest | None:
    """Return the runtime of a TrainJob, where it is at hand."""
    given = mapping(manifest.spec.get("runtimeRef")) or {}
    name = text(given.get("name"))
    return together.named(manifest, text(given.get("kind")) or _KIND, name) if name else None


def node_of(runtime: Manifest | None) -> Container | None:
    """Return the container of a runtime that a TrainJob's trainer changes."""
    pods = runtime.pods if runtime is not None else []
    every = (each for pod in pods for each in pod.containers if not each.is_init)
    return next((each for each in every if each.name == _NODE), None)


def replaced(together: ManifestSet) -> Iterator[Found]:
    """Warn of resources of a TrainJob that leave out EFA, which its runtime asks for.

    kubeflow/trainer, issue 3551 and pull request 3602: before 2.3 resourcesPerNode takes the place
    of all the runtime's resources, and NCCL falls back to TCP.
    """
    for manifest in together.of("TrainJob"):
        trainer = mapping(manifest.spec.get("trainer")) or {}
        node = node_of(runtime_of(manifest, together))
        if node is None or not mapping(trainer.get("resourcesPerNode")):
            continue
        own = Container((), {"resources": trainer.get("resourcesPerNode")}, is_init=False)
        if own.names(GPU) and node.names(EFA) and not own.names(EFA):
            found = f"no {EFA}, and before Kubeflow Trainer 2.3 these take the place of all that "
            found += "the runtime asks for"
            path = ("spec", "trainer", "resourcesPerNode")
            remedy = f"write {EFA}: {node.amount(EFA)} here as well"
            code = Code.EFA_NOT_REQUESTED
            yield manifest, manifest.find(code, path, found, remedy, Level.WARNING)


def processes(together: ManifestSet) -> Iterator[Found]:
    """Require of a TrainJob as many processes on a node as its runtime has GPUs there.

    Kubeflow Trainer v2, pkg/runtime/framework/plugins/torch: a number stands as it is written.
    """
    for manifest in together.of("TrainJob"):
        trainer = mapping(manifest.spec.get("trainer")) or {}
        resources = trainer.get("resourcesPerNode")
        own = Container((), {"resources": resources}, is_init=False)
        node = node_of(runtime_of(manifest, together))
        count = number(trainer.get("numProcPerNode"))
        # What a TrainJob asks for itself is another rule's.
        gpus = node.amount(GPU) if node is not None and own.amount(GPU) is None else None
        if not gpus or not count or count == gpus:
            continue
        path = ("spec", "trainer", "numProcPerNode")
        many = f"{count} process{'es' * (count > 1)} for {gpus} GPUs of the runtime"
        few = count < gpus
        found = f"{many}: the others idle" if few else f"{many}: 'invalid device ordinal'"
        level = Level.WARNING if few else Level.ERROR
        code = Code.PROCESSES_PER_NODE
        yield manifest, manifest.find(code, path, found, f"write {gpus}, or remove it", level)
