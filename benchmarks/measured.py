"""Reads what others measured: runs with their model and layout, each row with its source."""

import csv
from dataclasses import dataclass, fields, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.predict.layout import Batch, Graphs, Layout, Precision, Recompute
from megatron_eks.predict.replicas import Loss
from megatron_eks.predict.settings import MIXED, States, pipeline_stages

DATA = Path(__file__).parent / "data"

Row = dict[str, str]


@dataclass(frozen=True)
class Measured:
    """One published run."""

    family: str
    part: str
    """`fit`: constants come from it; `choose`: the form of the model; `hybrids`: both, since they
    were predicted; `studied`: the form, since then; the others: neither."""
    framework: str
    gpu: str
    model: ModelShape
    layout: Layout
    batch: Batch
    value: float
    """Peak bytes of a GPU, or tokens a second of a GPU."""
    source: str
    states: States = MIXED
    loss: Loss = "whole"


@cache
def memory() -> list[Measured]:
    """Return peaks of PyTorch's allocator; Megatron's old rows are of the last stage's rank."""
    rows = _read("memory.csv") + _published("memory_gib", 1024**3)
    named = dict.fromkeys(_STUDIED, "studied") | {"blind 7": "blind"}
    return [replace(row, part=named.get(row.part, row.part)) for row in rows]


@cache
def throughput() -> list[Measured]:
    """Return tokens a second of each GPU."""
    rows = [row for row in _read("throughput.csv") if "Megatron-Bridge" not in row.source]
    return rows + _published("tokens_per_second_per_gpu", 1)


_FITTED = {"megatron": ("gpt", "llama-2", "llama-3", "mixtral", "qwen3"), "fsdp": ("mpt",)}
_LOOKED_AT = {"megatron": (), "fsdp": ("llama-3",)}
# Those that the rule sorted on its day, whatever has been left out since.
_NEW = {"megatron": {"deepseek", "gpt-oss", "grok", "llama-4", "nemotron-4"}, "fsdp": {"qwen3"}}


# Rows that were found later, by their round. Of the third, hybrids, constants come since it was
# predicted, and the peaks of the second and the fifth have been studied: they are blind no longer.
_STUDIED = {"blind 2", "blind 5"}
_ROUNDS = {
    "": "blind",
    " 2": "blind 2",
    " 3": "hybrids",
    " 4": "blind 4",
    " 5": "blind 5",
    " 6": "blind",
    " 7": "blind 7",
}


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


