"""`meks logs`: what the ranks of a job print, interleaved, through cut streams and restarts."""

import contextlib
import queue
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, INTERRUPTED, NOT_FOUND, Failure
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.kube.access import ERRORS
from megatron_eks.ops.kube.jobs import CONTAINER, Rank, RunningJob
from megatron_eks.ops.kube.pods import containers
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.programs.printable import log_line

# A line without an end comes in pieces of this size.
_LONGEST_LINE = 64 * 1024
# A silent stream is opened again after this, in case it is dead.
_SILENCE_SECONDS = 300
_RETRY_SECONDS = 0.3
_LOOK_SECONDS = 0.5
_LOST_SECONDS = 3
_WAITING_LINES = 1000
_END_SECONDS = 30


@dataclass(frozen=True)
class Options:
    """Which lines the user asked for."""

    rank: int | None = None
    follow: bool = False
    tail: int | None = None
    since_seconds: int | None = None
    previous: bool = False


def run(client: Client, plan: ClusterPlan, name: str, options: Options, console: Console) -> int:
    """Print the logs of a job's ranks, or follow them until the job ends."""
    job = jobs.get(client, plan.platform.namespace, name)
    ranks = chosen(jobs.ranks(job, jobs.pods_of(client, job)), name, options.rank)
    if not options.follow and not any(rank.pod for rank in ranks):
        found = f"{name} has no pods, so there are no logs in the cluster"
        folder = f"{plan.platform.mount_path}/logs/{name}/"
        remedy = f"read {folder} on the file system, or meks status {name}"
        raise Failure(Code.NO_LOGS, found, remedy, exit_code=NOT_FOUND)
    try:
        if options.follow:
            return follow(client, job, [rank.number for rank in ranks], options, console)
        width = len(str(ranks[-1].number))
        for rank in ranks:
            for line in printed(client, job.namespace, rank, options):
                console.write(f"[{rank.number:{width}}] {line}\n")
    except KeyboardInterrupt:
        console.say(f"\nthe job goes on; to look again: meks logs {name} --follow")
        return INTERRUPTED
    return DONE


def follow(
    client: Client, job: RunningJob, numbers: Sequence[int], options: Options, console: Console
) -> int:
    """Print lines as they come, until the job has ended and all of them are printed."""
    follower = _Follower(client, job, options, console)
    width = len(str(max(numbers)))
    for number, text in follower.lines(numbers):
        console.write(f"[{number:{width}}] {text}\n")
    return DONE


def chosen(ranks: Sequence[Rank], name: str, wanted: int | None) -> list[Rank]:
    """Return the ranks that were asked for. Raises Failure if there is none of that number."""
    found = [rank for rank in ranks if wanted in {None, rank.number}]
    if wanted is not None and not found:
        lacking = f"{name} has no rank {wanted}"
        remedy = f"ranks are 0 to {len(ranks) - 1}" if ranks else f"meks status {name}"
        raise Failure(Code.NO_LOGS, lacking, remedy, exit_code=NOT_FOUND)
    return found


def printed(client: Client, namespace: str, rank: Rank, options: Options) -> Iterator[str]:
    """Yield the lines of a rank that are there now."""
    if rank.pod is None:
        return
    try:
        for raw in client.stream(
            _path(namespace, rank.pod.name), _query(options), _SILENCE_SECONDS, _LONGEST_LINE
        ):
            yield log_line(raw)
    except ApiError as error:
        # A pod that waits has no log; one that went away has taken it along.
        if error.status not in {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}:
            raise
        # The server's words, which a stream has as a Status object.
        found = re.search(r'"message":"([^"]*)', str(error))
        yield f"(no log: {found[1] if found else str(error).strip()})"


