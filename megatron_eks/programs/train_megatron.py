"""Starts Megatron-LM's pretrain_gpt.py on one GPU, after the checks that save GPU hours.

torchrun -m megatron_eks.programs.train_megatron --keep-last N [OPTIONS] -- MEGATRON ARGUMENTS

torchrun runs it once for each GPU. The first process of a node checks data, tokenizer and
directories as that node sees them; rank 0 also repairs a bad tracker file and keeps the newest
checkpoints. Then Megatron runs in this process, so signals and the exit code are Megatron's own.
What runs beside it starts again when it dies, and rank 0 waits for the last checkpoint's copy.

A watcher beside each node's ranks ends them where they cannot go on (see watch.py). Rank 0's repair
is done before the others read the tracker: Megatron's ranks meet first.

Exit codes of the checks: 2 the command line is wrong, or Megatron refuses its arguments, 4 a check
failed. The last line on stdout before Megatron starts is one JSON object, from the first process of
each node.

Environment: MEGATRON_LM names the Megatron-LM checkout (default /opt/megatron-lm).
"""

import argparse
import multiprocessing
import os
import runpy
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import whole
from megatron_eks.programs.prepare.indexed_data import DataSet
from megatron_eks.programs.printable import guarded
from megatron_eks.programs.program import EXIT_USAGE, Report, usage_error
from megatron_eks.programs.start import companions, guard, preconditions, profiler
from megatron_eks.programs.trainer.tracking import check_packages

MEGATRON_LM = "/opt/megatron-lm"
# Where Megatron reads its arguments, and makes its configurations of them.
_ARGUMENTS = ("/megatron/training/arguments.py", "/megatron/training/argument_utils.py")


class Start:
    """One process of the job: its options, its place among the ranks and Megatron's arguments."""

    def __init__(
        self,
        options: argparse.Namespace,
        words: Sequence[str],
        environment: Mapping[str, str],
        program: Path | None,
    ) -> None:
        """Take what the command line says of checkpoints, and the program that has to be there."""
        self.options, self.program = options, program
        self.keep_last: int = options.keep_last
        self.s3_uri: str | None = options.s3_uri
        self.words = preconditions.MegatronArguments(words)
        self.environment = environment
        self.beside = companions.Beside()
        self.rank = int(environment.get("RANK", "0"))
        self.first_of_node = int(environment.get("LOCAL_RANK", "0")) == 0
        self.save = self.words.path("--save")
        self.pretrained = self.words.path("--pretrained-checkpoint")
        self.ckpt_format = self.words.value("--ckpt-format") or whole.DEFAULT_FORMAT

    def check(self, report: Report) -> None:
        """Run the checks of this process; all of them, whatever the first ones find."""
        # First, because the other nodes' watchers wait for it.
        minutes = self.words.value("--distributed-timeout-minutes")
        timeout = float(minutes) if minutes else None
        report.collect(guard.start(self.options, self.environment, timeout))
        # These directories are the container's own, and another process may need them first.
        report.collect(preconditions.check_environment(self.environment))
        if self.first_of_node:
            self._check_node(report)
        if self.rank == 0:
            self._check_job(report, guard.reading_deadline(timeout))

    def _check_node(self, report: Report) -> None:
        """Check what may differ from node to node: the image, and how it sees shared storage."""
        data_sets: list[DataSet] = []
        if self.program is not None and not self.program.is_file():
            remedy = "set MEGATRON_LM to a checkout of Megatron-LM"
            report.error(self.program, "no such file", remedy)
        report.collect(preconditions.check_data(self.words, data_sets))
        report.collect(preconditions.check_tokenizer(self.words))
        named = {"wandb": "--wandb-project", "mlflow": "--mlflow-experiment"}
        trackers = [each for each, option in named.items() if self.words.value(option)]
        # Megatron-LM has no option for it: its steps go there from beside it.
        if self.program is not None and "MLFLOW_EXPERIMENT_NAME" in self.environment:
            trackers.append("mlflow")
        report.collect(check_packages(sorted({*trackers})))
        if self.save is not None:
            kept = self.save, self.pretrained, self.ckpt_format
            report.collect(preconditions.check_save(*kept))
        if tensorboard := self.words.path("--tensorboard-dir"):
            report.collect(preconditions.check_writable(tensorboard))
        report.facts["data"] = [asdict(data_set) for data_set in data_sets]

    def _check_job(self, report: Report, deadline: float) -> None:
        """Check what is the same for all ranks: what the run starts from, and room to save."""
        how = self.ckpt_format, report.facts, deadline
        if self.save is not None:
            report.collect(preconditions.resume(self.save, *how))
        report.collect(preconditions.check_base(self.pretrained, *how))
        if self.save is not None:
            report.collect(companions.check_copies(self.save, self.s3_uri))
        if self.save is not None and self.save.is_dir():
            report.collect(preconditions.note_imported(self.save))
            report.collect(preconditions.check_space(self.save, self.pretrained, self.ckpt_format))

    def start_companions(self, report: Report) -> None:
        """Start what runs beside Megatron."""
        if self.rank == 0 and self.save is not None:
            wishes = self.save, self.s3_uri, self.keep_last, self.ckpt_format
            self.beside = companions.start(*wishes, report)


