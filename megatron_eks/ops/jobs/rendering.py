"""A job file with its overrides, checked and rendered in a folder of its own."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from megatron_eks.catalog.workloads import WORKLOADS, whole
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Finding, Level, dotted, has_errors
from megatron_eks.config.errors import Path as Key
from megatron_eks.config.job import AnyJob
from megatron_eks.config.load import (
    COMMAND_LINE,
    Document,
    Json,
    Place,
    read_documents,
    read_mapping,
)
from megatron_eks.kubernetes.client import Object
from megatron_eks.kubernetes.manifests import read_file
from megatron_eks.ops.failure import USAGE, Failure, no_such
from megatron_eks.ops.planning.megatron import Megatron
from megatron_eks.plan.cluster.data_access import DataAccess, plan_data_access
from megatron_eks.project import OUTPUTS, Files, check_files, job_files, synth_command
from megatron_eks.shipping import Shipped, unpack
from megatron_eks.synthesis import SynthesisError, synthesise_manifests

HASH_ANNOTATION = "megatron-eks/spec-hash"
"""Of everything that was rendered for a job, on the object that runs it."""
JOB_ANNOTATION = "megatron-eks/job"
"""What the job file said, with what the command line set, on the same object."""

Overrides = Mapping[Key, Json]


@dataclass(frozen=True)
class Wish:
    """A job that somebody wants, before it is rendered."""

    cluster_file: Path
    job: str
    """A file, or the name of a job in jobs/."""
    changes: Overrides
    today: date


@dataclass(frozen=True)
class Rendered:
    """What a job consists of in the cluster."""

    workload: Object
    """The object that runs its pods."""
    beside: tuple[Object, ...]
    """What its pods mount, and the Service that they find each other by."""
    warnings: tuple[Finding, ...]
    access: DataAccess
    """What its pods need in S3."""
    job: AnyJob
    shipped: Shipped
    """What travels with it."""

    @property
    def planned(self) -> Object:
        """The object that runs its pods, with what it will become."""
        return whole(self.workload, self.beside)

    @property
    def hash(self) -> str:
        """What changes with any part of it."""
        return str(self.workload["metadata"]["annotations"][HASH_ANNOTATION])


def render(wish: Wish, megatron: Megatron) -> Rendered:
    """Check and render a job; raise ConfigError with what `meks validate` would print."""
    paths, file = _files(wish)

    def edit(path: Path, document: Document) -> Document:
        return applied(document, wish.changes) if path == file else document

    files = check_files(wish.cluster_file, paths, wish.today, edit, megatron.findings, code=True)
    if has_errors(files.findings):
        raise ConfigError(files.findings)
    document, job = files.jobs[paths.index(file)]
    own = [each for each in files.findings if each.file in {document.file, COMMAND_LINE}]
    warnings = tuple(each for each in own if each.level is Level.WARNING)
    found = _objects(wish.cluster_file, files, job.name)
    text = json.dumps(found, sort_keys=True)
    (workload,) = (each for each in found if each["kind"] in WORKLOADS)
    annotations = workload["metadata"].setdefault("annotations", {})
    annotations[HASH_ANNOTATION] = hashlib.sha256(text.encode()).hexdigest()[:20]
    annotations[JOB_ANNOTATION] = json.dumps(document.value, sort_keys=True)
    beside = tuple(each for each in found if each is not workload)
    shipped = files.shipped[job.name]
    return Rendered(workload, beside, warnings, plan_data_access([job]), job, shipped)


def _objects(cluster_file: Path, files: Files, job: str) -> list[Object]:
    outputs = cluster_file.with_name(OUTPUTS)
    with tempfile.TemporaryDirectory(prefix="meks-") as name:
        folder = Path(name)
        (folder / "jobs").mkdir()
        shutil.copy(cluster_file, folder / "cluster.yaml")
        if outputs.exists():
            shutil.copy(outputs, folder / OUTPUTS)
        for number, (document, each) in enumerate(files.jobs):
            file = folder / "jobs" / f"{number:05}.yaml"
            there = unpack(each, files.shipped[each.name], file.with_suffix(""))
            value = {**document.value, **there} if isinstance(document.value, dict) else {}
            # Every JSON text is YAML, and keeps the types of its values.
            file.write_text(json.dumps(value))
        try:
            synthesise_manifests(folder / "cluster.yaml", folder / "dist", quiet=True)
        except SynthesisError as error:
            remedy = f"see the findings above, and run: {synth_command(cluster_file)}"
            raise Failure(Code.NOT_SYNTHESISED, str(error), remedy) from error
        return read_file(folder / "dist" / "jobs" / f"{job}.k8s.yaml")


def _files(wish: Wish) -> tuple[list[Path], Path]:
    paths = job_files(wish.cluster_file)
    if wish.job.endswith((".yaml", ".yml")):
        file = Path(wish.job)
        # The same file may be named in two ways.
        known = next((each for each in paths if each.resolve() == file.resolve()), None)
        return (paths, known) if known else ([*paths, file], file)
    names = {_name(path): path for path in reversed(paths)}
    if wish.job not in names:
        found = f"no job file has the name {wish.job!r}"
        there = filter(None, names)
        raise no_such(Code.JOB_NOT_FOUND, found, wish.job, there, more="; or name a file")
    return paths, names[wish.job]


def _name(path: Path) -> str:
    try:
        value = read_mapping(path.read_text(encoding="utf-8"), str(path)).value
    except (OSError, UnicodeDecodeError):
        # Checking it says what is wrong with it.
        return ""
    return str(value.get("name", "")) if isinstance(value, dict) else ""


def parse(options: Sequence[str]) -> dict[Key, Json]:
    """Read `training.train_iters=20` and the like; a value is what YAML makes of it."""
    found: dict[Key, Json] = {}
    for option in options:
        name, equals, text = option.partition("=")
        documents = read_documents(text, "--set") if text else []
        if not equals or any(each.findings for each in documents) or len(documents) > 1:
            raise _wrong(option, "not PATH=VALUE", "write for example training.train_iters=20")
        path = tuple(name.split("."))
        if not all(path) or "[" in name:
            remedy = "write for example data.num_workers=4; a list is set as a whole"
            raise _wrong(option, f"{name!r} is not a path of keys", remedy)
        found[path] = documents[0].value if documents else None
    return found


def applied(document: Document, overrides: Overrides) -> Document:
    """Return a job file's content with other values in it, which are at no line of it."""
    if document.findings or not overrides:
        return document
    changed = replace(document, value=deepcopy(document.value), places=dict(document.places))
    for path, value in overrides.items():
        _put(changed, path, value)
    return changed


def _put(document: Document, path: Key, value: Json) -> None:
    here: Json = document.value
    for depth, part in enumerate(path):
        if not isinstance(here, dict):
            at = dotted(path[:depth])
            raise _wrong(dotted(path), f"{at or 'the file'} is no mapping", f"set {at} as a whole")
        if depth == len(path) - 1:
            here[str(part)] = value
        elif here.get(str(part)) is None:
            here[str(part)] = {}
        here = here[str(part)]
    document.places = {
        place: at for place, at in document.places.items() if place[: len(path)] != path
    }
    document.places[path] = Place(0)


def _wrong(option: str, found: str, remedy: str) -> Failure:
    return Failure(Code.BAD_SET_OPTION, found, remedy, where=f"--set {option}", exit_code=USAGE)
