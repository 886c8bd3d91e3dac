"""Prepares a node for a program of the user's, and starts its ranks.

torchrun_node [OPTIONS] -- COMMAND [ARGUMENT...]

Once in a pod, before its ranks: the image is looked at, the program's folder is unpacked, and the
directories that environment variables name are made. COMMAND is torchrun's; signals go on to it,
and its exit code is this one's. Beside it the first node looks after the program's checkpoints, and
once more when it has ended (see own_saves.py).

Exit codes of the checks: 2 the image lacks something, 4 a check failed.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from megatron_eks.programs import image_check, own_saves, program, s3_store
from megatron_eks.programs.printable import guarded
from megatron_eks.programs.program import Finding, Report, error, usage_error
from megatron_eks.programs.record import exit_code, forward_signals, rank_of
from megatron_eks.programs.start import companions, preconditions
from megatron_eks.programs.start.companion import Companion

_ELSEWHERE = ".s3"
"""At the end of a file's name: it says where in S3 the archive is, whose name is its SHA-256."""


@guarded()
def main(argv: Sequence[str], environment: "os._Environ[str]") -> int:
    """Prepare, run the ranks and return their exit code."""
    parser = program.parser(__doc__)
    parser.add_argument("--code", type=Path, metavar="ARCHIVE", help="the folder, as .tar.gz")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where it is unpacked")
    parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="where ranks save")
    parser.add_argument("--complete-marker", metavar="NAME", help="what a save writes last")
    parser.add_argument("--keep-last", type=program.count, metavar="N", help="checkpoints to keep")
    parser.add_argument("--s3-uri", metavar="URI", help="where they are copied to")
    parser.add_argument("words", nargs="+", metavar="COMMAND", help="what starts the ranks")
    options = parser.parse_args(argv)
    report, saved = Report(), (options.checkpoints, options.complete_marker)
    report.collect(_check_image(options))
    if not report.exit_code and options.code is not None:
        report.collect(unpack(options.code, options.directory))
    if not report.exit_code:
        report.collect(preconditions.check_environment(environment))
        if options.s3_uri and rank_of(environment) == 0 and not own_saves.complete(*saved):
            report.collect(companions.check_copies(options.checkpoints, options.s3_uri))
    report.write_findings()
    if report.exit_code:
        report.write_summary({"program": "torchrun_node", "status": "refused"})
        return report.exit_code
    if options.checkpoints is None or rank_of(environment):
        return _run(options.words)
    keeping, beside = _keeping(options), None
    try:
        words, stdout = [*keeping, f"--parent={os.getpid()}"], sys.stderr.fileno()
        beside = Companion("checkpoints", words, stdout=stdout)
    except OSError as problem:
        program.say(f"nobody looks after checkpoints meanwhile: {problem}")
    code = _run(options.words)
    if beside is not None:
        beside.end().wait()
    subprocess.run(keeping, stdout=sys.stderr.fileno(), check=False)  # noqa: S603 -- ours
    return code


def _keeping(options: argparse.Namespace) -> list[str]:
    words = [sys.executable, "-m", "megatron_eks.programs.own_saves", "keep"]
    words += [str(options.checkpoints), *([options.s3_uri] if options.s3_uri else [])]
    words += [f"--keep-last={options.keep_last}"] if options.keep_last else []
    return [*words, f"--marker={options.complete_marker}"]


def _check_image(options: argparse.Namespace) -> Iterator[Finding]:
    """Look for what these programs need of an image, which may be the user's."""
    yield from image_check.missing(options.words[0])
    sent = options.code is not None and not options.code.exists()
    if (sent or options.s3_uri is not None) and find_spec("boto3") is None:
        found = f"the image has no boto3, which {'code from' if sent else 'copies to'} S3 needs"
        remedy = "leave files out by code.exclude" if sent else "remove checkpoint.s3_uri"
        yield usage_error("boto3", found, f"install it, or {remedy}")


def unpack(archive: Path, directory: Path) -> Iterator[Finding]:
    """Unpack the program's folder, from S3 where a file beside says so."""
    if archive.exists():
        yield from _unpack(archive, directory)
        return
    uri = archive.with_name(f"{archive.name}{_ELSEWHERE}").read_text().strip()
    there, _, name = uri.rpartition("/")
    with tempfile.TemporaryDirectory(dir=directory.parent) as folder:
        fetched = Path(folder) / name
        try:
            s3_store.Store(there).download(name, fetched)
        except s3_store.GoneError:
            yield usage_error(uri, "the program is not there", "meks submit puts it there")
            return
        with fetched.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != name.partition(".")[0]:
            changed = f"it is not what was submitted: its SHA-256 is {found}"
            yield usage_error(uri, changed, "remove it there; meks submit puts the right one there")
            return
        yield from _unpack(fetched, directory)


def _unpack(archive: Path, directory: Path) -> Iterator[Finding]:
    """Put the program's folder where its ranks start, whatever a start before left there."""
    shutil.rmtree(directory, ignore_errors=True)
    try:
        with tarfile.open(archive) as tar:
            # Python before 3.11.4 knows no filter; the archive is the one that was submitted.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(directory)  # noqa: S202 -- as above
    except tarfile.TarError as problem:
        yield error(archive, str(problem), "submit the job again")


def _run(command: Sequence[str]) -> int:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 -- what the job file says
    forward_signals(process)
    return exit_code(process.wait())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
