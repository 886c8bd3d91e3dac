"""Fetches a model, a tokenizer or data once, so that a job reads it from the shared file system.

fetch (--model NAME | --tokenizer NAME | --s3-uri URI) --directory D [--token-file F]

From Hugging Face (NAME is ORGANISATION/MODEL; of a tokenizer only the tokenizer's files) or from
S3 (an object, or all below a prefix). Files arrive beside D, are compared with the sizes and
checksums that the source states, and D appears at once when all are there: half a download is
never taken for a model. Started again it goes on, and does nothing where D is there.

A gated model needs a token: put it into a file that only the pod reads, and name it with
--token-file. It is never an argument or an environment variable, and never printed.

Exit codes: 0 done, 1 failed or refused, 2 the command line is wrong, 3 no such model, object or
package, 4 too little space, or content that is not what the source states, 5 the source cannot be
reached, 130 interrupted.

Environment: HF_ENDPOINT names another Hugging Face hub.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from megatron_eks.programs import inside, program
from megatron_eks.programs.checkpoint import manifests
from megatron_eks.programs.fetch import files as fetch_files
from megatron_eks.programs.fetch.files import MARKER, Fetched, RemoteFile
from megatron_eks.programs.fetch.hub import HubSource, read_token
from megatron_eks.programs.fetch.s3 import S3Source
from megatron_eks.programs.program import Report, StopError

_SPARE_BYTES = 2**30

Source = HubSource | S3Source


def present(directory: Path, kind: str, name: str) -> Fetched | None:
    """Return what a directory holds if it is what is wanted; None if it is not there yet.

    Raises StopError if it holds something else, or less than it did.
    """
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return None
    held, remedy = fetch_files.read_marker(directory), "name another directory, or move it away"
    if held is None:
        found = f"it is there and has no {MARKER}, so nothing says that it is whole"
        raise _stop(directory, found, remedy)
    if (held.kind, held.name) != (kind, name):
        raise _stop(directory, f"it holds {held.kind} {held.name} at {held.revision}", remedy)
    for file in held.files:
        path = directory / file.path
        if not path.is_file() or path.stat().st_size != file.size:
            found = "missing, or another size than when it was fetched"
            raise _stop(path, found, f"move {directory} away, and fetch again")
    return held


def _stop(subject: object, found: str, remedy: str) -> StopError:
    return StopError(program.EXIT_CHECK_FAILED, subject, found, remedy)


def fetch(source: Source, directory: Path) -> Fetched:
    """Fetch all files beside the directory, compare them, and make it appear."""
    fetch_files.check_names(source.files)
    start = f".fetch-{directory.name}-"
    staging = directory.with_name(f"{start}{source.revision[:12]}")
    for link in inside.links(staging):
        found = "a link, and what is written there would go elsewhere"
        raise _stop(link, found, "see who made it, remove it, and start again")
    staging.mkdir(parents=True, exist_ok=True)
    for other in directory.parent.iterdir():
        # A revision has no hyphen: what has one belongs to a directory with a longer name.
        own = other.name.startswith(start) and "-" not in other.name.removeprefix(start)
        if own and other != staging:
            shutil.rmtree(other)
    missing = [file for file in source.files if not file.is_in(staging)]
    _check_space(missing, staging)
    for number, file in enumerate(missing, 1):
        path = staging / file.path
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        source.download(file, staging)
        if not file.is_in(staging):
            found = "its content is not what the source states"
            remedy = "start again, on another node; if it stays, the source is damaged"
            raise _stop(f"{source.name}/{file.path}", found, remedy)
        program.say(f"{number}/{len(missing)} {file.path} {file.size:,} bytes")
    fetched = Fetched(source.kind, source.name, source.revision, tuple(source.files))
    _publish(fetched, staging, directory)
    return fetched


def main(argv: Sequence[str], report: Report) -> None:
    """Fetch what is not there."""
    parser = program.parser(__doc__)
    parser.prog = "fetch"  # not __main__.py
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="NAME", help="weights, configuration and tokenizer")
    what.add_argument("--tokenizer", metavar="NAME", help="the tokenizer's files alone")
    what.add_argument("--s3-uri", metavar="URI", help="s3://BUCKET/KEY or s3://BUCKET/PREFIX/")
    parser.add_argument("--directory", type=Path, required=True, help="where it goes")
    parser.add_argument("--token-file", type=Path, help="holds a Hugging Face token")
    options = parser.parse_args(argv)
    directory: Path = options.directory.absolute()
    if directory.is_mount():
        raise StopError(
            program.EXIT_USAGE, directory, "a file system is mounted there", "name a folder in it"
        )
    name = options.model or options.tokenizer or options.s3_uri
    kind = "model" if options.model else "tokenizer" if options.tokenizer else "s3"
    report.facts.update(source=name, kind=kind, directory=str(directory))
    held = present(directory, kind, name)
    report.facts.update(fetched=held is None)
    if held is None:
        if kind == "s3":
            source: Source = S3Source(name)
        else:
            token = read_token(options.token_file) if options.token_file else None
            source = HubSource(name, token, tokenizer_only=kind == "tokenizer")
        held = fetch(source, directory)
    else:
        program.say(f"{directory}: there already, at {held.revision}")
    size = sum(file.size for file in held.files)
    report.facts.update(revision=held.revision, files=len(held.files), bytes=size)


def _check_space(missing: Sequence[RemoteFile], staging: Path) -> None:
    # A file that was cut is counted whole: its rest is smaller, never larger.
    needed = sum(file.size for file in missing) + _SPARE_BYTES
    free = shutil.disk_usage(staging).free
    if free < needed:
        found = f"{free / 1e9:,.1f} GB free, {needed / 1e9:,.1f} GB needed"
        remedy = "remove what is not needed, or enlarge the file system"
        raise _stop(staging.parent, found, remedy)


def _publish(fetched: Fetched, staging: Path, directory: Path) -> None:
    """Leave what was asked for and nothing else, then make it appear under its name."""
    wanted = {staging / file.path for file in fetched.files}
    for path in sorted(staging.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in wanted:
            path.unlink()
    (staging / MARKER).write_text(json.dumps(asdict(fetched), indent=1))
    manifests.sync_to_disk(staging)
    if directory.exists():
        directory.rmdir()
    staging.rename(directory)
    manifests.sync_one(directory.parent)


if __name__ == "__main__":
    # Bars are for terminals; every file gets a line. The hub reads this when it is imported.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    sys.exit(program.run("fetch", main, sys.argv[1:]))
