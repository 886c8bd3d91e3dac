"""Judges what an entry point writes, in a second process."""

import signal
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import resolve_name

from megatron_eks.config.errors import Finding


class Judge:
    """Applies rules to files; start it before the first import of aws_cdk or cdk8s.

    The hundreds of modules of the rules load while that import waits for Node, and files are judged
    while Node writes the next ones. A thread would take its turns from the one that talks to Node.
    """

    def __init__(self, rules: str) -> None:
        """Start the process; rules are named MODULE:FUNCTION, and take texts by file name."""
        fork = get_context("fork")  # whatever was imported so far need not be imported again
        self._ours, theirs = fork.Pipe()
        process = fork.Process(target=_judge, args=(rules, theirs, self._ours), daemon=True)
        # Whoever interrupts both is answered by the first one alone.
        answer = signal.signal(signal.SIGINT, signal.SIG_IGN)
        process.start()
        signal.signal(signal.SIGINT, answer)
        theirs.close()

    def hand(self, files: Sequence[Path]) -> None:
        """Let files be judged together."""
        self._ours.send(files)

    def findings(self) -> list[Finding]:
        """Return what was found in all files, and end."""
        self._ours.send(None)
        found: list[Finding] = self._ours.recv()
        return found


def _judge(rules: str, theirs: Connection, ours: Connection) -> None:
    ours.close()  # the pipe then ends with the first process, however that ends
    judged = resolve_name(rules)
    found: list[Finding] = []
    try:
        while (files := theirs.recv()) is not None:
            found += judged({str(file): file.read_text(encoding="utf-8") for file in files})
        theirs.send(found)
    except (EOFError, BrokenPipeError):
        return
