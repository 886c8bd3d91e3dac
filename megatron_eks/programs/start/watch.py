"""Watches the ranks of one node from beside them, and ends them where they cannot go on.

python -m megatron_eks.programs.start.watch --rank PID --node N --nodes M [OPTIONS]

Every training program starts it on the first rank of each node; it ends with that rank, or by
SIGTERM once that rank only waits for S3. It ends the node's ranks, so that torchrun, the container
and then the whole gang start again, when

- NCCL's log shows TCP instead of EFA, fewer interfaces than expected, or nothing at all;
- another node of the gang has lost its ranks, has started anew, or is silent: a rank that waits for
  it inside a collective raises nothing until its timeout;
- a rank uses no CPU time for longer than its collectives may take.

The ranks end by SIGKILL, which torchrun and the container report as exit code 1. What happened is
in the finding on stderr and in the JSON line on stdout.

Exit codes: 0 the ranks ended by themselves, 2 the command line is wrong, 6 the network is not the
expected one, 7 another node was lost, 8 a rank was blocked.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.printable import guarded
from megatron_eks.programs.program import Finding, Report, error, warning
from megatron_eks.programs.start import gang, guard, nccl_log
from megatron_eks.programs.start.rank_processes import Progress, Rank, cpu_seconds, end, started

EXIT_NETWORK = 6
EXIT_PEER_LOST = 7
EXIT_BLOCKED = 8

_ROUND_SECONDS = 1.0
_SILENT_ROUNDS = 30
# For what a rank that noticed too has to say. A container starts again at once and takes some
# seconds to import torch: by then nobody of the last start may be left to meet.
_GRACE_SECONDS = 1.0
_LOG_BYTES = 4 * 2**20


class NetworkWatch:
    """NCCL's logs of the node's ranks, until they say which network was chosen."""

    def __init__(self, options: argparse.Namespace, pattern: str) -> None:
        self._options, self._pattern = options, pattern
        self._start = time.monotonic()
        self._settled: set[int] = set()
        self._said = False

    def look(self, ranks: list[int]) -> Finding | None:
        """Return what is wrong with the network of any rank."""
        if not self._options.expect_efa:
            return None
        seconds = time.monotonic() - self._start
        over = seconds if seconds > self._options.start_seconds else None
        for rank in ranks:
            if rank in self._settled:
                continue
            text, direct = self._text(rank), self._options.expect_gpu_direct
            wanted = self._options.expect_efa
            state, finding = nccl_log.judge(text, wanted, gpu_direct=direct, silent_seconds=over)
            if state == "bad":
                return finding
            if state == "good":
                self._settled.add(rank)
                if finding is not None and not self._said:
                    self._said = True
                    program.say(str(finding))
        return None

    def _text(self, rank: int) -> str:
        pattern = Path(self._pattern.replace("%h", "*").replace("%p", str(rank)))
        if not pattern.is_absolute():
            return ""
        # A container's next start has the same process numbers, and the logs of the last one.
        since = started(rank)
        for path in pattern.parent.glob(pattern.name):
            if since is not None and path.stat().st_mtime >= since - 1:
                with path.open("rb") as file:
                    return file.read(_LOG_BYTES).decode(errors="replace")
        return ""


class GangWatch:
    """The other nodes, through their files on shared storage."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._directory: Path = options.heartbeats
        node, nodes = options.node, options.nodes
        self._heart = gang.Heart(gang.path_of(self._directory, node), options.start)
        others = range(1, nodes) if node == 0 else [0]
        self._peers = [gang.Peer(other, options.silent_rounds) for other in others]
        self._said = ""

    def look(self) -> Finding | None:
        """Show that this node lives, and return which other one was lost."""
        try:
            self._heart.beat()
            for peer in self._peers:
                lost = peer.look(gang.read(gang.path_of(self._directory, peer.node)))
                if lost is not None:
                    remedy = "all ranks start again from the newest checkpoint"
                    return error(f"node {peer.node}", f"it {lost}", remedy)
        except OSError as problem:
            self._warn(problem)
        return None

    def leave(self, state: gang.State) -> None:
        """Tell the others how this node ended."""
        try:
            self._heart.beat(state)
        except OSError as problem:
            self._warn(problem)

    def _warn(self, problem: OSError) -> None:
        if str(problem) != self._said:
            self._said = str(problem)
            remedy = "training goes on; a lost node is noticed by the collectives' timeout"
            program.say(str(warning(self._directory, self._said, remedy)))


