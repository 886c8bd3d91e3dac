"""What checkpoint_sync lists: checkpoints of both ends, whole or not, and what a run takes."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import checkpoints, manifest_format, manifests, whole
from megatron_eks.programs.checkpoint.remote import Far, Remote
from megatron_eks.programs.program import Finding, Report, StopError, warning
from megatron_eks.programs.s3_store import Store


@dataclass(frozen=True)
class End:
    """One checkpoint as one end has it."""

    name: str
    step: int
    where: str
    bytes: int
    age_seconds: float | None
    """Since its last file was written; None where there is none."""
    state: str
    """whole, unverified, unfinished or damaged, as far as names and sizes tell (whole.py)."""
    why: str | None
    files: int


def ls(directory: Path | None, remote: Remote | None, report: Report) -> None:
    """List the checkpoints of the ends that are given."""
    if directory and not remote and not directory.is_dir():
        found, remedy = "no such directory", "correct it; what saves makes it"
        raise StopError(program.EXIT_NOT_FOUND, directory, found, remedy)
    far = [*remote.every().values()] if remote else []
    ends = [*(local_ends(directory) if directory else ()), *map(_far_end, far)]
    ends.sort(key=lambda end: (end.step, end.where))
    good = [each.name for each in far if not each.damage]
    latest = _latest(good, remote, report) if remote else None
    report.facts["ends"] = [asdict(end) for end in ends]
    report.facts.update(latest=latest, pull=latest or next(reversed(good), None))
    if directory and directory.is_dir():
        choice = checkpoints.choose(directory, whole.DEFAULT_FORMAT)
        takes = choice.takes.name if choice.takes else None
        report.facts["restart"] = {"takes": takes, "why": choice.why}
        if choice.lost:
            report.findings.append(warning(*checkpoints.lost(directory, choice)))


def only_far(directory: Path | None, store: Store) -> Iterator[Finding]:
    """Warn of checkpoints in S3 where a run would begin anew, as after a lost file system."""
    if directory is None or checkpoints.iterations(directory):
        return
    newest = max(store.names(), key=manifest_format.step_of, default="")
    if manifest_format.step_of(newest):
        found = f"{newest} of an earlier run is there, and nothing in {directory}"
        remedy = "end the job and bring it back (meks ckpt pull), or name another S3 URI"
        yield warning(store.uri, found, remedy)


def local_ends(root: Path) -> Iterator[End]:
    """Yield the checkpoints of a directory."""
    for step, path in checkpoints.iterations(root).items():
        state = whole.by_sizes(path)
        size, files, newest = measured(path)
        age = time.time() - newest if newest else None
        yield End(path.name, step, "local", size, age, state.kind, state.why or None, files)


def measured(directory: Path) -> tuple[int, int, float]:
    """Return bytes, files and the time of the newest one of a directory that may be changing."""
    size, files, newest = 0, 0, 0.0
    with suppress(FileNotFoundError):
        for path in manifests.files_of(directory):
            with suppress(FileNotFoundError):
                found = path.stat()
                size, files, newest = size + found.st_size, files + 1, max(newest, found.st_mtime)
    return size, files, newest


def _far_end(far: Far) -> End:
    age = min((each.age_seconds for each in far.objects), default=None)
    files = len(far.manifest.files if far.manifest else far.objects)
    state = "unfinished" if far.unfinished else "damaged" if far.damage else "whole"
    return End(far.name, far.step, "s3", far.size, age, state, far.damage, files)


def _latest(good: list[str], remote: Remote, report: Report) -> str | None:
    named, wrong = remote.latest()
    if named in good:
        return named
    if named:
        wrong = f"it names {named}, which is not whole"
    if wrong:
        subject = f"{remote.store.uri}/{manifest_format.LATEST}"
        report.warning(subject, wrong, "the next push mends it")
    return None
