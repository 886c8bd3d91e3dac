"""Consoles whose streams can be read."""

import io

from megatron_eks.ops.console import Console, SystemClock


class Terminal(io.StringIO):
    """Lines that somebody types."""

    def isatty(self) -> bool:
        """Say that somebody is there."""
        return True


def console(answers: str | None = None, *, yes: bool = False) -> Console:
    """Return a console; None for answers is a command without a terminal."""
    stdin = io.StringIO() if answers is None else Terminal(answers)
    return Console(stdin, io.StringIO(), io.StringIO(), SystemClock(), yes=yes)


def said(of: Console) -> str:
    """Return what a command told."""
    stream = of.stderr
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


def written(of: Console) -> str:
    """Return the data that a command wrote."""
    stream = of.stdout
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()
