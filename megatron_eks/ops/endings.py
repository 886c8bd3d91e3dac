"""How a command ends: its exit codes, and failures that a user can do something about."""

DONE, FAILED, USAGE, NOT_FOUND, CHECK_FAILED, NOT_REACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


class CommandError(Exception):
    """A command cannot go on; says what was found, what to do, and the exit code."""

    def __init__(self, found: str, remedy: str, code: int = FAILED) -> None:
        super().__init__(f"{found} - {remedy}")
        self.code = code
