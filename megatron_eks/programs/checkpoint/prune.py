"""Which checkpoints go and which stay, in S3 and in a directory, and the removal of the former."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import checkpoints, manifest_format, retention, whole
from megatron_eks.programs.checkpoint.commands import Sync
from megatron_eks.programs.checkpoint.listing import measured
from megatron_eks.programs.checkpoint.remote import Far
from megatron_eks.programs.checkpoint.whole import State
from megatron_eks.programs.program import Report

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
    report: Report,
    *,
    dry_run: bool,
) -> None:
    """Choose at both ends that are given, and remove what goes and what `only` names as well.

    A dry run judges by sizes; before anything is removed all bytes of what stays are read.
    """
    look = _Look(whole.by_sizes if dry_run else retention.Known(whole.THREADS).judge)
    local = [*local_choices(directory, keep_last, look, report)] if directory else []
    remote = [*remote_choices(sync, keep_last)] if sync else []
    chosen = [*local, *remote]
    going = [each for each in chosen if each.goes and (only is None or each.name in only)]
    facts = report.facts
    facts["goes"] = [asdict(each) for each in going]
    facts["stays"] = [asdict(each) for each in chosen if not each.goes]
    if dry_run:
        # A run that removes looks at the same ones, and reads those that are not damaged.
        reads = [path for path, state in look.found.items() if state.loadable]
        facts["reads"] = sum(measured(path)[0] for path in reads)
        return
    if directory:
        _remove_local(directory, [each for each in going if each.where == "local"], facts)
    if sync:
        _remove_remote(sync, [each for each in going if each.where == "s3"])


def remote_choices(sync: Sync, keep_last: int) -> Iterator[Choice]:
    """Yield what becomes of the checkpoints in S3.

    Kept: the newest `keep_last` whole ones and all that is younger than the oldest of them, what
    `latest` names, and what a push may still be sending.
    """
    far = sync.remote.every()
    needed, stop = _named(sync, far)
    good = [step for step, each in far.items() if not each.damage]
    kept: list[int] = []
    # Checksums are asked for only where something could go.
    asks = len(good) > keep_last or len(good) < len(far)
    for step in reversed(good):
        damage = sync.remote.damage(far[step]) if asks and len(kept) < keep_last else None
        if damage:
            _warn(sync, far[step].name, damage)
        elif len(kept) < keep_last:
            kept.append(step)
    for step, each in far.items():
        goes = False
        if stop or needed is None:
            why = stop
        elif step == needed.step:
            why = "`latest` names it"
        elif each.unfinished:
            old = all(found.age_seconds > _GIVEN_UP_SECONDS for found in each.objects)
            goes = old and step < needed.step
            why = "a push that was given up" if goes else "perhaps a push that still goes on"
        elif step in kept:
            why = f"one of the newest {keep_last}"
        elif len(kept) < keep_last or step > min(kept):
            why = f"damaged: {each.damage}" if each.damage else "not older than what stays"
        else:
            goes, why = True, f"older than the newest {keep_last}"
        size = each.manifest.size if each.manifest else sum(one.size for one in each.objects)
        yield Choice(each.name, "s3", size, goes, why)


class _Look:
    """Judges checkpoints, and remembers what it found."""

    def __init__(self, judge: checkpoints.Judge) -> None:
        self._judge = judge
        self.found: dict[Path, State] = {}

    def __call__(self, path: Path, ckpt_format: str) -> State:
        state = self.found[path] = self._judge(path, ckpt_format)
        return state


def local_choices(root: Path, keep_last: int, look: _Look, report: Report) -> Iterator[Choice]:
    """Yield what becomes of the checkpoints of a directory, as retention beside a training has it.

    Kept: the newest `keep_last`, what the tracker names, what has no manifest, and what may be a
    save in progress.
    """
    if not root.is_dir():
        return
    going = set(retention.removable(root, keep_last, whole.DEFAULT_FORMAT, look))
    tracker = checkpoints.read_tracker(root, whole.DEFAULT_FORMAT)
    named = tracker.checkpoint
    stop = named is None or not (look.found.get(named) or whole.by_sizes(named)).loadable
    for path in checkpoints.iterations(root).values():
        sizes = whole.by_sizes(path)
        state, goes = look.found.get(path, sizes), path in going
        if state.kind == "damaged" and path == named:
            remedy = "nothing is removed here: bring it back, or let a start choose another one"
            report.error(path, state.why, f"{remedy} (meks ckpt pull)")
        elif sizes.loadable and not state.loadable:
            remedy = "it does not count as kept; remove it, or bring it back (meks ckpt pull)"
            report.warning(path, state.why, remedy)
        if goes:
            old = f"older than the newest {keep_last}"
            why = "what a failed save left" if state.kind == "unfinished" else old
        elif stop and state.kind != "damaged":
            why = "the tracker file names no checkpoint that can be loaded"
        else:
            needed = path == named and state.loadable
            why = "a restart takes it" if needed else _staying(state, keep_last)
        yield Choice(path.name, "local", measured(path)[0], goes, why)


def _staying(state: State, keep_last: int) -> str:
    return {
        "unfinished": "perhaps a save in progress, or something of yours",
        "unverified": "it has no manifest; if you do not need it, remove it yourself",
        "damaged": f"damaged: {state.why}",
        "whole": f"one of the newest {keep_last}",
    }[state.kind]


def _named(sync: Sync, far: dict[int, Far]) -> tuple[Far | None, str]:
    """Return what `latest` names, and why nothing may be removed if it is not whole."""
    latest, wrong = sync.remote.latest()
    found = f"`latest`: {wrong}" if wrong else "`latest` names no whole checkpoint"
    needed = far.get(latest.step) if latest else None
    if needed is None or needed.unfinished:
        sync.report.warning(sync.store.uri, found, "nothing was removed")
        return None, found
    if damage := sync.remote.damage(needed):
        remedy = "nothing was removed; push a whole checkpoint first"
        sync.report.error(needed.name, damage, remedy)
        return needed, f"{needed.name}, which `latest` names, is damaged"
    return needed, ""


def _warn(sync: Sync, name: str, damage: str) -> None:
    remedy = "it does not count as kept; push it again from a whole copy"
    sync.report.warning(name, damage, remedy)


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
        sync.store.delete([manifest_format.manifest_key(each.name)])
        sync.store.delete([found.key for found in sync.store.objects(f"{each.name}/")])
        program.say(f"{each.name}: removed from S3")
        sync.report.note("removed", each.name)
