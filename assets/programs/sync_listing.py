"""What checkpoint_sync lists: checkpoints of both ends, whole and torn, and what a run takes."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import checkpoints
import program
import sync_manifest
from findings import Report
from program import StopError
from sync_manifest import Manifest
from sync_remote import Remote


@dataclass(frozen=True)
class End:
    """One checkpoint as one end has it."""

    name: str
    step: int
    where: str
    bytes: int
    age_seconds: float | None
    """Since its last file was written; None where there is none."""
    torn: str | None
    """Why it cannot be loaded; None: it is whole, as far as its files' names and sizes tell."""
    files: int


def ls(directory: Path | None, remote: Remote | None, report: Report) -> None:
    """List the checkpoints of the ends that are given."""
    if directory and not remote and not directory.is_dir():
        raise StopError(
            program.EXIT_NOT_FOUND,
            directory,
            "no such directory",
            "correct it; what saves makes it",
        )
    ends = [*(local_ends(directory) if directory else ())]
    ends += remote_ends(remote) if remote else ()
    ends.sort(key=lambda end: (end.step, end.where))
    latest = remote.latest() if remote else None
    program.say(f"{'name':<16} {'where':<6} {'files':>6} {'bytes':>18}")
    for end in ends:
        state = f" torn: {end.torn}" if end.torn else ""
        mark = " latest" if end.where == "s3" and latest and latest.name == end.name else ""
        program.say(f"{end.name:<16} {end.where:<6} {end.files:>6} {end.bytes:>18,}{mark}{state}")
    report.facts.update(checkpoints=_by_name(ends), ends=[asdict(end) for end in ends], latest=None)
    if latest:
        report.facts["latest"] = latest.name
    if directory:
        found = checkpoints.restart(directory, checkpoints.DEFAULT_FORMAT)
        report.facts["restart"] = asdict(found)


def local_ends(root: Path) -> Iterator[End]:
    """Yield the checkpoints of a directory."""
    if not root.is_dir():
        return
    for step, path in checkpoints.iterations(root).items():
        torn = checkpoints.what_is_missing(path, checkpoints.DEFAULT_FORMAT)
        size, files, newest = measured(path)
        age = time.time() - newest if newest else None
        yield End(path.name, step, "local", size, age, torn, files)


def remote_ends(remote: Remote) -> Iterator[End]:
    """Yield the checkpoints in S3; sizes are compared with the manifest, checksums are not."""
    for name in remote.store.names():
        step = checkpoints.iteration_of(name)
        if step is None:
            continue
        objects = remote.store.objects(f"{name}/")
        key = sync_manifest.manifest_key(name)
        age = min((each.age_seconds for each in objects), default=None)
        sizes = {each.key: each.size for each in objects if each.key != key}
        torn: str | None = f"no {sync_manifest.MANIFEST}: its push has not come to its end"
        try:
            manifest = remote.manifest(name)
        except StopError as stop:
            manifest, torn = None, stop.finding.found
        if manifest:
            torn = _lacking(manifest, sizes)
        size = manifest.size if manifest else sum(sizes.values())
        files = len(manifest.files) if manifest else len(sizes)
        yield End(name, step, "s3", size, age, torn, files)


def measured(directory: Path) -> tuple[int, int, float]:
    """Return bytes, files and the time of the newest one of a directory that may be changing."""
    size, files, newest = 0, 0, 0.0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            found = path.stat()
            if path.is_file():
                size, files, newest = size + found.st_size, files + 1, max(newest, found.st_mtime)
    return size, files, newest


def _lacking(manifest: Manifest, sizes: dict[str, int]) -> str | None:
    for file in manifest.files:
        found = sizes.get(manifest.key(file))
        if found is None:
            return f"{file.path} is missing"
        if found != file.size:
            return f"{file.path} has {found} bytes, {file.size} expected"
    return None


def _by_name(ends: list[End]) -> list[dict[str, object]]:
    """Return one row for each checkpoint that is whole at one end at least."""
    rows = []
    whole = {(end.name, end.where): end for end in ends if end.torn is None}
    for name, step in dict.fromkeys((end.name, end.step) for end in ends if end.torn is None):
        here = {where: "yes" if (name, where) in whole else "no" for where in ("s3", "local")}
        end = whole.get((name, "s3")) or whole[name, "local"]
        rows.append({"name": name, "step": step, "bytes": end.bytes, **here})
    return rows
