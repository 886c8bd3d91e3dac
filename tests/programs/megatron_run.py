"""A tiny Llama that megatron-core itself trains on CPUs, started as a pod starts it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from megatron_eks.config.job import MegatronJob
from megatron_eks.plan.jobs.arguments import megatron_arguments
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.training import job_layout
from megatron_eks.project import ROOT
from tests.programs import prepare_files, trainer_files

MEGATRON_LM = ROOT / "megatron_eks" / "demo" / "megatron"
PROGRAM = ROOT / "assets" / "programs" / "train_megatron.py"
TRACKER = "latest_checkpointed_iteration.txt"
ITERATIONS, INTERVAL = 24, 8

_PATIENCE = 600
# Each process of a run has it, whoever started it.
_MARK = "TEST_RUN_ROOT"
# Other ranks may write into the same line, so nothing is anchored.
_LOSS = re.compile(r"iteration +(\d+)/ +\d+ \|[^\n]*?lm loss: ([-+.\dEeanif]+)")
_MODEL = {
    "num_layers": 2,
    "hidden_size": 64,
    "ffn_hidden_size": 128,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 16,
    # As many as the tokenizer has; padded to 1024 with tensor parallel size 1 and 2.
    "vocab_size": 1000,
    "max_position_embeddings": 64,
    "normalization": "RMSNorm",
    "norm_epsilon": 1e-5,
    "swiglu": True,
    "add_bias_linear": False,
    "untie_embeddings_and_output_weights": True,
    "position_embedding_type": "rope",
    "rotary_base": 10000,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "init_method_std": 0.02,
}
_TRAINING = {
    "global_batch_size": 8,
    "micro_batch_size": 2,
    "sequence_length": 64,
    "train_iters": ITERATIONS,
    "learning_rate": 3e-3,
    "min_learning_rate": 3e-4,
    "warmup_iters": 2,
    "eval_interval": 100,
    "eval_iters": 1,
    "log_interval": 1,
}


class MegatronRun:
    """A job's files under one root, and the program started on them."""

    def __init__(self, root: Path, data: Path, tokenizer: Path) -> None:
        self.root, self.data, self.tokenizer = root, data, tokenizer
        self.save = root / "checkpoints"
        self.pretrained: Path | None = None
        self.parallelism: dict[str, object] = {"tensor": 2}
        self.precision = "bf16"
        self.training: dict[str, object] = {}
        self.extra: tuple[str, ...] = ("--dist-ckpt-optim-fully-reshardable",)
        self.said = ""
        """What its last run printed."""
        self.left_out: frozenset[str] = frozenset({"--bf16"})
        """Without bf16 it computes in fp32, which alone can be compared closely."""

    def another(
        self, name: str, *, resuming: str | None = None, **parallelism: int
    ) -> "MegatronRun":
        """Return a run on the same data under another root, with a checkpoint or none."""
        other = MegatronRun(self.root.with_name(name), self.data, self.tokenizer)
        other.parallelism = dict(parallelism) or self.parallelism
        if resuming is not None:
            shutil.copytree(self.save / resuming, other.save / resuming)
            (other.save / TRACKER).write_text(str(int(resuming.removeprefix("iter_"))))
        return other

    @property
    def words(self) -> list[str]:
        """Megatron's arguments, as the plan makes them from a job file of these settings."""
        job = MegatronJob.model_validate(
            {
                "schema_version": 1,
                "kind": "megatron",
                "name": "tiny",
                "pool": "p4d",
                "nodes": 1,
                "model": _MODEL,
                "parallelism": self.parallelism,
                "training": {**_TRAINING, "precision": self.precision, **self.training},
                "data": {
                    "prefix": str(self.data),
                    "tokenizer": str(self.tokenizer),
                    "cache_dir": str(self.root / "cache"),
                    "num_workers": 1,
                },
                "checkpoint": {
                    "directory": str(self.save),
                    "interval": INTERVAL,
                    **({"pretrained": str(self.pretrained)} if self.pretrained else {}),
                },
                "extra_args": self.extra,
            }
        )
        words = megatron_arguments(
            job, model_shape(job.model), job_layout(job, 8), str(self.root / "logs")
        )
        return [word for word in words if word not in self.left_out]

    def command(self, ranks: int) -> list[str]:
        """Return the command line of torchrun."""
        return [
            *(str(prepare_files.PYTHON), "-m", "torch.distributed.run"),
            *("--standalone", f"--nproc-per-node={ranks}", "--monitor-interval=0.1"),
            *(str(PROGRAM), "--keep-last=9"),
            *("--", *self.words),
        ]

    def start(self, ranks: int) -> "subprocess.Popen[str]":
        """Start it in a session of its own."""
        return subprocess.Popen(  # noqa: S603 -- the program under test
            self.command(ranks),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment(),
            start_new_session=True,
            # Who waits for something else than its end does not read what it prints meanwhile.
            pipesize=2**20,
        )

    def alone(self, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run it without torchrun, as one rank whose exit code is seen."""
        torchrun = self.command(1)
        return subprocess.run(  # noqa: S603 -- the program under test
            [torchrun[0], *torchrun[torchrun.index(str(PROGRAM)) :]],
            env={**self._environment(), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )

    def run(self, ranks: int) -> dict[int, float]:
        """Run it to its end, which has to be good, and return the losses by iteration."""
        process = self.start(ranks)
        self.said, _ = process.communicate(timeout=_PATIENCE)
        assert process.returncode == 0, self.said[-8000:]
        return losses(self.said)

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """End torchrun, its ranks and what they started, all at once."""
        mark = f"{_MARK}={self.root}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
        process.communicate()

    def _environment(self) -> dict[str, str]:
        own = {"MEGATRON_LM": str(MEGATRON_LM), _MARK: str(self.root)}
        return {**trainer_files.environment(), **own}

    def saved(self) -> list[str]:
        """Return the checkpoints, oldest first."""
        return sorted(path.name for path in self.save.glob("iter_*"))


def losses(out: str) -> dict[int, float]:
    """Return the loss of each iteration, as the lines of one start's log have it."""
    (found,) = starts(out)
    return found


def printed(out: str) -> list[tuple[int, float]]:
    """Return iteration and loss of each line of a log that tells them."""
    return [(int(iteration), float(loss)) for iteration, loss in _LOSS.findall(out)]


def starts(out: str) -> list[dict[int, float]]:
    """Return the losses of each start that wrote into a log."""
    found: list[dict[int, float]] = []
    last = 0
    for iteration, loss in printed(out):
        if not found or iteration <= last:
            found.append({})
        last = iteration
        found[-1][last] = loss
    return found


def from_iteration(losses: dict[int, float], iteration: int) -> dict[int, float]:
    """Return what a run that starts after an iteration has to print, from one that went through.

    Megatron does not reset its sum after the first iteration of a start, so the second line has
    the mean of both (training_log in megatron/training/training.py).
    """
    found = {number: loss for number, loss in losses.items() if number > iteration}
    first, second = list(found)[:2]
    found[second] = (found[first] + found[second]) / 2
    return found


def prepare(root: Path, tokenizer: Path) -> Path:
    """Let prepare_data make a data set of this repository's documents; return its prefix."""
    corpus = trainer_files.write_jsonl(root / "documents.jsonl", trainer_files.texts())
    words: Sequence[object] = (
        *("--input", corpus, "--output-prefix", root / "documents"),
        *("--tokenizer", tokenizer, "--append-eod"),
    )
    done = subprocess.run(  # noqa: S603 -- the program under test
        [prepare_files.PYTHON, prepare_files.PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return root / "documents_text_document"
