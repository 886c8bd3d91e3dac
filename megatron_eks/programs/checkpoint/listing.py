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
    ends = [*(local_ends(directory) if directory else ())]
    far = [*remote.every().values()] if remote else []
    ends += map(_far_end, far)
    ends.sort(key=lambda end: (end.step, end.where))
    good = [each.name for each in far if not each.damage]
    latest = _latest(good, remote, report) if remote else None
    program.say(f"{'name':<16} {'where':<6} {'files':>6} {'bytes':>18} state")
    for end in ends:
        state = f"{end.state}: {end.why}" if end.why else end.state
        mark = ", latest" if end.where == "s3" and latest == end.name else ""
        program.say(f"{end.name:<16} {end.where:<6} {end.files:>6} {end.bytes:>18,} {state}{mark}")
    report.facts.update(
        checkpoints=_by_name(ends),
        ends=[asdict(end) for end in ends],
        latest=latest,
        pull=latest or (good[-1] if good else None),
    )
    if directory and directory.is_dir():
        choice = checkpoints.choose(directory, whole.DEFAULT_FORMAT)
        takes = choice.takes.name if choice.takes else None
        report.facts["restart"] = {"takes": takes, "why": choice.why}
        if choice.lost:
            report.findings.append(warning(*checkpoints.lost(directory, choice)))


def only_far(directory: Path | None, store: Store) -> Iterator[Finding]:
    """Warn of checkpoints in S3 where a run would begin anew, as after a lost file system."""
    if directory is None or (directory.is_dir() and checkpoints.iterations(directory)):
        return
    steps = {manifest_format.iteration_of(name) or 0: name for name in store.names()}
    if newest := max(steps, default=0):
        found = f"{steps[newest]} of an earlier run is there, and nothing in {directory}"
        remedy = "end the job and bring it back (meks ckpt pull), or name another S3 URI"
        yield warning(store.uri, found, remedy)


def local_ends(root: Path) -> Iterator[End]:
    """Yield the checkpoints of a directory."""
    if not root.is_dir():
        return
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
    key = manifest_format.manifest_key(far.name)
    age = min((each.age_seconds for each in far.objects), default=None)
    sizes = {each.key: each.size for each in far.objects if each.key != key}
    size = far.manifest.size if far.manifest else sum(sizes.values())
    files = len(far.manifest.files) if far.manifest else len(sizes)
    state = "unfinished" if far.unfinished else "damaged" if far.damage else "whole"
    return End(far.name, far.step, "s3", size, age, state, far.damage, files)


def _latest(good: list[str], remote: Remote, report: Report) -> str | None:
    """Return what `latest` names, if it is whole."""
    named, wrong = remote.latest()
    if named and named.name in good:
        return named.name
    if named:
        wrong = f"it names {named.name}, which is not whole"
    if wrong:
        subject = f"{remote.store.uri}/{manifest_format.LATEST}"
        report.warning(subject, wrong, "the next push mends it")
    return None


def _by_name(ends: list[End]) -> list[dict[str, object]]:
    """Return one row for each checkpoint that a run may go on from, at one end at least."""
    rows = []
    good = {(end.name, end.where): end for end in ends if end.state in {"whole", "unverified"}}
    for name, step in dict.fromkeys((end.name, end.step) for end in good.values()):
        here = {where: "yes" if (name, where) in good else "no" for where in ("s3", "local")}
        end = good.get((name, "s3")) or good[name, "local"]
        rows.append({"name": name, "step": step, "bytes": end.bytes, **here})
    return rows
