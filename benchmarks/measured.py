"""Reads what others measured: runs with their model and layout, each row with its source."""

import csv
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.predict.layout import Batch, Layout, Recompute

DATA = Path(__file__).parent / "data"

Row = dict[str, str]


@dataclass(frozen=True)
class Measured:
    """One published run."""

    family: str
    part: str
    """`fit`: constants come from it; `kept`: its family is known; `unseen`: nothing of it is."""
    framework: str
    gpu: str
    gpus_per_node: int
    model: ModelShape
    layout: Layout
    batch: Batch
    value: float
    """Peak bytes of a GPU, or tokens a second of a GPU."""
    source: str


def memory() -> list[Measured]:
    """Return peaks of PyTorch's allocator; Megatron's are of the last pipeline stage's rank."""
    return _read("memory.csv")


def throughput() -> list[Measured]:
    """Return tokens a second of each GPU."""
    return _read("throughput.csv")


_FITTED = {"megatron": ("gpt", "llama-2", "llama-3", "mixtral", "qwen3"), "fsdp": ("mpt",)}
_LOOKED_AT = {"megatron": (), "fsdp": ("llama-3",)}


def parts(framework: str, lineages: set[str]) -> dict[str, str]:
    """Return what the rows of each family are for: fit, choose or report (data/README.md)."""
    known = dict.fromkeys(_FITTED[framework], "fit")
    known |= dict.fromkeys(_LOOKED_AT[framework], "choose")
    new = sorted(
        lineages - set(known), key=lambda name: sha256(f"{framework} {name}".encode()).hexdigest()
    )
    turns = ("choose", "report", "report") if len(new) > 1 else ("report",)
    return known | {name: turns[index % 3] for index, name in enumerate(new)}


def _read(name: str) -> list[Measured]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return [_measured(row) for row in csv.DictReader(file)]


def _measured(row: Row) -> Measured:
    layout = Layout(
        tensor=int(row["tensor"]),
        pipeline=int(row["pipeline"]),
        context=int(row["context"]),
        data=int(row["data"]),
        virtual_pipeline=int(row["virtual_pipeline"]),
        sequence_parallel=row["tensor"] != "1",
        expert=int(row["expert"]),
        expert_tensor=int(row["expert_tensor"]),
    )
    micro = int(row["micro_batch_size"])
    batch = Batch(
        micro_batch_size=micro,
        sequence_length=int(row["sequence_length"]),
        microbatches=max(1, int(row["global_batch_size"]) // (micro * layout.data)),
        recompute=_recompute(row["recompute"]),
        fp8=row["precision"] == "fp8",
        graphs=row["graphs"] == "1",
    )
    return Measured(
        family=row["family"],
        part=row["set"],
        framework=row["framework"],
        gpu=row["gpu"],
        gpus_per_node=int(row["gpus_per_node"]),
        model=_model(row),
        layout=layout,
        batch=batch,
        value=float(row["measured"]),
        source=row["source"],
    )


def _recompute(text: str) -> Recompute:
    match text:
        case "none" | "selective" | "full":
            return text
    raise ValueError(text)


def _model(row: Row) -> ModelShape:
    if row["preset"]:
        return PRESETS[row["preset"]]
    return ModelShape(
        num_layers=int(row["num_layers"]),
        hidden_size=int(row["hidden_size"]),
        ffn_hidden_size=int(row["ffn_hidden_size"]),
        num_attention_heads=int(row["num_attention_heads"]),
        num_query_groups=int(row["num_query_groups"]),
        kv_channels=int(row["kv_channels"]),
        vocab_size=int(row["vocab_size"]),
        max_position_embeddings=int(row["sequence_length"]),
        normalization="RMSNorm" if row["swiglu"] == "1" else "LayerNorm",
        swiglu=row["swiglu"] == "1",
        add_bias_linear=row["add_bias_linear"] == "1",
        untie_embeddings_and_output_weights=row["tied"] != "1",
        num_experts=int(row["num_experts"]) if row["num_experts"] else None,
        moe_router_topk=int(row["moe_router_topk"]) if row["moe_router_topk"] else None,
    )
