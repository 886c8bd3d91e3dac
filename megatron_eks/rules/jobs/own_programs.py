"""Rules over the programs of this project's images: their directories, and what they expect."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.rules.jobs.output_places import mounted, place_of
from megatron_eks.rules.jobs.training_flags import options_of
from megatron_eks.rules.values import is_placeholder, number, shown
from megatron_eks.rules.workloads import EFA, Container, Manifest

_PROGRAM = re.compile(r"/opt/megatron-eks/programs/\w+\.py")
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
                    remedy = f"write {asked} here, or ask for {wanted}"
                    yield Finding(Code.EXTENDED_RESOURCES, path, found, remedy)


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