class _Follower:
    """Threads that read one rank each, and one that sees the job's end."""

    def __init__(self, client: Client, job: RunningJob, options: Options, console: Console) -> None:
        self._client, self._job, self._options, self._console = client, job, options, console
        self._lines: queue.Queue[tuple[int, str] | None] = queue.Queue(_WAITING_LINES)
        self._ended = threading.Event()
        self._pods: dict[int, Object] = {}
        """The newest pod of each rank; one request for all of them."""
        self._failure: Exception | None = None

    def lines(self, numbers: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Yield rank and text until the job has ended; raise what forbids going on."""
        readers = [threading.Thread(target=self._read, args=(n,), daemon=True) for n in numbers]
        for each in readers:
            each.start()
        threading.Thread(target=self._watch, args=(readers,), daemon=True).start()
        while (found := self._lines.get()) is not None:
            yield found
        if self._failure is not None:
            raise self._failure

    def _read(self, number: int) -> None:
        """Put the lines of a rank into the queue, whichever pod has it."""
        position = _Position(self._options)
        while True:
            is_last = self._ended.is_set()
            # Restarting, moved, or cut off: the next try goes on after the last line. What is wrong
            # for good, the other thread sees as well.
            with contextlib.suppress(*ERRORS):
                if pod := self._pods.get(number):
                    self._read_pod(number, position, pod)
            if is_last:
                self._tell(number, position.rest())
                return
            self._ended.wait(_RETRY_SECONDS)

    def _read_pod(self, number: int, position: "_Position", pod: Object) -> None:
        path = _path(self._job.namespace, pod["metadata"]["name"])
        if position.missed_one(pod):
            self._put(number, position, path, {"previous": "true"})
        known = containers(pod)
        if any(each["restartCount"] or "waiting" not in each["state"] for each in known):
            self._put(number, position, path, {"follow": "true"})

    def _put(self, number: int, position: "_Position", path: str, which: Mapping[str, str]) -> None:
        query = {**position.query(), **which}
        for raw in self._client.stream(path, query, _SILENCE_SECONDS, _LONGEST_LINE):
            self._tell(number, position.new(raw))

    def _tell(self, number: int, texts: Sequence[str]) -> None:
        for text in texts:
            self._lines.put((number, text))

    def _watch(self, readers: Sequence[threading.Thread]) -> None:
        """Tell the readers of pods and of the job's end, and the printer when they are done."""
        lost = False
        # Lists of many pods are large: of a thousand they are asked for every ten seconds.
        pause = _LOOK_SECONDS + len(readers) / 100
        while True:
            try:
                found = jobs.by_rank(self._job, jobs.pods_of(self._client, self._job))
                self._pods.update({number: own[-1] for number, own in found.items()})
                now = jobs.find(self._client, self._job.namespace, self._job.name)
            except UnreachableError as error:
                if not lost:
                    self._console.say(f"no answer from {error}; trying again")
                lost = True
                self._ended.wait(_LOST_SECONDS)
                continue
            except ERRORS as error:
                self._failure = error
                break
            lost = False
            if now is None or now.ended or now.uid != self._job.uid:
                break
            self._ended.wait(pause)
        self._ended.set()
        for each in readers:
            # A stream of a pod that hangs must not hold the end back.
            each.join(_END_SECONDS)
        self._lines.put(None)


class _Position:
    """How far one rank's log has been read; it survives streams, containers and pods."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pod: str | None = None
        self._restarts = 0
        self._stamp = ""
        self._at_stamp = 0
        self._skip = 0
        self._in_line = False
        self._held: tuple[str, str] | None = None
        """Time and start of a line in whose middle the stream was cut: it comes again, whole."""

    def missed_one(self, pod: Object) -> bool:
        """Say whether a container has come and gone since the last look at this rank."""
        uid = pod["metadata"]["uid"]
        restarts = sum(each["restartCount"] for each in containers(pod))
        if self._pod is None:
            # What was before the first look, nobody asked for.
            self._restarts = restarts
        elif self._pod != uid:
            # Another pod has this rank now: all of its lines are new.
            self._stamp, self._restarts = "", 0
        missed: bool = restarts > self._restarts
        self._pod, self._restarts = uid, restarts
        return missed

    def query(self) -> dict[str, str]:
        """Return the query that goes on after the last line."""
        query = {**_query(self._options), "timestamps": "true"}
        self._in_line = False
        if self._stamp:
            for each in ("tailLines", "sinceSeconds"):
                query.pop(each, None)
            query["sinceTime"] = f"{self._stamp}Z"
            # The server counts whole seconds, and gives lines of that second again.
            self._skip = self._at_stamp
        return query

    def rest(self) -> list[str]:
        """Return what is held back of a line that did not come again: its writer ended there."""
        held, self._held = self._held, None
        return [held[1]] if held else []

    def new(self, raw: bytes) -> list[str]:
        """Return the text of a line; nothing if it has been printed before, or is not whole."""
        if self._in_line:
            # The rest of a line that was too long has no time of its own.
            self._in_line = not raw.endswith(b"\n")
            return [log_line(raw)]
        self._in_line = not raw.endswith(b"\n")
        # The time is the server's, which cuts zeros; in the rest anything may stand, a carriage
        # return too.
        written, _, said = raw.partition(b" ")
        seconds, _, fraction = written.decode(errors="replace").removesuffix("Z").partition(".")
        stamp, rest = f"{seconds}.{fraction:0<9}", log_line(said)
        if self._in_line and len(raw) < _LONGEST_LINE:
            self._in_line = False
            self._held = (stamp, rest) if stamp >= self._stamp else None
            return []
        if stamp < self._stamp:
            return []
        if stamp == self._stamp:
            if self._skip:
                self._skip -= 1
                return []
            self._at_stamp += 1
        else:
            self._stamp, self._at_stamp, self._skip = stamp, 1, 0
        before = [] if self._held and self._held[0] == stamp else self.rest()
        self._held = None
        return [*before, rest]


def _path(namespace: str, pod: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{pod}/log"


def _query(options: Options) -> dict[str, str]:
    wanted = {
        "container": CONTAINER,
        "tailLines": options.tail,
        "sinceSeconds": options.since_seconds,
        "previous": "true" if options.previous else None,
    }
    return {name: str(value) for name, value in wanted.items() if value is not None}
