"""One rank of train_fsdp or train_ddp, from its command line to its exit code."""

import argparse
import faulthandler
import gc
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from megatron_eks.catalog.models import ModelShape
from megatron_eks.programs import program
from megatron_eks.programs.prepare.indexed_data import check_prefix
from megatron_eks.programs.printable import guarded
from megatron_eks.programs.program import (
    EXIT_CHECK_FAILED,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Finding,
    Report,
    error,
    usage_error,
)
from megatron_eks.programs.start import companions, guard, preconditions, profiler
from megatron_eks.programs.trainer.batches import Batches, is_indexed, open_samples
from megatron_eks.programs.trainer.checkpoint import Checkpointer, LostCheckpointsError
from megatron_eks.programs.trainer.config import Config, Training, read_config
from megatron_eks.programs.trainer.documents import JSONL
from megatron_eks.programs.trainer.loop import Loop, NotFiniteError
from megatron_eks.programs.trainer.metrics import Metrics
from megatron_eks.programs.trainer.model import Decoder
from megatron_eks.programs.trainer.parallel import Parallel, Weights, attention, compile_layers
from megatron_eks.programs.trainer.shape import matrix_parameters, read_model
from megatron_eks.programs.trainer.tracking import NAMES, Trackers, check_packages
from megatron_eks.programs.trainer.weights import check_pretrained, initialize, load_pretrained

Layout = Callable[[Decoder, torch.device, str, Weights], Parallel]
_DATA_SET = re.compile(r"[\w.-]+(/[\w.-]+)?")
_ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


@guarded()
def main(program: str, description: str | None, layout: Layout, argv: Sequence[str]) -> int:
    """Check, train and sum up; return the exit code."""
    # What a blocked rank shows of itself before the watcher ends it.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    profiler.begin_under_nsys(os.environ)
    options = _parser(description).parse_args(argv)
    if "RANK" not in os.environ:
        # One process, on a port of its own choice.
        os.environ.update(_ALONE, MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    report = Report()
    config = read_config(options.config, report.findings)
    if config is None:
        return guard.refuse(program, report)
    saves = config.checkpoint
    based = saves.pretrained is not None
    shape = read_model(config.model, base_weights=based, findings=report.findings)
    report.collect(guard.start(options, os.environ, config.timeout_minutes))
    if shape is None:
        return guard.refuse(program, report)
    report.collect(_check(config, shape, options.device))
    if os.environ["RANK"] == "0":
        report.collect(check_packages(options.track))
        report.collect(companions.check_copies(Path(saves.directory), saves.s3_uri))
    with torch.device("meta"):
        decoder = Decoder(shape, recompute=config.training.activation_checkpointing)
    if saves.pretrained is not None:
        report.collect(check_pretrained(decoder, shape, Path(saves.pretrained)))
    if report.exit_code:
        return guard.refuse(program, report)
    beside = companions.Beside()
    if os.environ["RANK"] == "0":
        wishes = Path(saves.directory), saves.s3_uri, saves.keep_last
        beside = companions.start(*wishes, "", report)
    if os.environ["LOCAL_RANK"] == "0":
        report.write_findings()
    code, summary = _Rank(program, config, shape, options).train(decoder, layout)
    # Groups that live on in the model's tensors go with Python itself otherwise: a thread of theirs
    # that then wants Python ends a rank that is done by SIGABRT, and its gang begins again.
    del decoder
    gc.collect()
    told = beside.finish() if code == 0 else {}
    if summary:
        sys.stdout.write(json.dumps({**summary, **told}) + "\n")
        sys.stdout.flush()
    return code


class _Rank:
    """One process among the others."""

    def __init__(
        self, program: str, config: Config, shape: ModelShape, options: argparse.Namespace
    ) -> None:
        self.program, self.config, self.shape, self.options = program, config, shape, options
        self.rank = int(os.environ["RANK"])
        self.ranks = int(os.environ["WORLD_SIZE"])
        local = int(os.environ["LOCAL_RANK"])
        on_gpu = options.device == "cuda"
        self.device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
        self._start_group(timedelta(minutes=config.timeout_minutes))

    def train(self, decoder: Decoder, layout: Layout) -> tuple[int, dict[str, object]]:
        """Train, and end together with the other ranks; return what the first one's line says."""
        try:
            with attention():
                status, summary = self._train(decoder, layout)
        except LostCheckpointsError as problem:
            if self.rank == 0:
                self._say_error(str(problem))
            dist.barrier()
            return EXIT_CHECK_FAILED, {}
        except (ValueError, OSError) as problem:
            # All ranks may see it or this one alone, so nobody is waited for.
            self._say_error(str(problem))
            return EXIT_CHECK_FAILED if isinstance(problem, ValueError) else EXIT_FAILED, {}
        dist.destroy_process_group()
        code = 0 if status == "finished" else EXIT_INTERRUPTED
        return code, {**summary, "status": status} if self.rank == 0 else {}

    def _train(self, decoder: Decoder, layout: Layout) -> tuple[str, dict[str, object]]:
        config, training, shape = self.config, self.config.training, self.shape
        compile_layers(decoder, self.options.compile, self.device.type)
        parallel = layout(decoder, self.device, training.sharding, self._first_weights)
        optimizer = make_optimizer(parallel.model, training, self.device)
        directory = Path(config.checkpoint.directory)
        keep_last = config.checkpoint.keep_last
        checkpointer = Checkpointer(directory, keep_last, parallel.model, optimizer)
        resumed = checkpointer.resume(guard.reading_deadline(config.timeout_minutes)) or {
            "step": 0,
            "consumed_samples": 0,
            "data": {},
        }
        samples = open_samples(config, shape.vocab_size)
        samples.restore(resumed["data"])
        start = int(resumed["step"])
        metrics = None
        if self.rank == 0:
            length = training.sequence_length
            metrics = Metrics(directory, shape, self.device, start=start, length=length)
            metrics.trackers = Trackers(self.options.track, os.environ.get("WANDB_NAME", ""))
        dropout = max(shape.attention_dropout, shape.hidden_dropout) > 0
        loop = Loop(config, parallel, optimizer, samples, self.device, has_dropout=dropout)
        loop.profiler = profiler.of_rank(os.environ)
        batches = Batches(
            samples,
            consumed=resumed["consumed_samples"],
            per_rank=training.train_batch_size,
            rank=self.rank,
            ranks=self.ranks,
            ahead=config.data.num_workers,
            vocabulary=shape.vocab_size,
        )
        try:
            status = loop.run(start, resumed["consumed_samples"], batches, checkpointer, metrics)
        except NotFiniteError:
            # What was saved before it is good, and all ranks are here.
            checkpointer.finish()
            raise
        finally:
            batches.close()
            if metrics is not None:
                metrics.close()
        # The job counts as done when rank 0 ends: nobody may still be writing.
        checkpointer.close()
        return status, {"program": self.program, "resumed_from": start, **loop.last}

    def _first_weights(self, model: torch.nn.Module) -> None:
        if self.config.checkpoint.pretrained is not None:
            load_pretrained(model, Path(self.config.checkpoint.pretrained))
        else:
            initialize(model, self.shape, self.config.training.seed)

    def _start_group(self, timeout: timedelta) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.set_float32_matmul_precision("high")
            dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timeout)
        else:
            # The ranks of a test share the machine.
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // self.ranks))
            dist.init_process_group("gloo", timeout=timeout)

    def _say_error(self, words: str) -> None:
        found, _, remedy = words.rpartition(" - ")
        said = (found, remedy) if found else (remedy, "read the lines above")
        report = Report([error(self.program, *said)])
        report.write_findings()
        if self.rank == 0:
            report.write_summary({"program": self.program, "status": "failed"})


