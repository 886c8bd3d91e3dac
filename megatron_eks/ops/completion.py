"""`meks completion`: a script for bash, zsh or fish, made from the parser by shtab."""

import argparse
from collections.abc import Iterator

import shtab

# Commands that all three shells read alike, and that ask nobody: without quotes, `$` and colons,
# which one of them takes for its own. They look where `meks` looks by default.
_JOBS = r"grep -rhs \^name. jobs | cut -c7- | cut -d# -f1"
_POOLS = (
    r"grep -s -A30 \^gpu_pools cluster.yaml | grep -e -\ .\*name"
    r" | sed s/.\*name.// | cut -d, -f1 | cut -d# -f1"
)
_BY_METAVAR = {
    "JOB": shtab.cmd(_JOBS),
    "POOL": shtab.cmd(_POOLS),
    "FILE": shtab.FILE,
    "PATH": shtab.FILE,
    "FILE.tar.gz": shtab.FILE,
}


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return what a shell reads to complete commands, options, jobs and pools."""
    for action in _actions(parser):
        completed = _BY_METAVAR.get(str(action.metavar))
        if completed is not None:
            # shtab's own way to say it; argparse knows no such attribute.
            action.complete = completed  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 -- argparse has no public list of them
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 -- nor a name for these
            for inner in action.choices.values():
                yield from _actions(inner)
