"""Which checkpoints go and which stay, in S3 and in a directory, and the removal of the former."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import checkpoints, manifest_format, retention, whole
from megatron_eks.programs.checkpoint.checkpoints import Judge
from megatron_eks.programs.checkpoint.commands import Sync
from megatron_eks.programs.checkpoint.listing import measured
from megatron_eks.programs.checkpoint.remote import Far
from megatron_eks.programs.checkpoint.whole import State
from megatron_eks.programs.program import Report


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
    judge = whole.by_sizes if dry_run else retention.Known(whole.THREADS).judge
    local = [*local_choices(directory, keep_last, judge, report)] if directory else []
    remote = [*remote_choices(sync, keep_last)] if sync else []
    chosen = [*local, *remote]
    going = [each for each in chosen if each.goes and (only is None or each.name in only)]
    report.facts["goes"] = [asdict(each) for each in going]
    report.facts["stays"] = [asdict(each) for each in chosen if not each.goes]
    if dry_run:
        return
    if directory:
        _remove_local(directory, [each for each in going if each.where == "local"], report)
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
        if len(kept) == keep_last:
            break
        if asks and (damage := sync.remote.damage(far[step])):
            remedy = "it does not count as kept; push it again from a whole copy"
            sync.report.warning(far[step].name, damage, remedy)
        else:
            kept.append(step)
    for step, each in far.items():
        goes = False
        if stop or needed is None:
            why = stop
        elif step == needed.step:
            why = "`latest` names it"
        elif each.unfinished and each.name not in sync.remote.removing:
            why = "perhaps a push that still goes on; if not, push it again, or remove it yourself"
        elif step in kept:
            why = f"one of the newest {keep_last}"
        elif len(kept) < keep_last or step > min(kept):
            why = f"damaged: {each.damage}" if each.damage else "not older than what stays"
        else:
            goes, why = True, f"older than the newest {keep_last}"
        yield Choice(each.name, "s3", each.size, goes, why)


def local_choices(root: Path, keep_last: int, judge: Judge, report: Report) -> Iterator[Choice]:
    """Yield what becomes of the checkpoints of a directory, as retention beside a training has it.

    Kept: the newest `keep_last`, what the tracker names, and without a manifest all but what a save
    left that did not end.
    """
    judged: dict[Path, State] = {}

    def look(path: Path, ckpt_format: str) -> State:
        judged[path] = judge(path, ckpt_format)
        return judged[path]

    going = set(retention.removable(root, keep_last, whole.DEFAULT_FORMAT, look))
    named = checkpoints.read_tracker(root, whole.DEFAULT_FORMAT).checkpoint
    stop = named is None or not (judged.get(named) or whole.by_sizes(named)).loadable
    for path in checkpoints.iterations(root).values():
        sizes = whole.by_sizes(path)
        state, goes = judged.get(path, sizes), path in going
        if state.kind == "damaged" and path == named:
            remedy = "nothing is removed here: bring it back, or let a start choose another one"
            report.error(path, state.why, f"{remedy} (meks ckpt pull)")
        elif sizes.loadable and not state.loadable:
            remedy = "it does not count as kept; remove it, or bring it back (meks ckpt pull)"
            report.warning(path, state.why, remedy)
        if goes:
            rest = state.kind == "unfinished"
            why = (
                "left by a save that did not end" if rest else f"older than the newest {keep_last}"
            )
        elif stop and state.kind != "damaged":
            why = "the tracker file names no checkpoint that can be loaded"
        elif path == named and state.loadable:
            why = "a restart takes it"
        else:
            why = {
                "unfinished": "perhaps a save in progress; if not, remove it yourself",
                "unverified": "it has no manifest; if you do not need it, remove it yourself",
                "damaged": f"damaged: {state.why}",
                "whole": f"one of the newest {keep_last}",
            }[state.kind]
        yield Choice(path.name, "local", measured(path)[0], goes, why)


def _named(sync: Sync, far: dict[int, Far]) -> tuple[Far | None, str]:
    """Return what `latest` names, and why nothing may be removed if it is not whole."""
    latest, wrong = sync.remote.latest()
    needed = far.get(manifest_format.step_of(latest)) if latest else None
    if needed is None or needed.unfinished:
        found = f"`latest`: {wrong}" if wrong else "`latest` names no whole checkpoint"
        sync.report.warning(sync.store.uri, found, "nothing was removed")
        return None, found
    if damage := sync.remote.damage(needed):
        remedy = "nothing was removed; push a whole checkpoint first"
        sync.report.error(needed.name, damage, remedy)
        return needed, f"{needed.name}, which `latest` names, is damaged"
    return needed, ""


def _remove_local(root: Path, going: list[Choice], report: Report) -> None:
    for each in going:
        # A training's own retention may have been quicker.
        with suppress(FileNotFoundError):
            retention.remove(root / each.name)
            program.say(f"{each.name}: removed from {root}")
            report.note("removed_locally", each.name)


def _remove_remote(sync: Sync, going: list[Choice]) -> None:
    for each in going:
        sync.remote.removing.add(each.name)
        # The manifest goes first: without it the checkpoint is not there for anybody.
        sync.store.delete([manifest_format.manifest_key(each.name)])
        sync.store.delete([found.key for found in sync.store.objects(f"{each.name}/")])
        sync.remote.removing.discard(each.name)  # what comes there from now on is another push
        program.say(f"{each.name}: removed from S3")
        sync.report.note("removed", each.name)
