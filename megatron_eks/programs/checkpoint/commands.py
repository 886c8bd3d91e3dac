"""What checkpoint_sync does: push, pull and verify, each whole or without effect."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import checkpoints, manifest_format, manifests, whole
from megatron_eks.programs.checkpoint.manifest_format import Manifest
from megatron_eks.programs.checkpoint.pull import DamagedCopyError, fetch
from megatron_eks.programs.checkpoint.remote import Far, Remote
from megatron_eks.programs.checkpoint.whole import State
from megatron_eks.programs.program import Finding, Report, StopError, error, warning
from megatron_eks.programs.s3_store import Store


@dataclass(frozen=True)
class Sync:
    """The two ends, and where findings and facts go."""

    directory: Path
    remote: Remote
    report: Report
    threads: int = 4
    """That compute checksums at once."""

    @property
    def store(self) -> Store:
        """Return where the objects are."""
        return self.remote.store

    def local(self) -> dict[int, Path]:
        """Return the checkpoints of the directory that may be sent, by step, oldest first.

        Without a manifest a save of a run is final when the tracker names it, or a later one.
        """
        named = checkpoints.read_tracker(self.directory, whole.DEFAULT_FORMAT).step
        others = checkpoints.imported(self.directory)
        found = {}
        for step, path in checkpoints.iterations(self.directory).items():
            state = whole.by_sizes(path)
            # Before a run's first save has come to its end there is no tracker.
            imported = others is None or path.name in others
            final = imported if named is None else step <= named
            if state.kind == "whole" or (state.kind == "unverified" and final):
                found[step] = path
        return found


def push(sync: Sync, name: str | None, *, every: bool) -> None:
    """Send the newest whole checkpoint, every one, or the named one."""
    local = sync.local()
    chosen = {step: path for step, path in local.items() if name in (None, path.name)}
    if not chosen:
        raise _nothing_to_send(sync.directory, name)
    newest = max(chosen)
    for step, path in checkpoints.iterations(sync.directory).items():
        if name is None and step not in chosen and (every or step > newest):
            remedy = f"it is not sent; {chosen[newest].name} is the newest that is"
            sync.report.warning(path, str(whole.by_sizes(path)), remedy)
    for step in sorted(chosen)[0 if every else -1 :]:
        try:
            push_one(sync, chosen[step])
        except StopError as problem:
            # One that is not as its manifest says keeps no other one from being sent.
            if not every or problem.code != program.EXIT_CHECK_FAILED:
                raise
            sync.report.findings.append(problem.finding)


def push_one(sync: Sync, path: Path) -> None:
    """Send one checkpoint and move `latest` to it; visible when all of it is there.

    Raises StopError if it is damaged, changes or goes away meanwhile, or another writer has put
    a different one of this name there.
    """
    try:
        manifest = _manifest_of(sync, path)
        sent = sync.remote.put(manifest, path)
    except FileNotFoundError as problem:
        found = f"{problem.filename} went away while it was sent"
        remedy = "push the next checkpoint; retention removes old ones"
        raise StopError(program.EXIT_CHECK_FAILED, path, found, remedy) from problem
    program.say(f"{path.name}: {'sent' if sent else 'already there'}, {manifest.size:,} bytes")
    sync.report.note("pushed" if sent else "present", path.name)
    newer = sync.remote.move_latest(path.name)
    if newer:
        found = f"it names {newer}, newer than {path.name}, and stays"
        remedy = "use another URI for another run"
        sync.report.warning(f"{sync.store.uri}/{manifest_format.LATEST}", found, remedy)


def pull(sync: Sync, name: str | None) -> None:
    """Fetch what `latest` names, or the named checkpoint, and make a run resume from it.

    Where the newest is damaged, the next older one is fetched; a named one never is replaced.
    """
    manifest = None
    for far in _wanted(sync, name):
        try:
            manifest = fetch(far, sync.directory, sync.store, sync.threads)
            break
        except DamagedCopyError as problem:
            subject, found = f"{sync.store.uri}/{far.name}", str(problem)
            if name is not None:
                remedy = "pull another one (ls lists them), or push it again from a whole copy"
                raise StopError(program.EXIT_CHECK_FAILED, subject, found, remedy) from problem
            remedy = "an older one is fetched; push it again from a whole copy"
            sync.report.warning(subject, found, remedy)
    if manifest is None and sync.report.findings:
        found, remedy = "no checkpoint there is whole", "push one from a whole copy"
        raise StopError(program.EXIT_CHECK_FAILED, sync.store.uri, found, remedy)
    if manifest is None:
        _absent(sync, name)
    sync.report.facts.update(pulled=manifest.name, step=manifest.step, bytes=manifest.size)
    if not checkpoints.publish(sync.directory, manifest.name):
        found = f"a newer whole checkpoint than {manifest.name} is there"
        sync.report.warning(sync.directory, found, "nothing, a run resumes from the newer one")
    program.say(f"{manifest.name}: whole in {sync.directory}")


def verify(sync: Sync, name: str | None, *, local: bool) -> set[str]:
    """Compare sizes and checksums that S3 keeps with the manifests, without fetching anything.

    With `local` S3 may hold none: a run's first push is still to come. Returns what was compared.
    """
    remote = sync.remote
    every = remote.every().values()
    found = [each for each in every if not each.unfinished and name in (None, each.name)]
    if not found and not local:
        _absent(sync, name)
    for each in found:
        problems = [each.damage] if each.damage else []
        copy = sync.directory / each.name
        if each.manifest is not None:
            problems += remote.problems(each.manifest)
            if local and copy.is_dir():
                bad = manifests.differing(each.manifest, copy, threads=sync.threads)
                problems += [f"{copy / path} differs" for path in bad]
        _tell(sync.report, each.name, State("damaged", problems[0]) if problems else State("whole"))
    return {each.name for each in found}


def verify_local(directory: Path, name: str | None, report: Report, known: set[str]) -> None:
    """Read the checkpoints of a directory; those of `known` were compared with S3.

    Beside these an unfinished one is most likely the save that goes on, and no failure.
    """
    there = checkpoints.iterations(directory).values()
    chosen = [path for path in there if name in (None, path.name)]
    if not chosen and not known:
        found, remedy = "no checkpoint there", "correct the directory or the name (ls lists them)"
        raise StopError(program.EXIT_NOT_FOUND, directory / (name or ""), found, remedy)
    for path in chosen:
        if path.name not in known:
            state = whole.by_bytes(path)
            is_saving = bool(known) and state.kind == "unfinished"
            _tell(report, path.name, state, warning if is_saving else error)


def _tell(
    report: Report, name: str, state: State, finding: Callable[[str, str, str], Finding] = error
) -> None:
    if not state.loadable:
        remedy = "push it again from a whole copy, pull one, or remove it"
        report.findings.append(finding(name, str(state), remedy))
    report.note("verified" if state.kind == "whole" else state.kind, name)
    program.say(f"{name}: {state}")


def _manifest_of(sync: Sync, path: Path) -> Manifest:
    """Return the manifest of a checkpoint to send; one without is read first."""
    links = manifests.links_in(path)
    if links:
        found, remedy = "it is no file of the checkpoint, and is not followed", "replace it by one"
        raise StopError(program.EXIT_CHECK_FAILED, links[0], found, remedy)
    state = whole.by_sizes(path)
    if state.kind == "unverified":
        others = checkpoints.imported(path.parent)
        own = others is not None and path.name not in others
        state = whole.seal(path) if own else whole.by_bytes(path, threads=sync.threads)
    if not state.loadable:
        remedy = "push another one; this is not sent"
        raise StopError(program.EXIT_CHECK_FAILED, path, str(state), remedy)
    # S3 compares what arrives with the checksums in the manifest.
    return manifests.read(path) or manifests.of_directory(path, threads=sync.threads)


def _wanted(sync: Sync, name: str | None) -> Iterator[Far]:
    """Yield the named checkpoint, or what `latest` names and then the others, newest first."""
    if name is not None:
        far = sync.remote.look(name)
        if far is not None and not far.unfinished:
            yield far
        return
    latest, wrong = sync.remote.latest()
    named = sync.remote.look(latest) if latest else None
    if named is not None:
        yield named
    elif latest is not None:
        wrong = f"it names {latest}, which is not there"
    if wrong:
        subject = f"{sync.store.uri}/{manifest_format.LATEST}"
        remedy = "the newest whole checkpoint is taken; the next push mends it"
        sync.report.warning(subject, wrong, remedy)
    # A first push may have ended between the manifest and the pointer.
    for far in reversed(sync.remote.every().values()):
        if not far.unfinished and far.name != latest:
            yield far


def _nothing_to_send(directory: Path, name: str | None) -> StopError:
    there = checkpoints.iterations(directory).values()
    states = {each.name: whole.by_sizes(each) for each in there if name in (None, each.name)}
    bad = [
        f"{each}: {'its save may still go on' if state.loadable else state}"
        for each, state in states.items()
        if name or state.kind == "damaged"
    ]
    if bad:
        remedy = "push another one; meks ckpt ls says what each is"
        return StopError(program.EXIT_CHECK_FAILED, directory, "; ".join(bad), remedy)
    found, remedy = "no whole checkpoint", "wait for the save to end, or correct the directory"
    return StopError(program.EXIT_NOT_FOUND, directory / (name or ""), found, remedy)


def _absent(sync: Sync, name: str | None) -> NoReturn:
    found, remedy = "no whole checkpoint there", "push one, or correct the URI (ls lists them)"
    raise StopError(program.EXIT_NOT_FOUND, f"{sync.store.uri}/{name or ''}", found, remedy)
