"""The terminal of somebody who works in a container, or what stands in its place."""

import contextlib
import os
import select
import signal
import termios
import threading
import tty
from collections.abc import Iterator
from types import FrameType
from typing import TextIO

from megatron_eks.kubernetes.execution import Execution

_PIECE_BYTES = 16 * 1024
_RESIZED, _ENDED = b"r", b"e"


class Terminal:
    """Standard input, which goes into the container, and the size of the screen."""

    def __init__(self, stdin: TextIO | None, stdout: TextIO) -> None:
        self._input = _number(stdin)
        typed = self._input is not None and os.isatty(self._input)
        self.is_one = typed and stdout.isatty()
        """Whether somebody types, and sees what comes back."""
        self.has_input = self.is_one or (self._input is not None and not typed)
        """Whether there is anything to send: with the output in a file, nobody types a file."""

    @contextlib.contextmanager
    def serve(self, begun: Execution) -> Iterator[None]:
        """Send input and size to a command until the caller is done with it."""
        if self._input is None or not self.has_input:
            yield
            return
        reader, writer = os.pipe()
        thread = threading.Thread(target=self._send, args=(begun, self._input, reader), daemon=True)
        with self._raw(self._input, writer) if self.is_one else contextlib.nullcontext():
            thread.start()
            try:
                yield
            finally:
                os.write(writer, _ENDED)
                # A command that takes no input keeps it waiting.
                thread.join(1)
        os.close(writer)

    @contextlib.contextmanager
    def _raw(self, number: int, writer: int) -> Iterator[None]:
        """Have every key reach the container, and be told of a changed size."""

        def resized(_number: int, _frame: FrameType | None) -> None:
            # Not here: the thread that this interrupts may hold the connection.
            os.write(writer, _RESIZED)

        settings = termios.tcgetattr(number)
        before = signal.signal(signal.SIGWINCH, resized)
        os.write(writer, _RESIZED)
        try:
            # What was typed already is for the container too.
            tty.setraw(number, termios.TCSADRAIN)
            yield
        finally:
            termios.tcsetattr(number, termios.TCSADRAIN, settings)
            signal.signal(signal.SIGWINCH, before)

    def _send(self, begun: Execution, number: int, told: int) -> None:
        sources = [told, number]
        while True:
            ready, _, _ = select.select(sources, [], [])
            if told in ready:
                word = os.read(told, 1)
                if word == _ENDED:
                    os.close(told)
                    return
                size = os.get_terminal_size(number)
                begun.resize(size.columns, size.lines)
            elif number in ready:
                data = os.read(number, _PIECE_BYTES)
                if data:
                    begun.write(data)
                else:
                    begun.end_input()
                    sources.remove(number)


def _number(stream: TextIO | None) -> int | None:
    """Return the file behind a stream; there is none where it was closed, and in a test."""
    try:
        return stream.fileno() if stream is not None else None
    except (OSError, ValueError):
        return None
