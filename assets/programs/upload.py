"""Sends files and folders to S3; what is there with the same bytes is not sent again.

upload.py PATH... S3_URI

A file becomes S3_URI/NAME, and the files of a folder S3_URI/FOLDER/...; a folder written with a
slash at its end stands for its content. S3 checks every part on its arrival (SHA-256). Interrupted,
the same command goes on with the first file that is not whole there.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 nothing to send, 4 a check failed,
5 S3 cannot be reached, 130 interrupted.
"""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import program
import s3_store
from findings import Report
from program import StopError
from progress import TransferProgress
from s3_store import Store


def main(argv: Sequence[str], report: Report) -> None:
    """Send everything that is named."""
    parser = program.parser(__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files and folders")
    parser.add_argument("uri", metavar="S3_URI", help="s3://BUCKET/PREFIX")
    options = parser.parse_args(argv)
    store = Store(options.uri)
    files = _named(options.paths)
    sizes = {key: path.stat().st_size for key, path in files.items()}
    there = {each.key: each.size for each in store.objects("")}
    report.facts.update(uri=store.uri, files=len(files), bytes=sum(sizes.values()))
    report.facts.update(sent=0, present=0, bytes_sent=0)
    progress = TransferProgress(sum(sizes.values()), 0)
    for key, path in files.items():
        # The checksum of what is there already is asked for only where its size is right.
        present = there.get(key) == sizes[key] and _is_there(store, key, path)
        if not present:
            _send(store, key, path, progress)
            report.facts["bytes_sent"] = _number(report, "bytes_sent") + sizes[key]
        fact = "present" if present else "sent"
        report.facts[fact] = _number(report, fact) + 1
    progress.close()


def _named(words: Sequence[str]) -> dict[str, Path]:
    """Return the files by their keys below the URI."""
    found: dict[str, Path] = {}
    for word in words:
        for key, path in _files(word):
            if key in found and found[key] != path:
                text, remedy = f"{path} and {found[key]} would both be {key}", "send them apart"
                raise StopError(program.EXIT_USAGE, word, text, remedy)
            found[key] = path
    if not found:
        text, remedy = "no file in it", "name files, or folders with files"
        raise StopError(program.EXIT_NOT_FOUND, ", ".join(words), text, remedy)
    return found


def _files(word: str) -> Iterator[tuple[str, Path]]:
    top = Path(word)
    if top.is_file():
        yield _key(Path(top.name)), top
    elif top.is_dir():
        base = top if word.endswith("/") or not top.name else top.parent
        for folder, _, names in os.walk(top):
            for name in sorted(names):
                path = Path(folder, name)
                # A socket, a link that leads nowhere.
                if path.is_file():
                    yield _key(path.relative_to(base)), path
    else:
        text, remedy = "no such file or folder", "correct the name"
        raise StopError(program.EXIT_NOT_FOUND, word, text, remedy)


def _key(path: Path) -> str:
    try:
        path.as_posix().encode()
    except UnicodeEncodeError as problem:
        shown = path.as_posix().encode(errors="backslashreplace").decode()
        text, remedy = "its name is not UTF-8, and S3 has no other", "rename it"
        raise StopError(program.EXIT_USAGE, shown, text, remedy) from problem
    return path.as_posix()


def _is_there(store: Store, key: str, path: Path) -> bool:
    try:
        _, checksum = store.describe(key)
    except s3_store.GoneError:
        return False
    part = s3_store.part_bytes(path.stat().st_size)
    return checksum == s3_store.checksum(path, part)


def _send(store: Store, key: str, path: Path, progress: TransferProgress) -> None:
    before, begin = path.stat(), progress.done
    lock = threading.Lock()
    went = 0

    def tell(count: int) -> None:
        nonlocal went
        with lock:
            # A part that is sent again was counted already.
            went = min(before.st_size, went + count)
            progress.add(begin + went, 0, 0)

    store.upload(path, key, s3_store.part_bytes(before.st_size), tell)
    progress.add(begin + before.st_size, 0, 0)
    after = path.stat()
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        text, remedy = "it changed while it was sent", "send it again when nobody writes to it"
        raise StopError(program.EXIT_CHECK_FAILED, path, text, remedy)
    progress.say(f"{key}: {before.st_size:,} bytes")


def _number(report: Report, fact: str) -> int:
    found = report.facts[fact]
    return found if isinstance(found, int) else 0


if __name__ == "__main__":
    sys.exit(program.run("upload", main, sys.argv[1:]))
