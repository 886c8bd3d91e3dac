"""Small runs of the trainers: texts of this repository, a tokenizer of bytes, a tiny Llama."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from megatron_eks.project import ROOT

END = 256
"""End of document in the tokenizer below; its vocabulary is this and the 256 bytes."""

_PATIENCE = 600

TINY = {
    "num_layers": 2,
    "hidden_size": 64,
    "ffn_hidden_size": 128,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 16,
    "vocab_size": 260,
    "max_position_embeddings": 128,
}


def byte_names() -> dict[str, int]:
    """Return GPT-2's printable stand-ins for the 256 bytes, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {chr(byte if byte in printable else next(others)): byte for byte in range(256)}


def write_tokenizer(directory: Path) -> Path:
    """Write a byte-level BPE without merges, as the `tokenizers` library reads it."""
    directory.mkdir(parents=True, exist_ok=True)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    end = {"id": END, "content": "</s>", "special": True, "normalized": False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    content = {
        "version": "1.0",
        "added_tokens": [end | flags],
        "pre_tokenizer": byte_level | {"trim_offsets": False},
        "decoder": byte_level | {"trim_offsets": False},
        "model": {"type": "BPE", "vocab": byte_names() | {"</s>": END}, "merges": []},
    }
    (directory / "tokenizer.json").write_text(json.dumps(content))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    return directory


def texts() -> list[str]:
    """Return paragraphs of this repository's documents."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    paragraphs = [part for page in pages for part in page.read_text().split("\n\n")]
    return [paragraph for paragraph in paragraphs if len(paragraph) > 80]


def write_jsonl(path: Path, documents: list[str]) -> Path:
    """Write one document a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


class Run:
    """A trainer's files under one root, and the program started on them."""

    def __init__(self, root: Path, python: Path, program: str = "train_fsdp") -> None:
        self.root, self.python = root, python
        self.program: tuple[str, ...] = ("-m", f"megatron_eks.programs.{program}")
        self.checkpoints = root / "checkpoints"
        self.config: dict[str, Any] = {
            "model": dict(TINY),
            "training": {
                "max_steps": 12,
                "train_batch_size": 2,
                "sequence_length": 64,
                "learning_rate": 0.01,
                "min_learning_rate": 0.001,
                "warmup_iters": 2,
                "validation_interval": 6,
            },
            "data": {
                "dataset": str(write_jsonl(root / "corpus.jsonl", texts())),
                "tokenizer": str(write_tokenizer(root / "tokenizer")),
            },
            "checkpoint": {"directory": str(self.checkpoints), "interval": 4, "keep_last": 2},
        }

    def copy(self, name: str) -> "Run":
        """Return the same run with another checkpoint directory and changes of its own."""
        other = Run.__new__(Run)
        other.root, other.python, other.program = self.root, self.python, self.program
        other.checkpoints = self.root / name
        other.config = json.loads(json.dumps(self.config))
        other.config["checkpoint"]["directory"] = str(other.checkpoints)
        return other

    def resumed(self, name: str, *, without: str) -> "Run":
        """Return a copy with the checkpoints of this run, of which one is missing."""
        other = self.copy(name)
        shutil.copytree(self.checkpoints, other.checkpoints)
        shutil.rmtree(other.checkpoints / without)
        return other

    def command(self, ranks: int, *more: str) -> list[str]:
        """Return the command line of torchrun."""
        file = self.root / f"{self.checkpoints.name}.json"
        file.write_text(json.dumps(self.config))
        return [
            *(str(self.python), "-m", "torch.distributed.run"),
            *("--standalone", f"--nproc-per-node={ranks}", "--monitor-interval=0.1"),
            *self.program,
            *("--config", str(file), "--device", "cpu", *more),
        ]

    def alone(self, *more: str) -> "subprocess.CompletedProcess[str]":
        """Run it without torchrun, as one rank whose exit code is seen."""
        torchrun = self.command(1, *more)
        program = torchrun.index(self.program[0], 2)
        return subprocess.run(  # noqa: S603 -- the program under test
            [torchrun[0], *torchrun[program:]],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )

    def start(self, ranks: int, prefix: Sequence[str] = ()) -> "subprocess.Popen[str]":
        """Start it in a session of its own."""
        return subprocess.Popen(  # noqa: S603 -- the program under test
            [*prefix, *self.command(ranks)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            start_new_session=True,
        )

    def run(self, ranks: int, prefix: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
        """Run it to its end."""
        process = self.start(ranks, prefix)
        out, err = process.communicate(timeout=_PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def kill(self, process: "subprocess.Popen[str]", rank: int | None = None) -> None:
        """End one rank, or torchrun and its ranks at once; each leads a session of its own."""
        if not self._end(rank):
            # It has not started yet, so nothing but torchrun is there to be killed.
            self._end(None)
        process.communicate(timeout=_PATIENCE)

    def _end(self, rank: int | None) -> bool:
        """Send SIGKILL to one rank or to every process of the run; say whether there was one."""
        file = str(self.root / f"{self.checkpoints.name}.json").encode()
        found = False
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if file in words and (rank is None or f"RANK={rank}".encode() in variables):
                os.kill(int(entry.name), signal.SIGKILL)
                found = True
        return found

    def metrics(self) -> list[dict[str, Any]]:
        """Return the steps of metrics.jsonl."""
        lines = (self.checkpoints / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def losses(self) -> list[float]:
        """Return the loss of each step, which are all steps from the first, each once."""
        steps = self.metrics()
        assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
        return [step["loss"] for step in steps]

    def saved(self) -> list[str]:
        """Return the checkpoints, oldest first."""
        return sorted(path.name for path in self.checkpoints.glob("iter_*"))


def environment() -> dict[str, str]:
    """Return this process's, but let Python keep what it compiles: torch takes seconds."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OMP_NUM_THREADS": "1"}


def summary(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """Return the JSON line that ends a program's stdout."""
    return dict(json.loads(done.stdout.splitlines()[-1]))


def python_says(python: Path, code: str, *arguments: object) -> Any:
    """Run code beside the programs, in their own environment; return the JSON it prints."""
    done = subprocess.run(  # noqa: S603 -- code of a test
        [str(python), "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