class Watch:
    """All that is watched on one node."""

    def __init__(self, rank: Rank, options: argparse.Namespace) -> None:
        self._rank, self._options = rank, options
        self._network = NetworkWatch(options, os.environ.get("NCCL_DEBUG_FILE", ""))
        is_gang = options.heartbeats is not None and options.nodes > 1
        self._gang = GangWatch(options) if is_gang else None
        self._progress = Progress(options.idle_seconds)

    def run(self) -> tuple[int, Finding | None]:
        """Watch until the ranks end, or have to; return an exit code, and why."""
        try:
            while not self._rank.wait(self._options.round_seconds):
                code, finding = self._look()
                if finding is None:
                    continue
                # At once, so that all nodes end at the same time.
                self._leave("failed")
                if code == EXIT_PEER_LOST:
                    self._rank.wait(self._options.grace_seconds)
                end(self._rank.siblings())
                return code, finding
            status = self._rank.exit_code()
            self._leave("ended" if status is None else "failed" if status else "finished")
        except KeyboardInterrupt:
            self._leave("finished")
        return 0, None

    def _look(self) -> tuple[int, Finding | None]:
        # First, because the others wait for this node's sign of life.
        if self._gang is not None and (finding := self._gang.look()):
            return EXIT_PEER_LOST, finding
        ranks = self._rank.siblings()
        if finding := self._network.look(ranks):
            return EXIT_NETWORK, finding
        now = time.monotonic()
        for rank in ranks:
            used = cpu_seconds(rank)
            if used is not None and self._progress.is_blocked(rank, used, now):
                found = f"it used no CPU time for {self._options.idle_seconds:.0f} s"
                remedy = "all ranks start again; look at the node if it happens again"
                return EXIT_BLOCKED, error(f"process {rank}", found, remedy)
        return 0, None

    def _leave(self, state: gang.State) -> None:
        if self._gang is not None:
            self._gang.leave(state)


@guarded()
def main() -> int:
    """Watch, and say what was done."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        rank = Rank(options.rank)
        watch = Watch(rank, options)
    except ProcessLookupError:
        return 0
    except OSError as problem:
        remedy = "training goes on unwatched"
        program.say(str(warning(problem.filename or "watch", str(problem.strerror), remedy)))
        return 0
    code, finding = watch.run()
    if finding is not None:
        report = Report([finding], {"node": options.node, "exit_code": code})
        report.write_findings()
        report.write_summary({"program": "watch", "status": "ended the ranks"})
    return code


def _parser() -> argparse.ArgumentParser:
    parser = program.parser(__doc__)
    parser.add_argument("--rank", type=int, required=True, help="process to watch, and to end with")
    parser.add_argument("--node", type=int, required=True, help="this node's number, from 0")
    parser.add_argument("--nodes", type=int, required=True, help="nodes of the gang")
    parser.add_argument("--start", default="", help="name of this start, for the other nodes")
    guard.add_options(parser)
    for name, default, what in (
        ("--start-seconds", 600.0, "in which NCCL has to choose a network"),
        ("--idle-seconds", 660.0, "without CPU time, after which a rank ends"),
        ("--round-seconds", _ROUND_SECONDS, "between two looks"),
        ("--grace-seconds", _GRACE_SECONDS, "for ranks to end by themselves after a node was lost"),
        ("--silent-rounds", _SILENT_ROUNDS, "after which a node is lost"),
    ):
        parser.add_argument(name, type=type(default), default=default, help=what)
    return parser


if __name__ == "__main__":
    sys.exit(main())
