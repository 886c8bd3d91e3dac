"""Turns JSON lines into the .bin and .idx files that Megatron trains on.

prepare_data --input FILE... --output-prefix P --tokenizer DIR [--append-eod] [--resume]
prepare_data --verify P_text_document [--tokenizer DIR]

Inputs are files, patterns, folders or s3:// names, plain or packed with gzip or zstd. For each JSON
key there come P_KEY_document.bin, .idx and .json, the last with what went in. The bytes are those
of Megatron's tools/preprocess_data.py, whatever the workers, shards and interruptions.

With --shards N each process does one part, which is --shard-index or the JOB_COMPLETION_INDEX of
an Indexed Job; the process that finds all parts done joins them.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 4 --verify found something, 130 ended by
a signal (continue with --resume). The last line on stdout is one JSON object.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from megatron_eks.programs import program
from megatron_eks.programs.prepare import options as prepare_options
from megatron_eks.programs.program import Report, StopError


def main(argv: Sequence[str], report: Report) -> None:
    """Prepare a data set, or read one back; tell how long it took."""
    begin = time.monotonic()
    words = prepare_options.parser(__doc__).parse_args(argv)
    try:
        if words.verify is not None:
            _verify(words, report)
        else:
            _prepare(words, report)
    except OSError as problem:
        place, found = problem.filename or "the system", problem.strerror or str(problem)
        remedy = "see to it, and continue with --resume"
        raise StopError(program.EXIT_FAILED, place, found, remedy) from problem
    except KeyboardInterrupt:
        report.warning("a signal", "ended the work", "continue with --resume")
        raise
    finally:
        report.facts["seconds"] = round(time.monotonic() - begin, 3)


def _prepare(words: argparse.Namespace, report: Report) -> None:
    report.facts.update(documents=0, tokens=0, skipped=[])
    options = prepare_options.options(words, os.environ)
    # Imported here: --help and --verify need no tokenizer.
    from megatron_eks.programs.prepare.steps import Steps  # noqa: PLC0415 -- see above

    steps = Steps(options, report)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        # The first signal waits for the block at hand, so that nothing is done twice.
        if steps.run is None or steps.run.stopping:
            raise KeyboardInterrupt
        steps.run.stopping = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    steps.prepare()


def _verify(words: argparse.Namespace, report: Report) -> None:
    from megatron_eks.programs.prepare.verify import check  # noqa: PLC0415 -- needs numpy, --help does not

    report.collect(check(words.verify, words.tokenizer, report.facts))


if __name__ == "__main__":
    sys.exit(program.run("prepare_data", main, sys.argv[1:]))
