"""Runs one preparation: blocks to the workers, their tokens in order to the files, with commits."""

import multiprocessing
import time
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from typing import Any

from megatron_eks.programs.prepare import worker as prepare_worker
from megatron_eks.programs.prepare.job import BadLine, Options, PrepareError, failure
from megatron_eks.programs.prepare.output import Store
from megatron_eks.programs.prepare.reader import Reader, Task
from megatron_eks.programs.prepare.tokenizer import Tokenizer
from megatron_eks.programs.prepare.worker import Result, Worker
from megatron_eks.programs.program import error
from megatron_eks.programs.progress import Progress


@dataclass
class Counts:
    """What came of one input so far."""

    tokens: list[int]
    """For each JSON key."""
    lines: int = 0
    skipped: int = 0


class Run:
    """One preparation, from its first block or its last commit to the end of its inputs."""

    def __init__(
        self, options: Options, reader: Reader, tokenizer: Tokenizer, recipe: str, store: Store
    ) -> None:
        self._options = options
        self._reader = reader
        self._tokenizer = tokenizer
        self._recipe = recipe
        self.store = store
        self.counts = [Counts([0] * len(options.json_keys)) for _ in reader.sources]
        self._span = 0
        self._offset = 0
        self._sizes: dict[str, int] = {}
        self._lines_before: dict[int, int] = {}
        self.stopping = False
        """Set by a signal: commit after the block at hand, and stop."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a commit."""
        self._span, self._offset = state["span"], state["offset"]
        self._sizes = state["sizes"]
        self.counts = [Counts(**counts) for counts in state["counts"]]

    def state(self) -> dict[str, object]:
        """Return what a commit records."""
        return {
            "recipe": self._recipe,
            "span": self._span,
            "offset": self._offset,
            "counts": [asdict(counts) for counts in self.counts],
        }

    def run(self) -> None:
        """Do what is left of the work."""
        self.store.open(self._sizes)
        worker = Worker(self._tokenizer, self._options)
        progress = Progress(self._reader.size, self._reader.before(self._span, self._offset))
        # Forked, so that each has the tokenizer without loading it: this process has no other
        # thread yet.
        context = multiprocessing.get_context("fork")
        pool = ProcessPoolExecutor(self._options.workers, context, prepare_worker.start, (worker,))
        try:
            self._work(pool, progress)
        except BrokenProcessPool as problem:
            found = "ended by itself; the system may have run out of memory"
            remedy = "take fewer --workers, and continue with --resume"
            raise failure("a worker", found, remedy) from problem
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            progress.close()

    def _work(self, pool: ProcessPoolExecutor, progress: Progress) -> None:
        """Keep two blocks a worker under way or waiting for their turn to be written."""
        under_way: deque[tuple[Task, Future[Result]]] = deque()
        commit_at = time.monotonic() + self._options.commit_seconds
        for task in self._reader.tasks(self._span, self._offset):
            under_way.append((task, pool.submit(prepare_worker.run, task.block)))
            if len(under_way) > 2 * self._options.workers:
                self._take(*under_way.popleft(), progress)
                if self.stopping or time.monotonic() >= commit_at:
                    self.store.commit(self.state())
                    commit_at = time.monotonic() + self._options.commit_seconds
                if self.stopping:
                    raise KeyboardInterrupt
        while under_way:
            self._take(*under_way.popleft(), progress)

    def _take(self, task: Task, future: "Future[Result]", progress: Progress) -> None:
        """Append what one block gave, and account for every line of it."""
        result = future.result()
        source = self._reader.spans[task.span].source
        counts = self.counts[source]
        name = self._reader.sources[source].name
        bad = [
            BadLine(name, self._line(task.span, counts.lines + place), reason)
            for place, reason in result.bad
        ]
        if bad and self._options.on_bad_line == "fail":
            self.store.commit(self.state())
            raise PrepareError(
                *(
                    error(f"{line.file}:{line.line}", line.reason, "correct it, or skip bad lines")
                    for line in bad
                )
            )
        self.store.append(result.parts, bad)
        counts.lines += result.lines
        counts.skipped += len(bad)
        for key, part in enumerate(result.parts):
            counts.tokens[key] += len(part.tokens)
        self._span = task.span
        self._offset = task.block.start + task.block.size
        tokens = sum(len(part.tokens) for part in result.parts)
        progress.add(task.stored, result.lines - len(bad), tokens)

    def _line(self, span: int, lines: int) -> int:
        """Return a line's number in its file, from 1; `lines` are those before it in the span."""
        if span not in self._lines_before:
            self._lines_before[span] = self._reader.lines_before(span)
        return self._lines_before[span] + lines + 1
