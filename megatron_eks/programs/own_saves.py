"""Lists, compares, copies and removes the checkpoints of a program of the user's.

own_saves ls|verify|push|pull|prune LOCAL_DIR [S3_URI] --marker FILE [--name N] [--all]
          [--keep-last N] [--dry-run] [--only NAME]...

A checkpoint is a folder whose name ends in its step, and complete when FILE is in it, which its
save writes last (see checkpoint/own_checkpoints.py). verify compares each that is complete at both
ends, file by file, by the checksums that S3 keeps. push sends the newest complete one, or all; pull
fetches it, and lets it appear once all of it is there. prune removes complete ones that are older
than the newest N. --name takes a name or a step. Where no directory is meant, LOCAL_DIR is `-`.

Exit codes: 0 done, 2 the command line is wrong, 3 nothing there, 4 a check failed, 5 S3 cannot be
reached.
"""

import argparse
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from megatron_eks.programs import inside, program
from megatron_eks.programs.checkpoint import own_checkpoints, retention
from megatron_eks.programs.checkpoint.listing import End, measured
from megatron_eks.programs.program import Report, StopError
from megatron_eks.programs.s3_store import Store, Stored
from megatron_eks.programs.upload import is_there

_COMPLETE = "complete"


class _Saves:
    """The checkpoints of a directory, of S3, or of both."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.marker: str = options.marker
        self.directory: Path = options.directory
        self.store = Store(options.uri) if options.uri else None
        self.far: dict[str, list[Stored]] = defaultdict(list)
        for each in self.store.objects("") if self.store else ():
            name, slash, _ = each.key.partition("/")
            if slash and own_checkpoints.NAME.fullmatch(name):
                self.far[name].append(each)
        wanted = options.name and int(re.findall(r"\d+", options.name)[-1])
        every = [*self._near(), *self._far()]
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

    def _near(self) -> Iterator[End]:
        for path in self.directory.iterdir() if self.directory.is_dir() else ():
            if own_checkpoints.NAME.fullmatch(path.name) and path.is_dir():
                size, files, newest = measured(path)
                done = (path / self.marker).is_file()
                written = (path / self.marker).stat().st_mtime if done else newest
                age = time.time() - written if written else None
                yield self._end(path.name, "local", (size, files), age, done=done)

    def _far(self) -> Iterator[End]:
        for name, objects in self.far.items():
            size, age = sum(each.size for each in objects), min(x.age_seconds for x in objects)
            done = f"{name}/{self.marker}" in {each.key for each in objects}
            yield self._end(name, "s3", (size, len(objects)), age, done=done)

    def _end(
        self, name: str, where: str, has: tuple[int, int], age: float | None, *, done: bool
    ) -> End:
        step, (size, files) = int(re.findall(r"\d+", name)[-1]), has
        why = None if done else f"no {self.marker} in it"
        return End(name, step, where, size, age, _COMPLETE if done else "unfinished", why, files)


def ls(saves: _Saves, _: argparse.Namespace, report: Report) -> None:
    """List them, oldest first."""
    for end in saves.ends:
        program.say(f"{end.name:<24} {end.where:<6} {end.files:>6} {end.bytes:>18,} {end.state}")
    report.facts["ends"] = [asdict(end) for end in saves.ends]
    report.facts["pull"] = next(iter(saves.complete("s3")), None)


def verify(saves: _Saves, _: argparse.Namespace, report: Report) -> None:
    """Compare what is complete at both ends."""
    near, far = saves.complete("local"), saves.complete("s3")
    found: dict[str, list[str]] = {
        name: [] for name in ("verified", "unverified", "unfinished", "damaged")
    }
    for name in dict.fromkeys(end.name for end in saves.ends):
        if name not in near or name not in far:
            found["unverified" if name in near or name in far else "unfinished"].append(name)
            continue
        assert saves.store is not None  # noqa: S101 -- it has the other end
        root = saves.directory / name
        paths = [each.path for each in inside.walk(root) if each.status is not None]
        keys = {f"{name}/{path.relative_to(root).as_posix()}": path for path in paths}
        differing = [key for key, path in keys.items() if not is_there(saves.store, key, path)]
        found["damaged" if differing else "verified"].append(name)
        if differing:
            why = f"damaged: {len(differing)} files differ in S3, such as {differing[0]}"
            report.error(name, why, "send it again: meks ckpt push")
    report.facts.update(found)


def push(saves: _Saves, options: argparse.Namespace, report: Report) -> None:
    """Send the newest complete one, or all of them, each with its marker last."""
    names = saves.complete("local")
    for name in names if options.all else names[:1]:
        assert saves.store is not None  # noqa: S101 -- the command line says so
        own_checkpoints.send(saves.store, saves.directory / name, saves.marker)
    report.facts["pushed"] = names if options.all else names[:1]


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
    kept = {where: saves.complete(where)[: options.keep_last] for where in ("local", "s3")}
    rows: dict[str, list[dict[str, object]]] = {"goes": [], "stays": []}
    for end in saves.ends:
        stays = end.state != _COMPLETE or end.name in kept[end.where]
        why = end.why or (
            "one of the newest" if stays else f"older than the {options.keep_last} newest"
        )
        fields = {"name": end.name, "where": end.where, "bytes": end.bytes, "why": why}
        rows["stays" if stays else "goes"].append(fields)
    chosen = [each for each in rows["goes"] if not options.only or each["name"] in options.only]
    removed: dict[str, list[str]] = {"local": [], "s3": []}
    for each in [] if options.dry_run else chosen:
        name, where = str(each["name"]), str(each["where"])
        if where == "local":
            retention.remove(saves.directory / name)
        elif saves.store is not None:
            # The marker first: what is half removed is not complete.
            keys = [stored.key for stored in saves.far[name]]
            saves.store.delete(sorted(keys, key=lambda key: key != f"{name}/{saves.marker}"))
        removed[where].append(name)
    report.facts.update(rows, removed_locally=removed["local"], removed=removed["s3"])


_COMMANDS = {each.__name__: each for each in (ls, verify, push, pull, prune)}


def main(argv: Sequence[str], report: Report) -> None:
    """Run one command."""
    parser = program.parser(__doc__)
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("directory", type=Path, metavar="LOCAL_DIR")
    parser.add_argument("uri", nargs="?", metavar="S3_URI")
    parser.add_argument("--marker", required=True, metavar="FILE", help="what a save writes last")
    parser.add_argument("--name", metavar="N", help="this one")
    parser.add_argument("--all", action="store_true", help="push every complete one")
    parser.add_argument("--local", action="store_true", help="as checkpoint_sync has it: both ends")
    parser.add_argument("--keep-last", type=program.count, default=1, metavar="N")
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")
    parser.add_argument("--only", action="append", metavar="NAME", help="of what goes, this")
    options = parser.parse_args(argv)
    report.facts.update(command=options.command, directory=str(options.directory), uri=options.uri)
    _COMMANDS[options.command](_Saves(options), options, report)


if __name__ == "__main__":
    sys.exit(program.run("own_saves", main, sys.argv[1:]))
