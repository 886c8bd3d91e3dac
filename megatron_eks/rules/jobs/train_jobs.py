"""Rules over TrainJobs, whose one container stands outside of any pod."""

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules import image_tags, variables
from megatron_eks.rules.jobs import (
    job_flags,
    launch_places,
    launcher_options,
    megatron_files,
    megatron_layouts,
    megatron_relations,
    option_values,
    other_layouts,
    rank_starts,
    repeated_flags,
    shell_names,
    shell_scripts,
    shell_syntax,
    shell_words,
    training_flags,
)
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.jobs.replicated_jobs import replicated_jobs
from megatron_eks.rules.objects import pod_starts, pods
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest

_KEYS = ("image", "command", "args", "env")
_EACH = "numProcPerNode"
_KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")
# What comes with the operator (kubeflow/trainer, manifests/base/runtimes).
_SHIPPED = re.compile(
    r"(deepspeed|jax|mlx|torch|xgboost)-distributed|torch-distributed-with-cache"
    r"|torchtune-(llama3\.2-[13]b|qwen2\.5-1\.5b)"
)
# Kubeflow Trainer, manifests/base/runtimes/torch_distributed.yaml.
_OWN_RUNTIMES = {"torch-distributed": frozenset({"node"})}
# pkg/constants/constants.go, TorchRunReservedEnvNames.
_RESERVED = re.compile(r"PET_(NNODES|NPROC_PER_NODE|NODE_RANK|MASTER_ADDR|MASTER_PORT)")
_OF_OTHERS = re.compile(r"mpi|deepspeed|mlx|jax|xgboost|flux")
_LOOP = re.compile(r"(localhost|127\.[0-9.]+)(:[0-9]+)?$")
_CLOSE = 0.8
_RULES = (
    *(variables.refused_variables, variables.duplicate_variables, variables.secrets),
    *(pods.quantities, pods.extended_resources, pod_starts.commands, shell_words.unexpanded),
    *(shell_words.dropped, shell_words.for_shells, launch_places.behind_the_program),
    *(shell_scripts.continued, shell_scripts.ends, shell_scripts.substituted),
    *(training_flags.megatron_options, option_values.values, megatron_relations.relations),
    *(megatron_relations.together, megatron_files.prefixes, image_tags.of_nvidia),
    *(repeated_flags.repeated, shell_names.unset, shell_names.unread, shell_names.spaced),
    *(shell_names.quoted, shell_names.folded, shell_syntax.unfinished, rank_starts.typeset),
    *(rank_starts.modules, job_flags.numbers, launcher_options.options),
)