def _published(column: str, unit: float) -> list[Measured]:
    with (DATA / "models.csv").open(encoding="utf-8", newline="") as file:
        models = {row["name"]: row for row in csv.DictReader(file)}
    with (DATA / "published.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if not row["left_out"]]
    split = {framework: parts(framework, new) for framework, new in _NEW.items()}
    return [
        _of_published(row, models[row["model"]], float(row[column]) * unit, split[row["framework"]])
        for row in rows
        if row[column]
    ]


def _number(row: Row, name: str) -> int:
    return int(row[name] or 1)


# Recipes for NVL72 start kernels as CUDA graphs since the first release; others did not at first.
_GRAPHS: dict[str, Graphs] = {"none": "none", "full": "full"}


def _of_published(row: Row, named: Row, value: float, split: dict[str, str]) -> Measured:
    model = _published_model(named)
    tensor, pipeline, context = (_number(row, name) for name in ("tensor", "pipeline", "context"))
    ours = row["framework"] == "megatron"
    layout = Layout(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=int(row["gpus"]) // (tensor * pipeline * context),
        virtual_pipeline=_number(row, "virtual_pipeline"),
        sequence_parallel=tensor > 1 and row["sequence_parallel"] != "0",
        expert=_number(row, "expert"),
        expert_tensor=int(row["expert_tensor"] or tensor),
        fsdp="megatron" if row["fsdp"] else None,
        stages=pipeline_stages(["--pipeline-model-parallel-layout", row["stages"]]),
    )
    micro = int(row["micro_batch_size"])
    recipe = "NeMo" in row["software"] or "Bridge" in row["software"]
    graphs: Graphs = "partial" if row["gpu"].startswith("gb") else "none"
    if row["graphs"]:
        graphs = _GRAPHS.get(row["graphs"], "partial")
    modules = frozenset(row["recompute_modules"].split("+")) - {""}
    plain = frozenset(row["plain"].split("+")) - {""}
    batch = Batch(
        micro_batch_size=micro,
        sequence_length=int(row["sequence_length"]),
        microbatches=max(1, int(row["global_batch_size"]) // (micro * layout.data)),
        # Selective is what torchtitan's configurations have, and nothing is Megatron's.
        recompute=_recompute(row["recompute"] or ("selective" if modules or not ours else "none")),
        recompute_method="block" if row["recompute_layers"] else None,
        recompute_layers=_number(row, "recompute_layers"),
        precision=_precision(row["precision"]),
        graphs=graphs,
        modules=modules,
        offloaded=int(row["offloaded_layers"] or 0) / model.num_layers,
        fp8_weights=(recipe or "FP8 weights" in row["software"])
        and row["precision"] in {"fp8", "mxfp8"},
        # Blackwell's are B200, GB200 and so on.
        transposed="b" not in row["gpu"] and "no transposes" not in row["software"],
        plain_layers=sum(int(word) for word in plain if word.isdecimal()),
        plain_parts=frozenset(word for word in plain if not word.isdecimal()),
        dispatcher=row["dispatcher"] or "alltoall",
        expert_overlap=row["expert_overlap"] == "1",
        capacity=float(row["capacity_factor"]) if row["capacity_factor"] else None,
        lora=int(row["lora_rank"] or 0),
        lora_targets="attention" if row["lora_targets"] == "attention" else "all",
        software="2024" if "NeMo 24.03" in row["software"] else "2026",
    )
    lineage = named["lineage"]
    return Measured(
        family=f"{'' if ours else 'fsdp '}{lineage} {row['gpu']} {row['precision']}",
        part=_ROUNDS[row["added"][10:]] if row["added"] else split[lineage],
        framework=row["framework"],
        gpu=f"{row['gpu']}-efa" if "awslabs" in row["source"] else row["gpu"],
        model=model,
        layout=layout,
        batch=batch,
        value=value,
        source=f"{row['source']} {row['software']}",
        # NVIDIA's recipes reduce gradients in bf16, and gather FP8 weights as they are.
        states=States(
            2 if recipe or "bf16 gradients" in row["software"] else 4,
            int(row["optimizer_bytes"] or MIXED.optimizer),
        ),
        loss=_loss(row),
    )


def _loss(row: Row) -> Loss:
    """Return torchtitan's loss, compiled with the model since 2025-04-02 (pull request 1033)."""
    if "chunked loss" in row["software"]:
        return "pieces"
    whole = row["date"] < "2025-04-02" or "eager" in row["software"]
    return "whole" if whole else "compiled"


def _published_model(row: Row) -> ModelShape:
    if row["preset"]:
        layers = int(row["num_layers"] or PRESETS[row["preset"]].num_layers)
        return replace(PRESETS[row["preset"]], num_layers=layers)
    words = {"swiglu", "add_bias_linear", "hybrid_layer_pattern"}
    names = {field.name for field in fields(ModelShape)} - words
    sizes: dict[str, Any] = {name: int(row[name]) for name in names & row.keys() if row[name]}
    layers, dense = sizes["num_layers"], int(row["dense_layers"] or 0)
    often = tuple(int(layer >= dense) for layer in range(layers))
    pattern = row["hybrid_layer_pattern"] or None
    return ModelShape(
        **sizes,
        max_position_embeddings=131072,
        swiglu=row["swiglu"] == "1",
        normalization="RMSNorm" if row["swiglu"] == "1" or pattern else "LayerNorm",
        hybrid_layer_pattern=pattern,
        add_bias_linear=row["add_bias_linear"] == "1",
        untie_embeddings_and_output_weights=row["tied"] != "1",
        multi_latent_attention=bool(row["kv_lora_rank"]),
        moe_layer_freq=often if dense else int(row["experts_every"] or 1),
        window_attn_skip_freq=int(row["window_every"]) if row["window_every"] else None,
    )


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
        precision=_precision(row["precision"]),
    )
    torchtitan = row["family"].startswith("torchtitan")
    # The benchmarks of torchtitan ran on H100 of 500 W, those of AWS did not.
    limited = row["source"].startswith("pytorch/torchtitan") and row["gpu"] == "h100"
    gpu = "h100-500w" if limited else row["gpu"]
    return Measured(
        family=f"fsdp llama-3 {gpu} {row['precision']}" if torchtitan else row["family"],
        part="choose" if torchtitan else "fit",
        framework=row["framework"],
        gpu=gpu,
        model=_model(row),
        layout=layout,
        batch=batch,
        value=float(row["measured"]),
        source=row["source"],
        states=States(gradient=2) if row["family"].startswith("nemo") else MIXED,
        loss="whole" if torchtitan and "h200_2025" not in row["source"] else "compiled",
    )


def _recompute(text: str) -> Recompute:
    match text:
        case "none" | "selective" | "full":
            return text
    raise ValueError(text)


def _precision(text: str) -> Precision:
    match text:
        case "bf16" | "fp8" | "mxfp8" | "nvfp4":
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
