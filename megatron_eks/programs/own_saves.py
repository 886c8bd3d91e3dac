"""Looks after the checkpoints of a program of the user's, on disk and in S3.

own_saves ls|verify|push|pull|prune LOCAL_DIR [S3_URI] --marker FILE [--name N] [--all]
          [--keep-last N] [--dry-run] [--only NAME]...
own_saves keep LOCAL_DIR [S3_URI] --marker FILE [--keep-last N] [--parent PID]

A checkpoint is a folder of LOCAL_DIR whose name ends in its step, such as checkpoint-500. It is
complete when FILE is in it, which its save writes last. Newer means written later: a run that
begins anew counts from 0 again.

verify compares each that is complete at both ends, file by file, by the checksums that S3 keeps.
push sends the newest complete one, or all, with FILE last, so that what has it there is complete as
well; pull fetches it, and lets it appear once all of it is there. prune removes complete ones that
are older than the newest N; what is not complete is left alone. --name takes a name or a step.
Where no directory is meant, LOCAL_DIR is `-`. keep runs beside the program's ranks: it sends the
newest complete ones and removes older ones, here and there.

Exit codes: 0 done, 2 the command line is wrong, 3 nothing there, 4 a check failed, or the newest
checkpoint is not in S3, 5 S3 cannot be reached.
"""

import argparse
import re
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from megatron_eks.programs import inside, program
from megatron_eks.programs.checkpoint import retention
from megatron_eks.programs.checkpoint.listing import End, measured
from megatron_eks.programs.program import Report, StopError
from megatron_eks.programs.run_log import Copies
from megatron_eks.programs.s3_store import Store, Stored, part_bytes
from megatron_eks.programs.upload import is_there

_COMPLETE = "complete"
# Of a folder that a save makes.
_NAME = re.compile(r"[^.].*?\d+|\d+")


