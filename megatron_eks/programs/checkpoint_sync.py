"""Copies whole checkpoints between a directory and S3, so that both ends hold whole ones only.

checkpoint_sync push   LOCAL_DIR S3_URI [--all | --name N] [--keep-last N] [--watch]
checkpoint_sync pull   LOCAL_DIR S3_URI [--name N] [--allow-none]
checkpoint_sync verify LOCAL_DIR [S3_URI] [--all | --name N] [--local]
checkpoint_sync ls     LOCAL_DIR [S3_URI]
checkpoint_sync prune  LOCAL_DIR [S3_URI] --keep-last N [--local] [--dry-run] [--only NAME]
checkpoint_sync check  LOCAL_DIR S3_URI

A checkpoint is whole if it is as its manifest says, which is written once its save is final: size
and SHA-256 of each file. One without is unverified, and never removed. push sends the newest
whole checkpoint: its files, then the manifest, then the pointer `latest`, which never moves to an
older one. With --watch it runs beside the training at low priority until SIGTERM or the end of
--parent, and says how the copies are in its log and in LOCAL_DIR/copies.json. pull fetches what
`latest` names, or the next older one that is whole, goes on where it was interrupted, checks every
byte, and then renames the directory and sets the tracker file. verify compares S3's own checksums
with the manifest, without downloading; without an S3 URI, or with --local, it reads LOCAL_DIR. ls
says which are whole, which are not and why, and what a restart takes. prune keeps the newest N
whole ones and what `latest` names; with --local it does the same in LOCAL_DIR, where it keeps what
the tracker file names. check lists, writes, reads and removes a small object, gives up within
seconds, and warns where S3 holds checkpoints and LOCAL_DIR none. Where no directory is meant,
LOCAL_DIR is `-`.

Checkpoints are directories iter_0000500 of Megatron-LM, Megatron-Bridge and train_fsdp.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 nothing there, 4 a check failed,
5 S3 cannot be reached, 130 interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import commands as sync_commands
from megatron_eks.programs.checkpoint import copies, listing, watch
from megatron_eks.programs.checkpoint import prune as sync_prune
from megatron_eks.programs.checkpoint.commands import Sync
from megatron_eks.programs.checkpoint.remote import Remote
from megatron_eks.programs.program import Report, StopError
from megatron_eks.programs.s3_store import PART_BYTES, Store

_NONE = "-"
_WITHOUT_S3 = ("ls", "prune", "verify")
_MIB = 2**20
_CHECK_SECONDS = 5.0


def main(argv: Sequence[str], report: Report) -> None:
    """Run one command."""
    options = _parser().parse_args(argv)
    report.facts.update(command=options.command, directory=str(options.directory), uri=options.uri)
    watching = options.command == "push" and options.watch
    if watching:
        os.nice(program.LOW_PRIORITY)
    directory = None if str(options.directory) == _NONE else options.directory
    if options.command == "check":
        store = Store(options.uri, attempts=1, seconds=_CHECK_SECONDS)
        report.findings += [*store.check(), *listing.only_far(directory, store)]
        return
    threads = 1 if watching else 4
    remote = _remote(options.uri, watching=watching)
    if options.command == "ls":
        report.findings += copies.findings(directory)
        listing.ls(directory, remote, report)
        return
    sync = (
        Sync(options.directory, remote, report, options.part_mib * _MIB, threads)
        if remote
        else None
    )
    if options.command == "verify":
        _verify(options, directory, sync, report)
        return
    if options.command == "prune":
        local = directory if options.local else None
        if not (local or sync):
            found, remedy = "neither --local nor an S3 URI", "say where to remove"
            raise StopError(program.EXIT_USAGE, "prune", found, remedy)
        words = options.keep_last, options.only, report
        sync_prune.run(sync, local, *words, dry_run=options.dry_run)
        return
    assert sync  # noqa: S101 -- the parser demands a URI of all others
    match options.command:
        case "push":
            _push(sync, options)
        case "pull":
            sync_commands.pull(sync, options.name, allow_none=options.allow_none)


def _verify(
    options: argparse.Namespace, directory: Path | None, sync: Sync | None, report: Report
) -> None:
    name, local = options.name, options.local or sync is None
    if sync is not None:
        sync_commands.verify(sync, name, every=options.all, local=options.local)
    compared = [report.facts.get(kind) or [] for kind in ("verified", "damaged")]
    known = frozenset(each for names in compared if isinstance(names, list) for each in names)
    if local and directory is not None:
        sync_commands.verify_local(directory, name, report, known)


def _push(sync: Sync, options: argparse.Namespace) -> None:
    if options.watch:
        watch.watch(sync, options.keep_last, options.interval, options.parent)
        return
    sync_commands.push(sync, options.name, every=options.all)
    if options.keep_last:
        sync_prune.prune(sync, options.keep_last)


def _remote(uri: str | None, *, watching: bool) -> Remote | None:
    if not uri:
        return None
    # S3 that hangs beside a training is to be told within minutes; the next look tries again.
    return Remote(Store(uri, connections=3, attempts=2, seconds=20) if watching else Store(uri))


def _parser() -> argparse.ArgumentParser:
    parser = program.parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    helps = {
        "push": "send whole checkpoints",
        "pull": "fetch one and make it the newest",
        "verify": "compare what S3 holds with the manifests",
        "ls": "list checkpoints",
        "prune": "remove old checkpoints",
        "check": "see whether checkpoints can be copied there",
    }
    each = {}
    for name, text in helps.items():
        command = each[name] = commands.add_parser(name, help=text, description=text)
        command.add_argument("directory", type=Path, metavar="LOCAL_DIR")
        optional = "?" if name in _WITHOUT_S3 else None
        command.add_argument("uri", metavar="S3_URI", nargs=optional)
        command.add_argument(
            "--part-mib",
            type=program.at_least(5, ", the least that S3 takes"),
            default=PART_BYTES // _MIB,
            help="size of the parts that files are sent in (default %(default)s)",
        )
    for name in ("push", "verify"):
        which = each[name].add_mutually_exclusive_group()
        which.add_argument("--all", action="store_true", help="every whole checkpoint")
        which.add_argument("--name", help="this checkpoint, for example iter_0000500")
    push, pull = each["push"], each["pull"]
    push.add_argument("--keep-last", type=program.at_least(1), help="prune afterwards")
    push.add_argument("--watch", action="store_true", help="go on beside a training")
    push.add_argument("--interval", type=float, default=60.0, help="seconds between two looks")
    push.add_argument("--parent", type=int, help="process to end with, after a last look")
    pull.add_argument("--name", help="this checkpoint instead of what `latest` names")
    pull.add_argument("--allow-none", action="store_true", help="an empty URI is no error")
    each["verify"].add_argument("--local", action="store_true", help="read the local copy as well")
    prune = each["prune"]
    prune.add_argument("--keep-last", type=program.at_least(1), required=True)
    prune.add_argument("--local", action="store_true", help="in LOCAL_DIR as well")
    prune.add_argument("--dry-run", action="store_true", help="say what would go, remove nothing")
    prune.add_argument("--only", action="append", metavar="NAME", help="of what goes, this; again")
    return parser


if __name__ == "__main__":
    sys.exit(program.run("checkpoint_sync", main, sys.argv[1:]))