def _check(config: Config, shape: ModelShape, device: str) -> Iterator[Finding]:
    """Check device, shape, data and directories, as this node sees them."""
    needed = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device != "cpu" and (there := torch.cuda.device_count()) < needed:
        found = f"{there} GPUs, and {needed} processes on this node"
        yield error("device", found, "start one process a GPU, or use --device cpu")
    length, most = config.training.sequence_length, shape.max_position_embeddings
    if length > most:
        found = f"{length}, and the model has {most} positions"
        yield usage_error("training.sequence_length", found, f"use at most {most}")
    dataset = config.data.dataset
    if is_indexed(dataset) or dataset.endswith((".bin", ".idx")):
        yield from check_prefix(dataset, [])
    elif dataset.endswith(JSONL):
        if not Path(dataset).is_file():
            yield error(dataset, "no such file", "correct data.dataset")
    elif not Path(dataset).is_dir() and not _DATA_SET.fullmatch(dataset):
        remedy = "name a .jsonl file, an indexed prefix, or a Hugging Face data set"
        yield error(dataset, "neither data here nor a name of Hugging Face's", remedy)
    yield from preconditions.check_environment(os.environ)
    # Once a node: ranks beside each other see the same.
    if os.environ.get("LOCAL_RANK", "0") == "0":
        directory = Path(config.checkpoint.directory)
        # fp32 weights of the layers' matrices, and both of Adam's moments.
        where = directory, None, config.checkpoint.format, 12 * matrix_parameters(shape)
        yield from preconditions.check_save(*where)
        if directory.is_dir():
            yield from preconditions.check_space(*where)


def _parser(description: str | None) -> argparse.ArgumentParser:
    parser = program.parser(description)
    parser.add_argument("--config", type=Path, required=True, help="YAML or JSON file")
    add = parser.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda", help="default %(default)s")
    add("--compile", choices=("auto", "on", "off"), default="auto", help="auto: layers on GPUs")
    add("--track", action="append", choices=NAMES, default=[], help="send figures there as well")
    guard.add_options(parser)
    return parser


def make_optimizer(model: nn.Module, training: Training, device: torch.device) -> torch.optim.AdamW:
    """Return AdamW; norms and biases do not decay, as in Megatron."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [entry for entry in parameters if entry.dim() > 1]},
        {"params": [entry for entry in parameters if entry.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=training.learning_rate,
        betas=(training.adam_beta1, training.adam_beta2),
        weight_decay=training.weight_decay,
        fused=device.type == "cuda",
    )
