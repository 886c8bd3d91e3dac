"""How commands end: exit codes, and failures with a code that `meks explain` knows."""

from collections.abc import Iterable, Sequence

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import choices, closest
from megatron_eks.programs.printable import plain

DONE, FAILED, USAGE, NOT_FOUND, CHECK_FAILED, NOT_REACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
"""Exit codes of commands."""


class Failure(Exception):  # noqa: N818 -- it reads as what happened, like Finding
    """An ending with a stable code: where, what was found, and what to do."""

    def __init__(
        self, code: Code, found: str, remedy: str, *, where: str = "", exit_code: int = FAILED
    ) -> None:
        # What AWS or a file says may hold line ends and terminal codes; a failure stays one line.
        self.finding, self.code = code, exit_code
        self.found, self.remedy = plain(found), plain(remedy)
        self.problem = plain(f"{code} {where}: {found}" if where else f"{code} {found}")
        super().__init__(f"{self.problem} - {self.remedy}")


def no_such(
    code: Code,
    found: str,
    name: str,
    known: Iterable[str],
    *,
    more: str = "",
    exit_code: int = NOT_FOUND,
) -> Failure:
    """Return that nothing has the name, with what was probably meant and all that there is."""
    names = [*known]
    remedy = choices(name, names) if names else "there is none"
    return Failure(code, found, f"{remedy}{more}", exit_code=exit_code)


class NoJob(Failure):
    """There is no job of a name in the cluster; the job files may have it, or one near it."""

    def __init__(self, namespace: str, name: str, there: Sequence[str]) -> None:
        close = closest(name, there)
        remedy = f"did you mean {close!r}? " if close else ""
        remedy += f"there: {', '.join(there) or 'none'}; jobs of your files: meks plan"
        found = f"no job {name!r} in namespace {namespace}"
        super().__init__(Code.JOB_NOT_FOUND, found, remedy, exit_code=NOT_FOUND)
