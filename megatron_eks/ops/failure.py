"""Why a command ended without doing what it was asked, with a code that `meks explain` knows."""

from megatron_eks.config.codes import Code
from megatron_eks.ops.endings import FAILED
from megatron_eks.programs.printable import plain


class Failure(Exception):  # noqa: N818 -- it reads as what happened, like Finding
    """An ending with a stable code: where, what was found, and what to do."""

    def __init__(
        self, code: Code, found: str, remedy: str, *, where: str = "", exit_code: int = FAILED
    ) -> None:
        line = f"{code} {where}: {found}" if where else f"{code} {found}"
        # What AWS or a file says may hold line ends and terminal codes; a failure stays one line.
        self.finding, self.code = code, exit_code
        self.found, self.remedy = plain(found), plain(remedy)
        super().__init__(f"{plain(line)} - {self.remedy}")
