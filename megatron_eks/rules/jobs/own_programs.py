"""Rules over the programs of this project's images: their directories, and what they expect."""

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import PurePosixPath

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.rules.jobs.output_places import mounted, place_of
from megatron_eks.rules.jobs.training_flags import options_of
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, mapping, number, shown, text
from megatron_eks.rules.workloads import EFA, Container, Manifest, Pod

_PROGRAM = re.compile(r"/opt/megatron-eks/programs/\w+\.py")
PROGRAMS = frozenset(
    {
        *("allreduce_bench.py", "checkpoint_sync.py", "convert_checkpoint.py", "efa_check.py"),
        *("fetch.py", "job_logs.py", "log_copy.py", "megatron_process.py", "prepare_data.py"),
        *("retention.py", "storage_bench.py", "train_bridge.py", "train_ddp.py", "train_fsdp.py"),
        *("train_megatron.py", "upload.py", "watch.py"),
    }
)
"""What has a main in assets/programs."""

_DIRECTIONS = ("import", "export")
_READ = {
    "convert_checkpoint.py": frozenset({"--hf-config", "--source"}),
    "prepare_data.py": frozenset({"--input", "--tokenizer"}),
}
_WRITTEN = {
    "convert_checkpoint.py": frozenset({"--target"}),
    "fetch.py": frozenset({"--directory"}),
    "prepare_data.py": frozenset({"--output-prefix"}),
    "storage_bench.py": frozenset({"--directory"}),
}
_GUARDED = frozenset({"--heartbeats"})
_EXPECTED = {"efa_check.py": "--expect"}


def directories(manifest: Manifest) -> Iterator[Finding]:
    """Refuse directories of this project's programs on which nothing is mounted.

    docs/images.md: the images hold programs alone, and run with a root that is closed for writing;
    assets/programs, the options of each.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for path, flag, value, name in _options(container):
                reads = flag in _READ.get(name, ())
                writes = flag in _WRITTEN.get(name, ()) or flag in _GUARDED
                # A name on the hub, or in S3, is no path.
                if not (reads or writes) or not value.startswith("/") or is_placeholder(value):
                    continue
                place = place_of(value, container, pod)
                if place is not None and not place.mount:
                    found = f"{flag} {shown(value)}, where nothing is mounted: "
                    found += "it is not found" if reads else "it cannot be written"
                    remedy = f"name a path on a mounted claim; mounted: {mounted(container)}"
                    yield Finding(Code.LOST_OUTPUT, path, found, remedy)


def devices(manifest: Manifest) -> Iterator[Finding]:
    """Require the EFA interfaces that this project's programs are told to expect.

    assets/programs/guards.py and efa_check.py: with another number the job stops at its start.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for path, flag, value, name in _options(container):
                wanted = number(value) if flag == _EXPECTED.get(name, "--expect-efa") else None
                asked = container.amount(EFA) or 0
                if wanted is not None and wanted != asked and not pod.spec.get("resourceClaims"):
                    found = f"{flag} {wanted}, and the container asks for {asked} of {EFA}: the "
                    found += "program stops at its start"
                    remedy = f"ask for {wanted}, or write {asked} here"
                    yield Finding(Code.EXTENDED_RESOURCES, path, found, remedy)


def words(manifest: Manifest) -> Iterator[Finding]:
    """Require a program of this project that there is, and words that its parser takes.

    assets/programs: what has a main, choices and pairs of its options, and that Megatron's own
    arguments follow two dashes.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            own = [(path, word) for path, word in container.words if _PROGRAM.fullmatch(word)]
            for path, word in own:
                name = PurePosixPath(word).name
                if name not in PROGRAMS:
                    close = get_close_matches(name, sorted(PROGRAMS), 1)
                    found = f"the images have no program {shown(name)}"
                    remedy = f"did you mean {close[0]}?" if close else "name one of theirs"
                    yield Finding(Code.REFUSED_IN_POD, path, found, remedy)
            options = {flag: (path, value) for path, flag, value, _ in _options(container)}
            if "--num-layers" in options and "--log-dir" in options:
                path = options["--num-layers"][0]
                found = "Megatron's arguments without two dashes before them: the program does not "
                found += "know them, and stops"
                yield Finding(Code.TRAINING_FLAG, path, found, 'write "--" before the first')
            path, given = options.get("--direction", ((), ""))
            if given and given not in _DIRECTIONS:
                found = f"--direction {shown(given)}: the program stops"
                yield Finding(Code.TRAINING_FLAG, path, found, f"use {' or '.join(_DIRECTIONS)}")
            path, most = options.get("--max-bytes", ((), ""))
            least = number(options.get("--min-bytes", ((), ""))[1])
            if least is not None and least > (number(most) or least):
                found = f"--max-bytes {most} below --min-bytes {least}: no size is measured"
                yield Finding(Code.TRAINING_FLAG, path, found, f"use {least} or more")


def configurations(together: ManifestSet) -> Iterator[Found]:
    """Refuse directories in a configuration of this project's programs that are on no mount.

    assets/programs/trainer_config.py: checkpoint.directory is written, and data are read.
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            for container in pod.containers:
                for _, flag, value, _ in _options(container):
                    if flag == "--config":
                        yield from _configured(together, manifest, pod, container, value)


def _configured(
    together: ManifestSet,
    manifest: Manifest,
    pod: Pod,
    container: Container,
    file: str,
) -> Iterator[Found]:
    place = place_of(file, container, pod)
    source = mapping(place.volume.get("configMap")) if place is not None else None
    name = text((source or {}).get("name"))
    kept = together.named(manifest, "ConfigMap", name) if name else None
    data = mapping(kept.body.get("data")) if kept is not None else None
    try:
        body = json.loads(text((data or {}).get(PurePosixPath(file).name)) or "")
    except ValueError:
        return
    for part, key in (("checkpoint", "directory"), ("data", "dataset"), ("data", "tokenizer")):
        given = text((mapping((mapping(body) or {}).get(part)) or {}).get(key)) or ""
        where = place_of(given, container, pod) if given.startswith("/") else None
        if kept is not None and where is not None and not where.mount:
            found = f"{part}.{key} is {shown(given)}, where {manifest.title} mounts nothing"
            remedy = f"name a path on a mounted claim; mounted: {mounted(container)}"
            place_in = ("data", PurePosixPath(file).name)
            yield kept, kept.find(Code.LOST_OUTPUT, place_in, found, remedy)


def _options(container: Container) -> Iterator[tuple[Path, str, str, str]]:
    """Return the options of one of these programs, each with the program's name."""
    words = container.words
    start = next((n for n, (_, word) in enumerate(words) if _PROGRAM.fullmatch(word)), None)
    if start is not None:
        name = PurePosixPath(words[start][1]).name
        own = words[start + 1 :]
        # What follows two dashes is for the program behind it.
        end = next((n for n, (_, word) in enumerate(own) if word == "--"), len(own))
        for path, flag, value in options_of(own[:end]):
            yield path, flag, value, name
