"""What checkpoint_sync does: push, pull and verify, each whole or without effect."""

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import checkpoints
import program
import sync_manifest
from findings import Report, error, warning
from program import StopError
from s3_store import GoneError, Store
from sync_manifest import Latest, Manifest
from sync_pull import fetch, publish
from sync_remote import Remote


@dataclass(frozen=True)
class Sync:
    """The two ends, and where findings and facts go."""

    directory: Path
    remote: Remote
    report: Report
    part: int
    """Least part size in bytes."""
    threads: int
    """That compute checksums at once."""

    @property
    def store(self) -> Store:
        """Return where the objects are."""
        return self.remote.store

    def local(self) -> dict[int, Path]:
        """Return the whole checkpoints of the directory by step, oldest first."""
        if not self.directory.is_dir():
            return {}
        return checkpoints.complete_iterations(self.directory, checkpoints.DEFAULT_FORMAT)

    def note(self, fact: str, name: str) -> None:
        """Add a checkpoint to a list of the summary."""
        noted = self.report.facts.get(fact)
        self.report.facts[fact] = [*noted, name] if isinstance(noted, list) else [name]


def push(sync: Sync, name: str | None, *, every: bool) -> None:
    """Send the newest whole checkpoint, every one, or the named one."""
    local = sync.local()
    chosen = {step: path for step, path in local.items() if name in (None, path.name)}
    if not chosen:
        raise StopError(
            program.EXIT_NOT_FOUND,
            sync.directory / (name or ""),
            "no whole checkpoint",
            "wait for the save to end, or correct the directory",
        )
    for step in sorted(chosen)[0 if every else -1 :]:
        push_one(sync, chosen[step])


def push_one(sync: Sync, path: Path) -> None:
    """Send one checkpoint and move `latest` to it; visible when all of it is there.

    Raises StopError if the checkpoint changes or goes away meanwhile, or another writer has put
    a different one of this name there.
    """
    step = checkpoints.iteration_of(path.name) or 0
    try:
        manifest = sync_manifest.of_directory(path, step, part=sync.part, threads=sync.threads)
        sent = sync.remote.put(manifest, path)
    except FileNotFoundError as problem:
        raise StopError(
            program.EXIT_CHECK_FAILED,
            path,
            f"{problem.filename} went away while it was sent",
            "push the next checkpoint; retention removes old ones",
        ) from problem
    program.say(f"{path.name}: {'sent' if sent else 'already there'}, {manifest.size:,} bytes")
    sync.note("pushed" if sent else "present", path.name)
    newer = sync.remote.move_latest(Latest(path.name, step))
    if newer:
        sync.report.findings.append(
            warning(
                f"{sync.store.uri}/{sync_manifest.LATEST}",
                f"it names {newer.name}, newer than {path.name}, and stays",
                "use another URI for another run",
            )
        )


def pull(sync: Sync, name: str | None, *, allow_none: bool) -> None:
    """Fetch what `latest` names, or the named checkpoint, and make a run resume from it."""
    manifest = sync.remote.wanted(name)
    if manifest is None and allow_none:
        program.say(f"{sync.store.uri}: no checkpoint yet")
        sync.report.facts.update(pulled=None)
        return
    manifest = _fetch_whole(sync, manifest or _absent(sync, name), name)
    sync.report.facts.update(pulled=manifest.name, step=manifest.step, bytes=manifest.size)
    if not publish(sync.directory, manifest):
        sync.report.findings.append(
            warning(
                sync.directory,
                f"a newer whole checkpoint than {manifest.name} is there",
                "nothing, a run resumes from the newer one",
            )
        )
    program.say(f"{manifest.name}: whole in {sync.directory}")


def _fetch_whole(sync: Sync, manifest: Manifest, name: str | None) -> Manifest:
    """Fetch a checkpoint, or the one that `latest` names now if it was pruned meanwhile."""
    try:
        fetch(manifest, sync.directory, sync.store, sync.threads)
    except GoneError as problem:
        again = None if name else sync.remote.wanted(None)
        if again is None or again.name == manifest.name:
            raise StopError(
                program.EXIT_CHECK_FAILED,
                str(problem),
                "this object of the checkpoint is missing",
                "pull another one by --name (ls lists them)",
            ) from problem
        return _fetch_whole(sync, again, name)
    return manifest


def verify(sync: Sync, name: str | None, *, every: bool, local: bool) -> None:
    """Compare sizes and checksums that S3 keeps with the manifests, without fetching anything."""
    remote = sync.remote
    manifests = [*remote.checkpoints().values()] if every else [remote.wanted(name)]
    for each in manifests or [None]:
        manifest = each or _absent(sync, name)
        problems = remote.problems(manifest)
        copy = sync.directory / manifest.name
        if local and copy.is_dir():
            bad = sync_manifest.differing(manifest, copy, threads=sync.threads)
            problems += [f"{copy / path} differs" for path in bad]
        for text in problems:
            sync.report.findings.append(
                error(manifest.name, text, "push it again from a whole copy, or prune it")
            )
        sync.note("damaged" if problems else "verified", manifest.name)
        state = "damaged" if problems else "whole"
        program.say(f"{manifest.name}: {state}, {len(manifest.files)} files, {manifest.size:,} B")


def _absent(sync: Sync, name: str | None) -> NoReturn:
    raise StopError(
        program.EXIT_NOT_FOUND,
        f"{sync.store.uri}/{name or ''}",
        "no whole checkpoint there",
        "push one, or correct the URI (ls lists what is there)",
    )