class _Saves:
    """The checkpoints of a directory, of S3, or of both."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.marker: str = options.marker
        self.directory: Path = options.directory
        self.store = Store(options.uri) if options.uri else None
        self.far = _far(self.store) if self.store else {}
        wanted = options.name and _step(options.name)
        every = [*self._near_ends(), *self._far_ends()]
        # When a copy was sent says nothing of when it was saved.
        ages = {each.name: each.age_seconds or 0.0 for each in reversed(every)}
        every.sort(key=lambda end: (-ages[end.name], end.step, end.where))
        self.ends = [end for end in every if wanted is None or wanted == end.step]
        if not self.ends and (options.name or not self.directory.is_dir()):
            place = options.uri or self.directory
            raise StopError(program.EXIT_NOT_FOUND, place, "no such checkpoint", "see meks ckpt ls")

    def complete(self, where: str) -> list[str]:
        """Return the names of those that are complete at one end, the one written last first."""
        found = [each for each in self.ends if (each.where, each.state) == (where, _COMPLETE)]
        return [each.name for each in reversed(found)]

    def _near_ends(self) -> Iterator[End]:
        for path in self.directory.iterdir() if self.directory.is_dir() else ():
            if _NAME.fullmatch(path.name) and path.is_dir():
                size, files, newest = measured(path)
                done = (path / self.marker).is_file()
                written = (path / self.marker).stat().st_mtime if done else newest
                age = time.time() - written if written else None
                how = self._state(done=done)
                yield End(path.name, _step(path.name), "local", size, age, *how, files)

    def _far_ends(self) -> Iterator[End]:
        for name, objects in self.far.items():
            size, age = sum(each.size for each in objects), min(x.age_seconds for x in objects)
            how = self._state(done=f"{name}/{self.marker}" in {each.key for each in objects})
            yield End(name, _step(name), "s3", size, age, *how, len(objects))

    def _state(self, *, done: bool) -> tuple[str, str | None]:
        return (_COMPLETE, None) if done else ("unfinished", f"no {self.marker} in it")


def ls(saves: _Saves, _: argparse.Namespace, report: Report) -> None:
    """List them, oldest first."""
    report.facts["ends"] = [asdict(end) for end in saves.ends]
    report.facts["pull"] = next(iter(saves.complete("s3")), None)


def verify(saves: _Saves, _: argparse.Namespace, report: Report) -> None:
    """Compare what is complete at both ends."""
    near, far = saves.complete("local"), saves.complete("s3")
    states = ("verified", "unverified", "unfinished", "damaged")
    found: dict[str, list[str]] = {state: [] for state in states}
    for name in dict.fromkeys(end.name for end in saves.ends):
        if saves.store is None or name not in near or name not in far:
            found["unverified" if name in {*near, *far} else "unfinished"].append(name)
            continue
        files = _files(saves.directory / name).items()
        differing = [key for key, path in files if not is_there(saves.store, key, path)]
        found["damaged" if differing else "verified"].append(name)
        if differing:
            why = f"damaged: {len(differing)} files differ in S3, such as {differing[0]}"
            report.error(name, why, "send it again: meks ckpt push")
    report.facts.update(found)


def push(saves: _Saves, options: argparse.Namespace, report: Report) -> None:
    """Send the newest complete one, or all of them."""
    assert saves.store is not None  # noqa: S101 -- the command line says so
    names = saves.complete("local")[: None if options.all else 1]
    for name in names:
        _send(saves.store, saves.directory / name, saves.marker)
    report.facts["pushed"] = names


def pull(saves: _Saves, _: argparse.Namespace, report: Report) -> None:
    """Fetch the newest complete one; what an interrupted pull has fetched is not fetched again."""
    name = next(iter(saves.complete("s3")), None)
    if name is None or saves.store is None:
        raise StopError(program.EXIT_NOT_FOUND, "S3", "no complete checkpoint", "see meks ckpt ls")
    arriving = saves.directory / f"{name}.arriving"
    for each in saves.far[name]:
        path = arriving / each.key.removeprefix(f"{name}/")
        if not path.is_relative_to(arriving) or ".." in path.parts:
            raise StopError(program.EXIT_CHECK_FAILED, each.key, "it leads out", "remove it there")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (path.is_file() and path.stat().st_size == each.size):
            saves.store.download(each.key, path)
    retention.replace(saves.directory / name, arriving)
    report.facts["pulled"] = name


def prune(saves: _Saves, options: argparse.Namespace, report: Report) -> None:
    """Remove complete ones that are older than the newest; a dry run says which."""
    keep_last = options.keep_last or 1
    kept = {where: saves.complete(where)[:keep_last] for where in ("local", "s3")}
    rows: dict[str, list[dict[str, object]]] = {"goes": [], "stays": []}
    removed: dict[str, list[str]] = {"local": [], "s3": []}
    for end in saves.ends:
        name, old = end.name, end.state == _COMPLETE and end.name not in kept[end.where]
        why = end.why or (f"older than the {keep_last} newest" if old else "one of the newest")
        row = {"name": name, "where": end.where, "bytes": end.bytes, "why": why}
        rows["goes" if old else "stays"].append(row)
        if not old or options.dry_run or (options.only and name not in options.only):
            continue
        if end.where == "local":
            retention.remove(saves.directory / name)
        elif saves.store is not None:
            # The marker first: what is half removed is not complete.
            keys = [stored.key for stored in saves.far[name]]
            saves.store.delete(sorted(keys, key=lambda key: key != f"{name}/{saves.marker}"))
        removed[end.where].append(name)
    report.facts.update(rows, removed_locally=removed["local"], removed=removed["s3"])


def complete(directory: Path, marker: str) -> list[Path]:
    """Return the complete checkpoints of a directory, the one written last first."""
    found = [
        each
        for each in (directory.iterdir() if directory.is_dir() else ())
        if _NAME.fullmatch(each.name) and not each.is_symlink() and (each / marker).is_file()
    ]
    return sorted(found, key=lambda each: (each / marker).stat().st_mtime_ns, reverse=True)


def _prune_far(store: Store, marker: str, newest: Collection[str], keep_last: int) -> None:
    """Remove what is complete in S3 and older than the newest copies, which have these names."""
    far = _far(store)
    ages = {
        name: each.age_seconds
        for name, objects in far.items()
        for each in objects
        if each.key == f"{name}/{marker}"
    }
    old = sorted(ages, key=lambda name: (name not in newest, ages[name]))[keep_last:]
    store.delete([each.key for name in old for each in far[name]])


def _look(options: argparse.Namespace, sent: set[str]) -> bool:
    """Copy what is new, remove what is old; tell whether the newest is where it should be."""
    try:
        copied = _copy(options, sent) if options.uri else True
        if options.keep_last:
            old = complete(options.directory, options.marker)[options.keep_last :]
            for name in retention.remove_all(options.directory, old):
                older = f"older than the {options.keep_last} newest"
                program.say(f"retention: removed {name}, {older}")
    except OSError as problem:
        program.say(f"cannot look after checkpoints: {problem} - training goes on")
        return False
    return copied


def _copy(options: argparse.Namespace, sent: set[str]) -> bool:
    newest = complete(options.directory, options.marker)[: options.keep_last or 1]
    fresh = [path for path in reversed(newest) if path.name not in sent]
    if not fresh:
        return True
    told = Copies(options.uri, "whole", f"up to {fresh[-1].name}")
    try:
        store = Store(options.uri)
        for path in fresh:
            _send(store, path, options.marker)
            sent.add(path.name)
        if options.keep_last:
            names = [each.name for each in newest]
            _prune_far(store, options.marker, names, options.keep_last)
    except StopError as problem:
        told = Copies(options.uri, "failing", str(problem))
    told.say()
    return told.state == "whole"


def _far(store: Store) -> dict[str, list[Stored]]:
    """Return the objects of each checkpoint in S3."""
    far = defaultdict(list)
    for each in store.objects(""):
        name, slash, _ = each.key.partition("/")
        if slash and _NAME.fullmatch(name):
            far[name].append(each)
    return far


def _files(checkpoint: Path) -> dict[str, Path]:
    """Return the files of a checkpoint by their keys in S3."""
    paths = [each.path for each in inside.walk(checkpoint) if each.status is not None]
    return {f"{checkpoint.name}/{each.relative_to(checkpoint).as_posix()}": each for each in paths}


def _send(store: Store, checkpoint: Path, marker: str) -> None:
    """Copy a checkpoint, its marker last; what is there with the same size is not sent again."""
    there = {each.key: each.size for each in store.objects(f"{checkpoint.name}/")}
    files = _files(checkpoint).items()
    for key, path in sorted(files, key=lambda each: each[1] == checkpoint / marker):
        size = path.stat().st_size
        if there.get(key) != size:
            store.upload(path, key, part_bytes(size))


def _step(name: str) -> int:
    return int(re.findall(r"\d+", name)[-1])


_COMMANDS = {each.__name__: each for each in (ls, verify, push, pull, prune)}


def main(argv: Sequence[str], report: Report) -> None:
    """Run one command."""
    parser = program.parser(__doc__)
    add = parser.add_argument
    add("command", choices=(*_COMMANDS, "keep"))
    add("directory", type=Path, metavar="LOCAL_DIR")
    add("uri", nargs="?", metavar="S3_URI")
    add("--marker", required=True, metavar="FILE", help="what a save writes last")
    add("--name", metavar="N", help="this one")
    add("--all", action="store_true", help="push every complete one")
    add("--local", action="store_true", help="as checkpoint_sync has it: both ends")
    add("--keep-last", type=program.at_least(1), metavar="N", help="complete ones to keep")
    add("--dry-run", action="store_true", help="only say what would go")
    add("--only", action="append", metavar="NAME", help="of what goes, this")
    program.add_lifetime(parser)
    options = parser.parse_args(argv)
    report.facts.update(command=options.command, directory=str(options.directory), uri=options.uri)
    if options.command != "keep":
        _COMMANDS[options.command](_Saves(options), options, report)
    elif program.look_again(options, partial(_look, options, set())):
        found, remedy = "not all that was saved is where it should be", "see the lines above"
        stop = StopError(program.EXIT_CHECK_FAILED, options.directory, found, remedy)
        # The first error in a container's log is taken for why its ranks ended.
        stop.findings = (replace(stop.finding, level="warning"),)
        raise stop


if __name__ == "__main__":
    sys.exit(program.run("own_saves", main, sys.argv[1:]))
