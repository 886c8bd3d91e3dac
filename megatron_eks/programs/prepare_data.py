"""Turns JSON lines into the .bin and .idx files that Megatron trains on.

prepare_data --input FILE... --output-prefix P --tokenizer DIR [--append-eod] [--resume]
prepare_data --verify P_text_document [--tokenizer DIR]

Inputs are files, patterns, folders or s3:// names, plain or packed with gzip or zstd. For each JSON
key there come P_KEY_document.bin, .idx and .json, the last with what went in. The bytes are those
of Megatron's tools/preprocess_data.py, whatever the workers, shards and interruptions.

With --shards N each process does one part, which is --shard-index or the JOB_COMPLETION_INDEX of
an Indexed Job; the process that finds all parts done joins them.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 no such bucket, 4 --verify found
something, 5 S3 cannot be reached, 130 ended by a signal (continue with --resume). The last line on
stdout is one JSON object.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import FrameType

from megatron_eks.programs import program
from megatron_eks.programs.prepare.job import Options, Shard, usage
from megatron_eks.programs.program import Report, StopError

_COMMIT_SECONDS = 30.0
_POSITIVE = program.at_least(1)


def main(argv: Sequence[str], report: Report) -> None:
    """Prepare a data set, or read one back; tell how long it took."""
    begin = time.monotonic()
    words = _parser().parse_args(argv)
    try:
        if words.verify is not None:
            from megatron_eks.programs.prepare.verify import check  # noqa: PLC0415 -- needs numpy, --help does not

            report.collect(check(words.verify, words.tokenizer, report.facts))
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
    options = _options(words, os.environ)
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


def _parser() -> argparse.ArgumentParser:
    found = program.parser(__doc__)
    add = found.add_argument_group("data").add_argument
    what = "JSON lines: files, patterns, folders, s3:// names; in this order"
    add("--input", action="extend", nargs="+", metavar="FILE", help=what)
    add("--output-prefix", metavar="P", help="output is P_KEY_document.bin and .idx")
    what = "folder with tokenizer.json of Hugging Face"
    add("--tokenizer", type=Path, metavar="DIR", help=what)
    what = "key of the text, or of a list of texts; may be repeated (default text)"
    add("--json-key", action="append", metavar="KEY", help=what)
    add("--append-eod", action="store_true", help="end each document with the tokenizer's EOS")
    what = "begin each text with the tokenizer's BOS, as Megatron from 0.17 on does by default "
    add("--add-bos", action="store_true", help=f"{what}with a tokenizer that is set up for it")
    what = "what to do with a line that gives no document; skipped ones are listed"
    add("--on-bad-line", choices=("fail", "skip"), default="fail", help=what)
    add = found.add_argument_group("work").add_argument
    cores, what = len(os.sched_getaffinity(0)), "processes that tokenize (default %(default)s)"
    add("--workers", type=_POSITIVE, default=cores, metavar="N", help=what)
    what = "auto takes gigatoken where it gives the same tokens as `tokenizers`"
    add("--backend", choices=("auto", "tokenizers"), default="auto", help=what)
    what = "go on where an interrupted run was; do nothing if all is done"
    add("--resume", action="store_true", help=what)
    what = "how much work a crash may cost (default %(default)s)"
    add("--commit-seconds", type=float, default=_COMMIT_SECONDS, metavar="S", help=what)
    add("--shards", type=_POSITIVE, default=1, metavar="N", help="parts that N processes do")
    add("--shard-index", metavar="I", help="the part of this process, from 0 on")
    found.add_argument("--verify", metavar="PREFIX", help="read a data set back, and write none")
    return found


def _options(words: argparse.Namespace, environment: Mapping[str, str]) -> Options:
    """Return what to prepare; raise PrepareError where the command line does not say it."""
    for name in ("input", "output_prefix", "tokenizer"):
        if not getattr(words, name):
            raise usage(f"--{name.replace('_', '-')}", "it is missing", "give it, see --help")
    keys = tuple(dict.fromkeys(words.json_key or ["text"]))
    if any("/" in key or not key for key in keys):
        raise usage("--json-key", "a key becomes part of a file name", "take one without `/`")
    names = {each.name for each in fields(Options)}
    given = {name: value for name, value in vars(words).items() if name in names}
    return Options(
        **given,
        inputs=tuple(words.input),
        json_keys=keys,
        shard=_shard(words, environment),
    )


def _shard(words: argparse.Namespace, environment: Mapping[str, str]) -> Shard | None:
    if words.shards == 1:
        return None
    word = words.shard_index or environment.get("JOB_COMPLETION_INDEX", "")
    if not word.isdecimal() or int(word) >= words.shards:
        found = f"{word!r}, with --shards {words.shards}"
        remedy = f"give 0 to {words.shards - 1}, or JOB_COMPLETION_INDEX as an Indexed Job does"
        raise usage("--shard-index", found, remedy)
    return Shard(int(word), words.shards)


if __name__ == "__main__":
    sys.exit(program.run("prepare_data", main, sys.argv[1:]))