@guarded()
def prepare(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int, Start, list[str]]:
    """Check and say what was found; return an exit code, and what is to be started if it is 0."""
    parser = program.parser(__doc__)
    keeps = "whole checkpoints to keep; older ones go"
    parser.add_argument("--keep-last", type=program.at_least(1), required=True, help=keeps)
    parser.add_argument(
        "--s3-uri", help="where whole checkpoints are copied to, by checkpoint_sync"
    )
    guard.add_options(parser)
    place = argv.index("--") if "--" in argv else len(argv)
    options, words = parser.parse_args(argv[:place]), [*argv[place + 1 :]]
    if place == len(argv):
        parser.error("no `--` before Megatron's arguments - write: OPTIONS -- MEGATRON ARGUMENTS")
    report = Report()
    megatron = Path(environment.get("MEGATRON_LM", MEGATRON_LM)) / "pretrain_gpt.py"
    start = Start(options, words, environment, megatron)
    start.check(report)
    refused = bool(report.exit_code)
    if not refused:
        start.start_companions(report)
        if start.rank == 0 and start.save is not None:
            report.facts["keep_last"] = start.keep_last
            report.facts |= {"s3_uri": start.s3_uri} if start.s3_uri is not None else {}
    report.write_findings()
    if start.first_of_node:
        status = "refused" if refused else "starting"
        report.write_summary({"program": "train_megatron", "status": status, "rank": start.rank})
    return report.exit_code, start, words


def run_megatron(program: Path, words: Sequence[str]) -> int:
    """Run Megatron's program in this process; an error ends the process at once.

    With --exit-signal-handler its data loader workers ignore SIGTERM too
    (megatron/training/datasets/data_samplers.py, core 0.19). A process that ends by an exception
    sends them SIGTERM and waits for them: for ever, as other ranks' GPUs wait for it.
    """
    sys.argv = [str(program), *words]
    sys.path[0] = str(program.parent)
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
            return 1
        return end.code or 0
    except Exception as problem:  # noqa: BLE001 -- whatever Megatron ends with
        sys.excepthook(*sys.exc_info())
        places = traceback.extract_tb(problem.__traceback__)
        refused = any(each.filename.endswith(_ARGUMENTS) for each in places)
        if refused:
            # Some of its assertions say nothing but what they assert.
            said = str(problem).strip() or places[-1].line or type(problem).__name__
            remedy = "change extra_args, or the key that it speaks of"
            sys.stderr.write(f"{usage_error('Megatron', said, remedy)}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        for child in multiprocessing.active_children():
            child.kill()
        # Not sys.exit: queues of the killed processes would be waited for as well.
        os._exit(EXIT_USAGE if refused else 1)
    return 0


def main(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Check, say what was found, and train; return the exit code."""
    profiler.begin_under_nsys(environment)
    refused, start, words = prepare(argv, environment)
    if refused:
        return refused
    profiler.beside_megatron(environment)
    assert start.program is not None  # noqa: S101 -- prepare has named it
    code = run_megatron(start.program, words)
    sys.stdout.flush()
    if code == 0:
        start.beside.finish()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
