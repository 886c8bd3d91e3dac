"""Why a command ended without doing what it was asked, in one line, with an exit code."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from megatron_eks.config.errors import Code

FAILED, USAGE, NOT_FOUND, CHECK_FAILED, NOT_REACHABLE, INTERRUPTED = 1, 2, 3, 4, 5, 130


class Failure(Exception):  # noqa: N818 -- it reads as what happened, like Finding
    """A command cannot go on; `str` is the line to print, without any traceback."""

    def __init__(
        self,
        code: "Code",
        found: str,
        remedy: str,
        *,
        where: str = "",
        exit_code: int = FAILED,
    ) -> None:
        place = f"{where}: " if where else ""
        line = f"error {code} {place}{found} - {remedy}"
        # What AWS or a file says may hold line ends and terminal codes; a failure stays one line.
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line))
        self.code = code
        self.exit_code = exit_code
