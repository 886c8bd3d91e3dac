"""Sends files of the shared file system to `meks data pull`, which starts it in a pod.

send --hold     keeps the pod; ends when nobody has fetched anything for ten minutes
send PATH       a file, or all files below a folder

On stdout first one JSON line: `files`, a list of [path, size], and `left_out`. From stdin then one
JSON line: for each path that is wanted the number of bytes that are there already. Each comes as a
JSON line (`path`, `bytes`), the bytes that are missing, and the SHA-256 of the whole file. A link
is followed to a file of the folder; what leads out of it is left out.

Exit codes: 0 done, 1 failed, 3 no such file, 4 a file changed, 130 interrupted.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from megatron_eks.programs import inside, program
from megatron_eks.programs.inside import Entry
from megatron_eks.programs.program import Report, StopError

_ALIVE = Path("/tmp/.meks-send")  # noqa: S108 -- the pod's own
_HOLD_SECONDS = 600
_LOOK_SECONDS = 5
# Whoever fetches takes a silence of a minute for a lost connection.
_SIGN_SECONDS = 10
_READ_BYTES = 2**20


class _Sign:
    """Shows those who fetch, and the one that holds the pod, that something goes on."""

    def __init__(self) -> None:
        self._next = 0.0

    def give(self) -> None:
        """Write an empty line to stderr once in a while."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SIGN_SECONDS
            _ALIVE.touch()
            program.say("")


def main(argv: Sequence[str], report: Report) -> None:
    """Send what is asked for."""
    parser = program.parser(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--hold", action="store_true", help="keep the pod")
    what.add_argument("path", nargs="?", metavar="PATH", help="a file or a folder")
    options = parser.parse_args(argv)
    if options.hold:
        _hold()
        return
    out, top = sys.stdout.buffer, Path(options.path)
    # A slash at its end stands for its content.
    base = top if options.path.endswith("/") else top.parent
    found = _files(top)
    files = {each.path.relative_to(base).as_posix(): each for each in found if each.status}
    left_out = [{"path": str(each.path), "why": each.refused} for each in found if each.refused]
    sizes = [(name, each.status.st_size) for name, each in files.items() if each.status]
    out.write(json.dumps({"files": sizes, "left_out": left_out}).encode() + b"\n")
    out.flush()
    sign = _Sign()
    for name, have in json.loads(sys.stdin.readline() or "{}").items():
        _send(name, files[name], have, out, sign)
    report.facts.update(path=options.path)


def _hold() -> None:
    _ALIVE.touch()
    while time.time() - _ALIVE.stat().st_mtime < _HOLD_SECONDS:
        time.sleep(_LOOK_SECONDS)


def _files(top: Path) -> list[Entry]:
    if top.is_dir():
        return [*inside.walk(top)]
    if top.is_file():
        return [Entry(top, status=top.stat())]
    text, remedy = "no such file or folder", "list what is there: meks shell JOB -- ls DIR"
    raise StopError(program.EXIT_NOT_FOUND, top, text, remedy)


def _send(name: str, entry: Entry, have: int, out: BinaryIO, sign: _Sign) -> None:
    """Send the rest of a file, as long as it was when it was listed."""
    digest, listed = hashlib.sha256(), entry.status
    assert listed is not None  # noqa: S101 -- only those are offered

    def read(count: int, to: BinaryIO | None) -> None:
        while count:
            if not (chunk := file.read(min(_READ_BYTES, count))):
                raise _changed(entry)
            digest.update(chunk)
            if to is not None:
                to.write(chunk)
            count -= len(chunk)
            sign.give()

    with entry.path.open("rb", buffering=0) as file:
        if not os.path.samestat(os.fstat(file.fileno()), listed):
            raise _changed(entry)
        read(have, None)
        out.write(json.dumps({"path": name, "bytes": listed.st_size - have}).encode() + b"\n")
        read(listed.st_size - have, out)
        now = os.fstat(file.fileno())
    # A log that has grown is what it was, and more.
    if now.st_mtime_ns != listed.st_mtime_ns and now.st_size == listed.st_size:
        raise _changed(entry)
    out.write(digest.hexdigest().encode() + b"\n")
    out.flush()


def _changed(entry: Entry) -> StopError:
    text, remedy = "it changed while it was sent", "fetch it again when nobody writes to it"
    return StopError(program.EXIT_CHECK_FAILED, entry.path, text, remedy)


if __name__ == "__main__":
    sys.exit(program.run("send", main, sys.argv[1:]))
