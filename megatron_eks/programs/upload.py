"""Sends files and folders to S3; what is there with the same bytes is not sent again.

upload PATH... S3_URI

A file becomes S3_URI/NAME, and the files of a folder S3_URI/FOLDER/...; a folder written with a
slash at its end stands for its content. S3 checks every part on its arrival (SHA-256). Interrupted,
the same command goes on with the first file that is not whole there.

A link in a folder is followed to a file of this folder. What leads out of it, what is no file, and
what cannot be read is left out and named (`left_out` in the JSON line); the program ends with 4
when all else is sent.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 nothing to send, 4 a check failed,
5 S3 cannot be reached, 130 interrupted.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from megatron_eks.programs import inside, program, s3_store
from megatron_eks.programs.inside import Entry
from megatron_eks.programs.printable import plain
from megatron_eks.programs.program import Report, StopError
from megatron_eks.programs.progress import Progress
from megatron_eks.programs.s3_store import Store

_INSTEAD = "put the file itself there, or name it on the command line"


def main(argv: Sequence[str], report: Report) -> None:
    """Send everything that is named."""
    parser = program.parser(__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files and folders")
    parser.add_argument("uri", metavar="S3_URI", help="s3://BUCKET/PREFIX")
    options = parser.parse_args(argv)
    store = Store(options.uri)
    files = _named(options.paths, report)
    sizes = {key: status.st_size for key, (_, status) in files.items()}
    there = {each.key: each.size for each in store.objects("")}
    report.facts.update(uri=store.uri, files=len(files), bytes=sum(sizes.values()))
    sent, present = [], 0
    progress = Progress(sum(sizes.values()), 0)
    try:
        for key, (path, status) in files.items():
            # The checksum of what is there already is asked for only where its size is right.
            if there.get(key) == sizes[key] and is_there(store, key, path):
                present += 1
            else:
                _send(store, key, path, status, progress)
                sent.append(sizes[key])
    finally:
        report.facts.update(sent=len(sent), present=present, bytes_sent=sum(sent))
    progress.close()


def _named(words: Sequence[str], report: Report) -> dict[str, tuple[Path, os.stat_result]]:
    """Return the files by their keys below the URI; what is left out goes into the report."""
    found: dict[str, tuple[Path, os.stat_result]] = {}
    left_out: list[dict[str, str]] = []
    report.facts.update(left_out=left_out)
    for word in words:
        for base, each in _files(word):
            if each.status is None:
                left_out.append({"path": str(each.path), "why": each.refused})
                report.error(each.path, f"left out: {each.refused}", _INSTEAD)
                continue
            key = _key(each.path.relative_to(base))
            if key in found and found[key][0] != each.path:
                text = f"{each.path} and {found[key][0]} would both be {key}"
                raise StopError(program.EXIT_USAGE, word, text, "send them apart")
            found[key] = each.path, each.status
    if not found and not left_out:
        text, remedy = "no file in it", "name files, or folders with files"
        raise StopError(program.EXIT_NOT_FOUND, ", ".join(words), text, remedy)
    return found


def _files(word: str) -> Iterator[tuple[Path, Entry]]:
    """Yield what a word of the command line names, which may be a link, and what keys leave out."""
    top = Path(word)
    if not (top.is_file() or top.is_dir()):
        text, remedy = "no such file or folder", "correct the name"
        raise StopError(program.EXIT_NOT_FOUND, word, text, remedy)
    inner = top.is_dir() and (word.endswith("/") or not top.name)
    yield from ((top if inner else top.parent, each) for each in inside.walk(top))


def _key(path: Path) -> str:
    try:
        path.as_posix().encode()
    except UnicodeEncodeError as problem:
        shown = path.as_posix().encode(errors="backslashreplace").decode()
        text, remedy = "its name is not UTF-8, and S3 has no other", "rename it"
        raise StopError(program.EXIT_USAGE, shown, text, remedy) from problem
    return path.as_posix()


def is_there(store: Store, key: str, path: Path) -> bool:
    """Tell whether S3 has a file with the same bytes, by the checksum that it keeps."""
    try:
        _, checksum = store.describe(key)
    except s3_store.GoneError:
        return False
    part = s3_store.part_bytes(path.stat().st_size)
    return checksum == s3_store.checksum(path, part)


def _send(store: Store, key: str, path: Path, found: os.stat_result, progress: Progress) -> None:
    before, begin = path.stat(), progress.done
    if not os.path.samestat(found, before):
        text, remedy = "another file has taken its place", "send it again when nobody writes there"
        raise StopError(program.EXIT_CHECK_FAILED, path, text, remedy)
    part = s3_store.part_bytes(before.st_size)
    store.upload(path, key, part, lambda count: progress.add(progress.done + count))
    # Parts that were sent again were counted as well.
    progress.add(begin + before.st_size)
    after = path.stat()
    same = os.path.samestat(after, before) and after.st_size == before.st_size
    if not same or after.st_mtime_ns != before.st_mtime_ns:
        text, remedy = "it changed while it was sent", "send it again when nobody writes to it"
        raise StopError(program.EXIT_CHECK_FAILED, path, text, remedy)
    program.say(plain(f"{key}: {before.st_size:,} bytes"))


if __name__ == "__main__":
    sys.exit(program.run("upload", main, sys.argv[1:]))
