"""Data sets, checkpoints and a Megatron-LM of a few lines, written as the real ones are."""

import json
import struct
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.programs import saved

ROOT = Path(__file__).parents[2]
TRACKER = "latest_checkpointed_iteration.txt"

# Says what it was given, and does as its first arguments tell.
STAND_IN = """
import json, os, signal, sys, time
words = sys.argv[1:]
print(json.dumps({"words": words, "pid": os.getpid(), "cwd": os.getcwd()}), flush=True)
print("iteration 10/ 20 | lm loss: 5.8", file=sys.stderr, flush=True)
if "--wait-for-signal" in words:
    received = []
    signal.signal(signal.SIGTERM, lambda *_: received.append(True))
    print("ready", flush=True)
    while not received:
        time.sleep(0.05)
    time.sleep(0.3)
    print("saved after SIGTERM", flush=True)
if "--until-gone" in words:
    for _ in range(600):
        if os.path.exists(words[words.index("--until-gone") + 1]):
            time.sleep(0.05)
if "--print-lines" in words:
    for number in range(int(words[words.index("--print-lines") + 1])):
        print(f"line {number} " + "x" * 1000)
if "--fail-with-worker" in words:
    import multiprocessing
    def work(ready):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ready.set()
        time.sleep(600)
    ready = multiprocessing.Event()
    multiprocessing.Process(target=work, args=(ready,), daemon=True).start()
    ready.wait()
    raise RuntimeError("a collective failed")
sys.exit(int(words[words.index("--end-with") + 1]) if "--end-with" in words else 0)
"""


def write_data_set(prefix: Path, sequences: Sequence[Sequence[int]] = ((1, 2, 3), (4, 5))) -> Path:
    """Write a text data set of 4-byte tokens, one document a sequence."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    tokens = [token for sequence in sequences for token in sequence]
    Path(f"{prefix}.bin").write_bytes(struct.pack(f"<{len(tokens)}i", *tokens))
    lengths = [len(sequence) for sequence in sequences]
    pointers = [4 * sum(lengths[:place]) for place in range(len(lengths))]
    count = len(lengths)
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, count, count + 1)
    index += struct.pack(f"<{count}i", *lengths) + struct.pack(f"<{count}q", *pointers)
    index += struct.pack(f"<{count + 1}q", *range(count + 1))
    Path(f"{prefix}.idx").write_bytes(index)
    return prefix


def write_checkpoint(root: Path, name: int | str, *, whole: bool = True) -> Path:
    """Write a torch_dist checkpoint; one that is not whole lacks its last file."""
    directory = root / (f"iter_{name:07d}" if isinstance(name, int) else name)
    directory.mkdir(parents=True)
    (directory / "__0_0.distcp").write_bytes(saved.torch_file(b"x" * 100))
    saved.dot_metadata(directory)
    iteration = name if isinstance(name, int) else 0
    (directory / "common.pt").write_bytes(saved.torch_file(b"", iteration=iteration))
    if whole:
        content = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
        (directory / "metadata.json").write_text(json.dumps(content))
    return directory


def write_rank(
    directory: Path,
    rank: str,
    *,
    torn: bool = False,
    step: int | None = None,
    sizes: Mapping[str, int] = {},
) -> None:
    """Write one rank's file of a checkpoint in the `torch` format; `sizes` are Megatron's words."""
    path = directory / rank / "model_optim_rng.pt"
    path.parent.mkdir(parents=True)
    content = saved.torch_file(rank.encode() * 20, iteration=step, args=Namespace(**sizes))
    path.write_bytes(content)
    if torn:
        path.write_bytes(path.read_bytes()[:-40])


class Job:
    """A job's directories under one root, and the program started on them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs = root / "logs" / "job"
        self.save = root / "checkpoints"
        self.megatron = root / "megatron-lm"
        self.megatron.mkdir()
        (self.megatron / "pretrain_gpt.py").write_text(STAND_IN)
        self.data = write_data_set(root / "data" / "corpus_text_document")
        self.tokenizer = root / "tokenizer"
        self.tokenizer.mkdir()
        (self.tokenizer / "tokenizer.json").write_text("{}")

    def words(self, *more: str) -> list[str]:
        """Return Megatron's arguments; later ones replace earlier ones."""
        return [
            *("--data-path", str(self.data)),
            *("--tokenizer-type", "HuggingFaceTokenizer"),
            *("--tokenizer-model", str(self.tokenizer)),
            *("--save", str(self.save), "--load", str(self.save)),
            *("--ckpt-format", "torch_dist"),
            *("--tensorboard-dir", str(self.logs / "tensorboard")),
            *more,
        ]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of one rank, and nothing of this machine."""
        return {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
            "MEGATRON_LM": str(self.megatron),
            **more,
        }

    def popen(
        self, *more: str, own: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start the program as torchrun does, in a session of its own."""
        return subprocess.Popen(  # noqa: S603 -- the program under test
            [
                *(sys.executable, "-m", "megatron_eks.programs.train_megatron"),
                *("--keep-last", "2", *own),
                *("--", *self.words(*more)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(environment or self.environment()),
            start_new_session=True,
        )

    def run(
        self, *more: str, own: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run the program to its end."""
        process = self.popen(*more, own=own, environment=environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def summary(out: str) -> dict[str, object]:
    """Return the JSON line of the program itself, which is the last before Megatron's first."""
    lines = [json.loads(line) for line in out.splitlines() if line.startswith('{"program"')]
    assert len(lines) == 1
    return dict(lines[0])


def errors(err: str) -> list[str]:
    """Return the error lines, none of which may be part of a traceback."""
    assert "Traceback" not in err
    return [line for line in err.splitlines() if line.startswith("error ")]


def megatrons_line(out: str) -> dict[str, object]:
    """Return what the stand-in said of itself."""
    (line,) = [line for line in out.splitlines() if line.startswith('{"words"')]
    return dict(json.loads(line))
