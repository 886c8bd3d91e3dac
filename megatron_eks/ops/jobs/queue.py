"""`meks queue`: who waits, why, since when, and who comes next."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import TypeVar

from megatron_eks.catalog import kueue
from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.ops.console import duration
from megatron_eks.ops.failure import DONE, Failure
from megatron_eks.ops.jobs import expected, queues
from megatron_eks.ops.jobs.expected import Start
from megatron_eks.ops.jobs.queues import Entry, Queues, Share
from megatron_eks.ops.jobs.status_view import time_text
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.output import formatted, picked, table
from megatron_eks.programs.printable import plain

_OF_TEAM = ("team", "pool", "gpus", "used", "lent")
_Starts = Mapping[str, Start]
_Found = TypeVar("_Found", Entry, Share)
_SHOWN = ("job", "namespace", "team", "pool", "gpus", "priority")


def run(on: Opened, output: str, team: str | None = None) -> int:
    """Print the shares of all teams or of one, and the jobs that wait."""
    if not on.plan.platform.kueue:
        raise Failure(
            Code.QUEUE,
            "the cluster has no queues: jobs start as soon as their pods find nodes",
            "set platform.kueue: true, then: meks apply",
        )
    if team is not None:
        # Queues are for all to see: without this, jobs that one may not see would seem not to wait.
        on.client.list(kueue.API_VERSION, "Workload", on.plan.platform.namespace, missing_ok=True)
    found, now = queues.read(on.client, *on.plan.platform.namespaces), on.client.now()
    starts = expected.starts(on.client, on.project.jobs, found)
    shown = lines(found, starts, now, team)
    as_data = partial(as_json, on.plan.name, found, starts, now, team)
    on.console.write(formatted(output, shown, as_data))
    return DONE


def lines(found: Queues, starts: _Starts, now: datetime, team: str | None = None) -> Iterator[str]:
    """Yield the shares, the jobs that wait, why, and until when."""
    rows = [
        (each.team, each.pool, *map(str, (each.gpus, each.used, each.lent)))
        for each in _of(team, found.shares)
    ]
    yield from table(("TEAM", "POOL", "SHARE", "USED", "BORROWED"), rows, right=(2, 3, 4))
    yield ""
    waiting, first = _of(team, found.waiting), found.next_ones
    if not waiting:
        yield f"No job {f'of team {team} ' if team else ''}waits."
        return
    rows = [
        (
            each.job,
            each.team,
            each.pool or "-",
            str(each.gpus),
            duration((now - each.since).total_seconds()) if each.since else "",
            "next" if each.uid in first else "",
        )
        for each in waiting
    ]
    yield from table(("JOB", "TEAM", "POOL", "GPUS", "WAITS", ""), rows, right=(3,))
    for each in waiting:
        start = starts.get(each.uid)
        yield plain(f"{each.job}: {found.why(each)}{'; ' if start else ''}{start or ''}")


def as_json(
    cluster: str, found: Queues, starts: _Starts, now: datetime, team: str | None = None
) -> Json:
    """Return it as plain values; docs/schemas/queue.json says which."""
    first = found.next_ones
    seconds = {uid: each.seconds for uid, each in starts.items() if each.seconds is not None}
    return {
        "schema_version": 1,
        "cluster": cluster,
        "at": time_text(now),
        "teams": [picked(each, *_OF_TEAM) for each in _of(team, found.shares)],
        "waiting": [
            {
                **picked(each, *_SHOWN),
                "since": time_text(each.since) if each.since else None,
                "next": each.uid in first,
                "why": found.why(each),
                "starts_in_seconds": round(seconds[each.uid]) if each.uid in seconds else None,
                "starts": str(starts[each.uid]) if each.uid in starts else None,
            }
            for each in _of(team, found.waiting)
        ],
        "running": [picked(e, *_SHOWN) for e in _of(team, found.entries) if e.has_place],
    }


def _of(team: str | None, found: Iterable[_Found]) -> list[_Found]:
    return [each for each in found if team in {None, each.team}]
