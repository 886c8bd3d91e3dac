"""Which checkpoints go and which stay, in S3 and in a directory, and the removal of the former."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import checkpoints
import program
import retention
import sync_manifest
from findings import error, warning
from sync_commands import Sync
from sync_listing import measured

# No push takes that long, so what has no manifest by then was given up.
_GIVEN_UP_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Choice:
    """What becomes of one checkpoint at one end, and why."""

    name: str
    where: str
    bytes: int
    goes: bool
    why: str


def prune(sync: Sync, keep_last: int) -> None:
    """Remove old checkpoints from S3, if what a restart needs is whole."""
    _remove_remote(sync, [each for each in remote_choices(sync, keep_last) if each.goes])


def run(
    sync: Sync | None,
    directory: Path | None,
    keep_last: int,
    only: Collection[str] | None,
    facts: dict[str, object],
    *,
    dry_run: bool,
) -> None:
    """Choose at both ends that are given, and remove what goes and what `only` names as well."""
    local = [*local_choices(directory, keep_last)] if directory else []
    remote = [*remote_choices(sync, keep_last)] if sync else []
    chosen = [*local, *remote]
    going = [each for each in chosen if each.goes and (only is None or each.name in only)]
    facts["goes"] = [asdict(each) for each in going]
    facts["stays"] = [asdict(each) for each in chosen if not each.goes]
    if dry_run:
        return
    if directory:
        _remove_local(directory, [each for each in going if each.where == "local"], facts)
    if sync:
        _remove_remote(sync, [each for each in going if each.where == "s3"])


def remote_choices(sync: Sync, keep_last: int) -> Iterator[Choice]:
    """Yield what becomes of the checkpoints in S3.

    Kept: the newest `keep_last`, what `latest` names, and what a push may still be sending.
    """
    latest = sync.remote.latest()
    far = sync.remote.checkpoints()
    needed = far.get(latest.step) if latest else None
    stop = ""
    if needed is None:
        stop = "`latest` names no whole checkpoint"
        sync.report.findings.append(warning(sync.store.uri, stop, "nothing was removed"))
    elif broken := sync.remote.problems(needed):
        stop = f"{needed.name}, which `latest` names, is damaged"
        sync.report.findings.append(
            error(needed.name, broken[0], "nothing was removed; push a whole checkpoint first")
        )
    newest = sorted(far)[-keep_last:]
    for step, manifest in far.items():
        goes = False
        if stop or needed is None:
            why = stop
        elif step == needed.step:
            why = "`latest` names it"
        elif step in newest:
            why = f"one of the newest {keep_last}"
        elif step > needed.step:
            why = f"newer than {needed.name}, which `latest` names"
        else:
            goes, why = True, f"older than the newest {keep_last}"
        yield Choice(manifest.name, "s3", manifest.size, goes, why)
    if needed is not None and not stop:
        yield from _unfinished(sync, needed.step, {manifest.name for manifest in far.values()})


def local_choices(root: Path, keep_last: int) -> Iterator[Choice]:
    """Yield what becomes of the checkpoints of a directory, as retention beside a training has it.

    Kept: the newest `keep_last`, what the tracker names, and what may be a save in progress.
    """
    if not root.is_dir():
        return
    ckpt_format = checkpoints.DEFAULT_FORMAT
    going = set(retention.removable(root, keep_last, ckpt_format))
    tracker = checkpoints.read_tracker(root, ckpt_format)
    complete = checkpoints.complete_iterations(root, ckpt_format)
    for number, path in checkpoints.iterations(root).items():
        if path in going:
            why = f"older than the newest {keep_last}"
            why = why if number in complete else "what a failed save left"
        elif tracker.state != "good":
            why = "the tracker file names no whole checkpoint"
        elif path == tracker.checkpoint:
            why = "a restart takes it"
        elif number in complete:
            why = f"one of the newest {keep_last}"
        else:
            why = "perhaps a save in progress, or something of yours"
        yield Choice(path.name, "local", measured(path)[0], path in going, why)


def _unfinished(sync: Sync, newest: int, known: set[str]) -> Iterator[Choice]:
    """Yield what becomes of the objects of pushes that never came to their manifest."""
    for name in sync.store.names():
        step = checkpoints.iteration_of(name)
        if step is None or name in known:
            continue
        found = sync.store.objects(f"{name}/")
        old = all(each.age_seconds > _GIVEN_UP_SECONDS for each in found)
        goes = old and step < newest
        why = "a push that was given up" if goes else "perhaps a push that still goes on"
        yield Choice(name, "s3", sum(each.size for each in found), goes, why)


def _remove_local(root: Path, going: list[Choice], facts: dict[str, object]) -> None:
    removed = []
    for each in going:
        # A training's own retention may have been quicker.
        with suppress(FileNotFoundError):
            retention.remove(root / each.name)
            program.say(f"{each.name}: removed from {root}")
            removed.append(each.name)
    facts["removed_locally"] = removed


def _remove_remote(sync: Sync, going: list[Choice]) -> None:
    for each in going:
        # The manifest goes first: without it the checkpoint is not there for anybody.
        sync.store.delete([sync_manifest.manifest_key(each.name)])
        sync.store.delete([found.key for found in sync.store.objects(f"{each.name}/")])
        program.say(f"{each.name}: removed from S3")
        sync.note("removed", each.name)
