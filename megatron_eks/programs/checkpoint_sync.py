"""Copies whole checkpoints between a directory and S3, so that both ends hold whole ones only.

checkpoint_sync push   LOCAL_DIR S3_URI [--all | --name N] [--keep-last N] [--watch]
checkpoint_sync pull   LOCAL_DIR S3_URI [--name N]
checkpoint_sync verify LOCAL_DIR [S3_URI] [--name N] [--local]
checkpoint_sync ls     LOCAL_DIR [S3_URI]
checkpoint_sync prune  LOCAL_DIR [S3_URI] --keep-last N [--local] [--dry-run] [--only NAME]
checkpoint_sync check  LOCAL_DIR S3_URI

A checkpoint is whole if it is as its manifest says, which is written once its save is final: size
and SHA-256 of each file. One without is unverified, and never removed. push sends the newest
whole checkpoint: its files, then the manifest, then the pointer `latest`, which never moves to an
older one. With --watch it runs beside the training at low priority until SIGTERM or the end of
--parent, and says how the copies are in its log. pull fetches what `latest` names, or the next
older one that is whole, goes on where it was interrupted, checks every byte, and then renames the
directory and sets the tracker file. verify compares S3's own checksums with the manifest, without
downloading; without an S3 URI, or with --local, it reads LOCAL_DIR. ls says which are whole, which
are not and why, and what a restart takes. prune keeps the newest N whole ones and what `latest`
names; with --local it does the same in LOCAL_DIR, where it keeps what the tracker file names. check
lists, writes, reads and removes a small object, gives up within seconds, and warns where S3 holds
checkpoints and LOCAL_DIR none. Where no directory is meant, LOCAL_DIR is `-`.

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
from megatron_eks.programs.checkpoint import listing, watch
from megatron_eks.programs.checkpoint import prune as sync_prune
from megatron_eks.programs.checkpoint.commands import Sync
from megatron_eks.programs.checkpoint.remote import Remote
from megatron_eks.programs.program import Report, StopError
from megatron_eks.programs.s3_store import Store

_NONE = "-"
_CHECK_SECONDS = 5.0


def main(argv: Sequence[str], report: Report) -> None:
    """Run one command."""
    options = _parser().parse_args(argv)
    uri: str = options.uri
    report.facts.update(command=options.command, directory=str(options.directory), uri=uri)
    directory = None if str(options.directory) == _NONE else options.directory
    if options.command == "check":
        store = Store(uri, attempts=1, seconds=_CHECK_SECONDS)
        report.findings += [*store.check(), *listing.only_far(directory, store)]
        return
    if options.command == "push" and options.watch:
        os.nice(program.LOW_PRIORITY)
        # S3 that hangs beside a training is to be told within minutes; the next look tries again.
        beside = Remote(Store(uri, connections=3, attempts=2, seconds=20))
        sync = Sync(options.directory, beside, report, threads=1)
        watch.watch(sync, options.keep_last, options.interval, options.parent)
        return
    remote = Remote(Store(uri)) if uri else None
    both = Sync(options.directory, remote, report) if remote else None
    match options.command, both:
        case "ls", _:
            listing.ls(directory, remote, report)
        case "verify", _:
            _verify(options, directory, both, report)
        case "prune", _:
            local = directory if options.local else None
            if not (local or both):
                found, remedy = "neither --local nor an S3 URI", "say where to remove"
                raise StopError(program.EXIT_USAGE, "prune", found, remedy)
            words = options.keep_last, options.only, report
            sync_prune.run(both, local, *words, dry_run=options.dry_run)
        case "push", Sync() as sync:
            sync_commands.push(sync, options.name, every=options.all)
            if options.keep_last:
                sync_prune.prune(sync, options.keep_last)
        case "pull", Sync() as sync:
            sync_commands.pull(sync, options.name)


def _verify(
    options: argparse.Namespace, directory: Path | None, sync: Sync | None, report: Report
) -> None:
    name, local = options.name, options.local
    known = sync_commands.verify(sync, name, local=local) if sync else set[str]()
    if directory is not None and (local or sync is None):
        sync_commands.verify_local(directory, name, report, known)


def _parser() -> argparse.ArgumentParser:
    parser = program.parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, nargs: str | None = None) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=text, description=text)
        found.add_argument("directory", type=Path, metavar="LOCAL_DIR")
        found.add_argument("uri", metavar="S3_URI", nargs=nargs)
        return found

    push = command("push", "send whole checkpoints")
    which = push.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="every whole checkpoint")
    which.add_argument("--name", help="this checkpoint, for example iter_0000500")
    push.add_argument("--keep-last", type=program.at_least(1), help="prune afterwards")
    push.add_argument("--watch", action="store_true", help="go on beside a training")
    push.add_argument("--interval", type=float, default=60.0, help="seconds between two looks")
    push.add_argument("--parent", type=int, help="process to end with, after a last look")
    pull = command("pull", "fetch one and make it the newest")
    pull.add_argument("--name", help="this checkpoint instead of what `latest` names")
    verify = command("verify", "compare what S3 holds with the manifests", "?")
    verify.add_argument("--name", help="this checkpoint instead of every one")
    verify.add_argument("--local", action="store_true", help="read the local copy as well")
    command("ls", "list checkpoints", "?")
    command("check", "see whether checkpoints can be copied there")
    prune = command("prune", "remove old checkpoints", "?")
    prune.add_argument("--keep-last", type=program.at_least(1), required=True)
    prune.add_argument("--local", action="store_true", help="in LOCAL_DIR as well")
    prune.add_argument("--dry-run", action="store_true", help="say what would go, remove nothing")
    prune.add_argument("--only", action="append", metavar="NAME", help="of what goes, this; again")
    return parser


if __name__ == "__main__":
    sys.exit(program.run("checkpoint_sync", main, sys.argv[1:]))
