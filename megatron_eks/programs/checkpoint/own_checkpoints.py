"""Looks after the checkpoints of a program of the user's, beside its ranks.

A checkpoint is a folder in --directory whose name ends in its step, such as checkpoint-500. It is
complete when the file --complete-marker is in it, which its save writes last. The newest complete
ones are copied to --s3-uri, that file last, so that what has it there is complete as well. Complete
ones that are older than the newest --keep-last are removed, here and there; what is not complete is
left alone. Newer means written later: a run that begins anew counts from 0 again.

Exit codes: 0 done, 4 a checkpoint is not in S3.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from megatron_eks.programs import inside, program
from megatron_eks.programs.checkpoint import retention
from megatron_eks.programs.checkpoint.copies import Copies
from megatron_eks.programs.printable import guarded
from megatron_eks.programs.program import StopError
from megatron_eks.programs.s3_store import Store, part_bytes

NAME = re.compile(r"[^.].*?\d+|\d+")
"""Of a folder that a save makes."""


def complete(directory: Path, marker: str) -> list[Path]:
    """Return the complete checkpoints of a directory, the one written last first."""
    if not directory.is_dir():
        return []
    found = [
        each
        for each in directory.iterdir()
        if NAME.fullmatch(each.name) and not each.is_symlink() and (each / marker).is_file()
    ]
    return sorted(found, key=lambda each: (each / marker).stat().st_mtime_ns, reverse=True)


def prune(directory: Path, marker: str, keep_last: int) -> list[str]:
    """Remove old complete checkpoints, and what an interrupted removal left; return names."""
    for leftover in directory.glob(f"{retention.DELETING}*"):
        shutil.rmtree(leftover)
    old = complete(directory, marker)[keep_last:]
    for path in old:
        retention.remove(path)
    return [path.name for path in old]


def send(store: Store, path: Path, marker: str) -> None:
    """Copy a checkpoint, its marker last; what is there with the same size is not sent again."""
    there = {each.key: each.size for each in store.objects(f"{path.name}/")}
    files = [each.path for each in inside.walk(path) if each.status is not None]
    for file in sorted(files, key=lambda each: each == path / marker):
        key, size = f"{path.name}/{file.relative_to(path).as_posix()}", file.stat().st_size
        if there.get(key) != size:
            store.upload(file, key, part_bytes(size))


def prune_far(store: Store, marker: str, newest: Collection[str], keep_last: int) -> None:
    """Remove what is complete in S3 and older than the newest copies, which have these names."""
    every = store.objects("")
    ages = {
        name: each.age_seconds
        for each in every
        for name, slash, rest in [each.key.partition("/")]
        if slash and rest == marker and NAME.fullmatch(name)
    }
    old = sorted(ages, key=lambda name: (name not in newest, ages[name]))[keep_last:]
    store.delete([each.key for each in every if each.key.partition("/")[0] in old])


def look(options: argparse.Namespace, sent: set[str]) -> bool:
    """Copy what is new, remove what is old; tell whether the newest is where it should be."""
    try:
        copied = _copy(options, sent) if options.s3_uri else True
        if options.keep_last:
            for name in prune(options.directory, options.complete_marker, options.keep_last):
                older = f"older than the {options.keep_last} newest"
                program.say(f"retention: removed {name}, {older}")
    except OSError as problem:
        program.say(f"cannot look after checkpoints: {problem} - training goes on")
        return False
    return copied


def _copy(options: argparse.Namespace, sent: set[str]) -> bool:
    marker, keep_last, uri = options.complete_marker, options.keep_last, options.s3_uri
    newest = complete(options.directory, marker)[: keep_last or 1]
    fresh = [path for path in reversed(newest) if path.name not in sent]
    if not fresh:
        return True
    told = Copies(uri, "whole", f"up to {fresh[-1].name}")
    try:
        store = Store(uri)
        for path in fresh:
            send(store, path, marker)
            sent.add(path.name)
        if keep_last:
            prune_far(store, marker, [each.name for each in newest], keep_last)
    except StopError as problem:
        told = Copies(uri, "failing", str(problem))
    told.say()
    return told.state == "whole"


@guarded()
def main(argv: Sequence[str]) -> int:
    """Look once an interval for as long as the ranks' starter lives, or once."""
    parser = program.parser(__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where checkpoints are saved")
    parser.add_argument("--complete-marker", required=True, help="the file that a save writes last")
    parser.add_argument("--keep-last", type=program.count, help="complete checkpoints to keep")
    parser.add_argument("--s3-uri", help="where they are copied to")
    program.add_lifetime(parser)
    options = parser.parse_args(argv)
    return program.look_again(options, partial(look, options, set()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