def trainers(manifest: Manifest) -> Iterator[Finding]:
    """Require of a TrainJob's trainer what is required of a container.

    Kubeflow Trainer, API reference, v1alpha1, Trainer: its fields go into the container `node` of
    the runtime, whose volumes this file does not show.
    """
    if (manifest.group, manifest.kind) != ("trainer.kubeflow.org", "TrainJob"):
        return
    trainer = mapping(manifest.spec.get("trainer")) or {}
    body: dict[str, Json] = {key: trainer[key] for key in _KEYS if key in trainer}
    body |= {"name": "node", "resources": trainer.get("resourcesPerNode")}
    alone: dict[str, Json] = {"containers": [body]}
    pod = Manifest({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": alone})
    for rule in _RULES:
        for each in rule(pod):
            yield replace(each, path=_moved(manifest, each.path))
    container = Container((), body, is_init=False)
    gpus, count = container.amount(GPU), number(trainer.get("numProcPerNode"))
    if gpus and count is not None and count > gpus:
        found = (
            f"{count} processes for {gpus} GPUs: the last ones end with 'invalid device ordinal'"
        )
        path = ("spec", "trainer", "numProcPerNode")
        yield manifest.find(Code.PROCESSES_PER_NODE, path, found, f"write {gpus}")
    nodes, options = number(trainer.get("numNodes")), megatron_layouts.known_options(container)
    flags = {name for _, name, _ in launcher_flags(container)}
    known = container.has_launcher and flags.isdisjoint(("nnodes", "nproc-per-node", "standalone"))
    elsewhere = not megatron_layouts.ELSEWHERE.isdisjoint(options or {})
    if nodes and count and known and options and not elsewhere:
        for each in megatron_layouts.layout(options, nodes * count):
            yield replace(each, path=(manifest.title, "spec", "trainer", *each.path))
    for each in (
        other_layouts.of_container(container, nodes * count) if nodes and count and known else ()
    ):
        yield replace(each, path=(manifest.title, "spec", "trainer", *each.path))


# Fields of other jobs, and where a TrainJob says the same.
_ELSEWHERE = {
    "pytorchReplicaSpecs": "a runtime, and spec.trainer.numNodes",
    "nprocPerNode": "spec.trainer.numProcPerNode",
    "elasticPolicy": "spec.trainer.numNodes: a TrainJob has no elastic training",
    "runPolicy": "spec.suspend and spec.activeDeadlineSeconds",
    "numNodes": "spec.trainer.numNodes",
    _EACH: f"spec.trainer.{_EACH}",
    "resourcesPerNode": "spec.trainer.resourcesPerNode",
    "image": "spec.trainer.image",
    "command": "spec.trainer.command",
    "args": "spec.trainer.args",
    "env": "spec.trainer.env",
    "template": "a runtime",
    "mlPolicy": "a runtime",
}


def job_fields(manifest: Manifest) -> Iterator[Finding]:
    """Refuse in a TrainJob the fields of a PyTorchJob, of its trainer and of its runtime.

    Kubeflow Trainer, API reference, v1alpha1, TrainJobSpec: the API server refuses an unknown
    field, or drops it unread.
    """
    if (manifest.group, manifest.kind) != ("trainer.kubeflow.org", "TrainJob"):
        return
    for key in manifest.spec:
        if key in _ELSEWHERE:
            found = f"a TrainJob has no field {shown(key)}: it is refused, or nobody reads it"
            remedy = f"use {_ELSEWHERE[key]}"
            yield manifest.find(Code.MANIFEST_VALUE, ("spec", key), found, remedy)


def reserved(manifest: Manifest) -> Iterator[Finding]:
    """Refuse the variables that the trainer itself gives to torchrun.

    Kubeflow Trainer v2, pkg/runtime/framework/plugins/torch/torch.go, Validate: "must not have
    reserved envs".
    """
    if (manifest.group, manifest.kind) != ("trainer.kubeflow.org", "TrainJob"):
        return
    runtime = text((mapping(manifest.spec.get("runtimeRef")) or {}).get("name")) or ""
    trainer = mapping(manifest.spec.get("trainer")) or {}
    for index, value in enumerate(items(trainer.get("env")) or []):
        name = text((mapping(value) or {}).get("name")) or ""
        if _RESERVED.fullmatch(name) and not _OF_OTHERS.search(runtime):
            found = f"{shown(name)} is the trainer's own: the webhook refuses the TrainJob"
            key = "numProcPerNode" if name == "PET_NPROC_PER_NODE" else "numNodes"
            own = name in {"PET_NNODES", "PET_NPROC_PER_NODE"}
            remedy = f"remove it, and write {key}" if own else "remove it"
            path = ("spec", "trainer", "env", index, "name")
            yield manifest.find(Code.REFUSED_VARIABLE, path, found, remedy)


def launches(manifest: Manifest) -> Iterator[Finding]:
    """Refuse flags of torchrun that say something else than the TrainJob.

    Kubeflow Trainer v2, pkg/runtime/framework/plugins/torch/torch.go: it sets PET_NNODES and the
    others, and torch/distributed/run.py takes a flag before them.
    """
    if (manifest.group, manifest.kind) != ("trainer.kubeflow.org", "TrainJob"):
        return
    trainer = mapping(manifest.spec.get("trainer")) or {}
    body: dict[str, Json] = {key: trainer[key] for key in _KEYS if key in trainer}
    container = Container((manifest.title, "spec", "trainer"), body, is_init=False)
    nodes = number(trainer.get("numNodes"))
    for path, name, value in launcher_flags(container) if container.has_launcher else ():
        said = None
        if name == "nnodes" and nodes and number(value) not in {None, nodes}:
            said = f"--nnodes {shown(value)}, and numNodes is {nodes}"
        elif name == "standalone" and (nodes or 1) > 1:
            said = f"--standalone: each of {nodes} nodes trains alone"
        elif name == "node-rank" and number(value) is not None and (nodes or 1) > 1:
            said = f"--node-rank {shown(value)} in each of {nodes} pods: none is another node"
        elif name in {"master-addr", "rdzv-endpoint"} and _LOOP.match(value) and (nodes or 1) > 1:
            said = f"--{name} {shown(value)}: each pod waits at itself, and none meets another"
        if said is not None:
            remedy = "remove it: torchrun reads the PET_ variables of the trainer"
            yield Finding(Code.RENDEZVOUS_FLAG, path, said, remedy)


def idle_gpus(together: ManifestSet) -> Iterator[Found]:
    """Warn of fewer processes on a node than it has GPUs, by a TrainJob or by its runtime.

    Kubeflow Trainer v2, pkg/runtime/framework/plugins/torch and mpi: a number stands as it is
    written, and only auto counts the GPUs (kubeflow/trainer, pull request 2774).
    """
    for manifest in together.of("TrainJob"):
        trainer = mapping(manifest.spec.get("trainer")) or {}
        given = mapping(manifest.spec.get("runtimeRef")) or {}
        kind, name = text(given.get("kind")) or _KINDS[0], text(given.get("name"))
        runtime = together.named(manifest, kind, name) if name else None
        body: dict[str, Json] = {key: trainer[key] for key in _KEYS if key in trainer}
        body["resources"] = trainer.get("resourcesPerNode")
        container = Container((manifest.title, "spec", "trainer"), body, is_init=False)
        gpus = container.amount(GPU)
        flags = [(p, number(v)) for p, n, v in launcher_flags(container) if n == "nproc-per-node"]
        policy = mapping((runtime.spec if runtime else {}).get("mlPolicy")) or {}
        written = [number((mapping(policy.get(k)) or {}).get(_EACH)) for k in ("torch", "mpi")]
        places: list[tuple[Manifest, Path, int | None]] = [
            *((manifest, path[1:], count) for path, count in flags),
            (manifest, ("spec", "trainer", _EACH), number(trainer.get(_EACH))),
        ]
        if runtime is not None and is_absent(trainer.get(_EACH)):
            places += [
                (runtime, ("spec", "mlPolicy", key, _EACH), count)
                for key, count in zip(("torch", "mpi"), written, strict=True)
            ]
        for owner, path, count in places:
            if gpus and count and count < gpus:
                whose = "" if owner is manifest else f" of {manifest.title}"
                many = "process" if count == 1 else "processes"
                found = f"{count} {many} for {gpus} GPUs{whose}: the others idle"
                remedy = f"write {gpus}, or auto" if path[-1] == _EACH else "remove it"
                finding = owner.find(Code.PROCESSES_PER_NODE, path, found, remedy, Level.WARNING)
                yield owner, finding
                break


def _moved(manifest: Manifest, path: Path) -> Path:
    """Return the place in the TrainJob of what stands in the container."""
    inner = path[4:] if path[2:3] == ("containers",) else ()
    if inner[:1] == ("resources",):
        inner = ("resourcesPerNode", *inner[1:])
    return (manifest.title, "spec", "trainer", *inner)


def runtime_kinds(together: ManifestSet) -> Iterator[Found]:
    """Warn of a runtime that is beside its TrainJob under the other kind, or another name.

    Kubeflow Trainer, API reference, RuntimeRef: kind is ClusterTrainingRuntime where none is said;
    pkg/webhooks/trainjob_webhook.go refuses others ("unsupported runtime").
    """
    for manifest in together.of("TrainJob"):
        given = mapping(manifest.spec.get("runtimeRef")) or {}
        kind, name = text(given.get("kind")) or _KINDS[0], text(given.get("name"))
        if kind not in _KINDS and (near := get_close_matches(kind, _KINDS, 1, _CLOSE)):
            found = f"{shown(kind)} is no kind of a runtime: the webhook refuses the TrainJob"
            place, remedy = ("spec", "runtimeRef", "kind"), f"write {near[0]}"
            yield manifest, manifest.find(Code.MISSING_OBJECT, place, found, remedy)
        if name is None or kind not in _KINDS or together.named(manifest, kind, name):
            continue
        if kind == _KINDS[0] and _SHIPPED.fullmatch(name):
            continue
        other = _KINDS[1 - _KINDS.index(kind)]
        beside = [each.name for each in together.beside(manifest, kind) if each.name]
        close = get_close_matches(name, beside, 1, _CLOSE)
        # The one runtime of a file is there for its TrainJobs.
        lone = together.unnamed(manifest, kind)
        path: Path = ("spec", "runtimeRef", "kind")
        if together.named(manifest, other, name) is not None:
            default = ", which it is where none is said" if is_absent(given.get("kind")) else ""
            found = f"a {kind}{default}, and {name} is a {other}"
            remedy = f"write kind: {other}"
        elif close:
            path = ("spec", "runtimeRef", "name")
            found, remedy = (
                f"no {kind} {shown(name)} among these objects",
                f"did you mean {close[0]}?",
            )
        elif len(lone) == 1 and len(together.of("TrainJob")) == 1:
            path = ("spec", "runtimeRef", "name")
            found = f"no {kind} {shown(name)} among these objects"
            remedy = f"there: {lone[0]}, which nobody names"
        else:
            continue
        finding = manifest.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
        yield manifest, finding


def targets(together: ManifestSet) -> Iterator[Found]:
    """Require of overrides in a TrainJob jobs that its runtime has.

    Kubeflow Trainer, "PodTemplateOverrides", targetJobs: names of the runtime's replicated jobs.
    """
    for manifest in together.of("TrainJob"):
        given = mapping(manifest.spec.get("runtimeRef")) or {}
        kind, name = text(given.get("kind")) or _KINDS[0], text(given.get("name"))
        runtime = together.named(manifest, kind, name) if name else None
        known = {each.name for each in replicated_jobs(runtime)} if runtime is not None else set()
        # The one that Kubeflow installs is seldom in a file, and may have been changed.
        surely, known = bool(known), known or set(_OWN_RUNTIMES.get(name or "", ()))
        for key in ("podTemplateOverrides", "podSpecOverrides"):
            for index, value in enumerate(items(manifest.spec.get(key)) or []):
                for place, each in enumerate(items((mapping(value) or {}).get("targetJobs")) or []):
                    target = text((mapping(each) or {}).get("name"))
                    if not known or target is None or target in known or is_placeholder(target):
                        continue
                    found = f"no job {shown(target)} in {kind}/{name}: the webhook refuses it"
                    level = Level.ERROR if surely else Level.WARNING
                    there = ", ".join(sorted(filter(None, known)))
                    path: Path = ("spec", key, index, "targetJobs", place, "name")
                    code, remedy = Code.REPLICATED_JOBS, f"there: {there}"
                    yield manifest, manifest.find(code, path, found, remedy, level)
