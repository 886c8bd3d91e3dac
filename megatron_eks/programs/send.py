"""Sends files of the shared file system to `meks data pull`, which starts it in a pod.

send --hold     keeps the pod
send PATH       a file, a folder, or with a slash at its end what is in it

On stdout first one JSON line: `files`, a list of [path, size], and `left_out`. From stdin then one
JSON line: for each path that is wanted the number of bytes that are there already. Each comes as
the bytes that are missing and the SHA-256 of the whole file, in their order. A link is followed to
a file of the folder; what leads out of it is left out.

Exit codes: 0 done, 1 failed, 3 no such file, 4 a file changed, 130 interrupted.
"""

import hashlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from megatron_eks.programs import inside, program
from megatron_eks.programs.inside import Entry
from megatron_eks.programs.program import Report, StopError

_READ_BYTES = 2**20


def main(argv: Sequence[str], report: Report) -> None:
    """Send what is asked for."""
    parser = program.parser(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--hold", action="store_true", help="keep the pod")
    what.add_argument("path", nargs="?", metavar="PATH", help="a file or a folder")
    options = parser.parse_args(argv)
    if options.hold:
        signal.pause()
        return
    out, top = sys.stdout.buffer, Path(options.path)
    base = top if options.path.endswith("/") else top.parent
    if not (top.is_file() or top.is_dir()):
        text, remedy = "no such file or folder", "look what there is: meks dev JOB --gpus 0"
        raise StopError(program.EXIT_NOT_FOUND, top, text, remedy)
    found = [*inside.walk(top)]
    files = {each.path.relative_to(base).as_posix(): each for each in found if each.status}
    left_out = [{"path": str(each.path), "why": each.refused} for each in found if each.refused]
    sizes = [(name, each.status.st_size) for name, each in files.items() if each.status]
    out.write(json.dumps({"files": sizes, "left_out": left_out}).encode() + b"\n")
    out.flush()
    for name, have in json.loads(sys.stdin.readline() or "{}").items():
        _send(files[name], have, out)
    report.facts.update(path=options.path)


def _send(entry: Entry, have: int, out: BinaryIO) -> None:
    """Send the rest of a file, as long as it was when it was listed."""
    digest, listed, done = hashlib.sha256(), entry.status, 0
    assert listed is not None  # noqa: S101 -- only those are offered
    with entry.path.open("rb", buffering=0) as file:
        same = os.path.samestat(os.fstat(file.fileno()), listed)
        while same and done < listed.st_size:
            chunk = file.read(min(_READ_BYTES, (have if done < have else listed.st_size) - done))
            digest.update(chunk)
            if done >= have:
                out.write(chunk)
            done += len(chunk)
            same = bool(chunk)
        now = os.fstat(file.fileno())
    # A log that has grown is what it was, and more.
    if not same or (now.st_mtime_ns != listed.st_mtime_ns and now.st_size == listed.st_size):
        text, remedy = "it changed while it was sent", "fetch it again when nobody writes to it"
        raise StopError(program.EXIT_CHECK_FAILED, entry.path, text, remedy)
    out.write(digest.hexdigest().encode() + b"\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(program.run("send", main, sys.argv[1:]))
