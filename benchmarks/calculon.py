"""What calculon predicts for the same runs; `python -m benchmarks.calculon FOLDER` asks it again.

calculon (Isaev et al. 2023, doi 10.1145/3581784.3607102; github.com/calculon-ai/calculon, on no
package index) knows GPT alone: multi-head attention, GELU, tensor, pipeline and data parallelism,
A100 and H100. FOLDER is a checkout at COMMIT, and Python needs what that imports (numpy, pandas,
psutil); what it said stands in data/calculon.csv, since the project neither holds nor installs it.
It is asked with its own system files, fused activations, a sharded optimizer, and gradients reduced
beside the backward pass; tensor parallelism splits the sequence too.
"""

import csv
import importlib
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import measured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.measured import Measured

COMMIT = "caa4b11f8fe1fee3ba57adaacb7590d7deabd053"
_SYSTEMS = {"a100": "a100_80g", "h100": "h100_80g_nvl8"}
_SAID = measured.DATA / "calculon.csv"
_COLUMNS = ("family", "number", "tokens_per_second_per_gpu", "error")


def expressible(row: "Measured") -> bool:
    """Tell whether calculon has a word for everything in a run."""
    model = row.model
    own = row.framework == "megatron" and row.gpu in _SYSTEMS and row.layout.context == 1
    plain = not model.swiglu and model.num_query_groups == model.num_attention_heads
    return own and plain and model.num_experts is None


def said() -> "Callable[[Measured], float]":
    """Return a predictor that answers with what calculon said."""
    with _SAID.open(encoding="utf-8", newline="") as file:
        answers = {(each["family"], each["number"]): each for each in csv.DictReader(file)}
    known = {row: answers.get(key) for key, row in _numbered()}

    def predict(row: "Measured") -> float:
        answer = known[row]
        return float(answer["tokens_per_second_per_gpu"] or 0) if answer else 0.0

    return predict


def answered() -> "list[Measured]":
    """Return the rows that calculon has an answer for."""
    predict = said()
    return [row for _, row in _numbered() if predict(row)]


def _numbered() -> "list[tuple[tuple[str, str], Measured]]":
    counts: dict[str, int] = {}
    found = []
    for row in measured.throughput():
        counts[row.family] = counts.get(row.family, 0) + 1
        if expressible(row):
            found.append(((row.family, str(counts[row.family])), row))
    return found


def _ask(folder: Path, row: "Measured") -> tuple[str, str]:
    """Return tokens a second of a GPU, or why there is no answer."""
    llm, system = (importlib.import_module(name) for name in ("calculon.llm", "calculon.system"))
    hardware = json.loads((folder / "systems" / f"{_SYSTEMS[row.gpu]}.json").read_text())
    model = llm.Llm(llm.Llm.Application(_application(row)), logging.getLogger("calculon"))
    described = system.System(hardware)
    try:
        model.compile(described, llm.Llm.Execution.from_json(_execution(row)))
        model.run(described)
    except llm.Llm.Error as error:
        return "", str(error)
    rate = model.get_sample_rate() * row.batch.sequence_length / row.layout.gpus
    return f"{rate:.1f}", ""


def _application(row: "Measured") -> dict[str, int]:
    model = row.model
    return {
        "hidden": model.hidden_size,
        "feedforward": model.ffn_hidden_size,
        "seq_size": row.batch.sequence_length,
        "attn_heads": model.num_attention_heads,
        "attn_size": model.kv_channels,
        "num_blocks": model.num_layers,
    }


def _execution(row: "Measured") -> dict[str, Any]:
    layout, batch = row.layout, row.batch
    recompute = {"none": "none", "selective": "attn_only", "full": "full"}[batch.recompute]
    split, replicated = layout.tensor > 1, layout.data > 1
    return {
        "num_procs": layout.gpus,
        "tensor_par": layout.tensor,
        "pipeline_par": layout.pipeline,
        "data_par": layout.data,
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": batch.microbatches * batch.micro_batch_size * layout.data,
        "microbatch_size": batch.micro_batch_size,
        "datatype": "float8" if batch.quantized else "float16",
        "fused_activation": True,
        "attention_type": "multihead",
        "activation_recompute": recompute,
        "pipeline_interleaving": layout.virtual_pipeline,
        "optimizer_sharding": replicated,
        "tensor_par_comm_type": "rs_ag" if split else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": split and recompute != "full",
        "data_par_overlap": replicated,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }


def main(words: "Sequence[str]") -> int:
    """Ask calculon in a checkout for every run that it can express, and keep its answers."""
    folder = Path(words[0]) if words else Path()
    head = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    done = subprocess.run(head, capture_output=True, text=True, check=False)  # noqa: S603 -- fixed words and a folder
    if not (folder / "calculon").is_dir() or done.stdout.strip() != COMMIT:
        sys.stderr.write(f"name a checkout of calculon-ai/calculon at {COMMIT}\n")
        return 2
    sys.path.insert(0, str(folder))
    answers = [(*key, *_ask(folder, row)) for key, row in _numbered()]
    with _SAID.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([_COLUMNS, *answers])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
