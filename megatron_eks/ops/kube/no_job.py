"""A job that is not in the cluster, and where it may be."""

from collections.abc import Sequence

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import closest
from megatron_eks.ops.failure import NOT_FOUND, Failure


class NoJob(Failure):
    """There is no job of a name in the cluster; a job file may have it, or one near it."""

    def __init__(
        self, namespace: str, name: str, there: Sequence[str], files: Sequence[str] = ()
    ) -> None:
        self._namespace, self._name, self._there = namespace, name, there
        close = closest(name, [*there, *files])
        remedy = f"there: {', '.join(there) or 'none'}"
        if name in files:
            remedy += f"; start it with: meks submit {name}"
        elif close:
            start = "" if close in there else f"; start it with: meks submit {close}"
            remedy = f"did you mean {close!r}? {remedy}{start}"
        elif files:
            remedy += f"; job files: {', '.join(files)}"
        found = f"no job {name!r} in namespace {namespace}"
        super().__init__(Code.JOB_NOT_FOUND, found, remedy, exit_code=NOT_FOUND)

    def beside(self, files: Sequence[str]) -> "NoJob":
        """Return it with the names that the project's job files have."""
        return NoJob(self._namespace, self._name, self._there, files)
