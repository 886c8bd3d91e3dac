"""Two tiny Llamas through the real Megatron-Bridge and Megatron core, on CPUs, in three steps.

bridge_tiny.py import|train|export ROOT TOKENIZER: each step runs in processes of its own, `train`
under torchrun with two ranks. Last on stdout of the first rank: a JSON object by model.
"""

# ruff: noqa: PLC0415 -- torch and Megatron come after what stands in for their packages

import importlib
import io
import json
import os
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VOCABULARY, STEPS, LENGTH = 1000, 5, 32

# Shared by both: grouped queries, and a head that is not hidden / heads.
_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 16384,
    "architectures": ["LlamaForCausalLM"],
}
_MODELS: dict[str, dict[str, Any]] = {
    "untied": {
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "tied": {
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
    },
}

_LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
_OVERRIDES: dict[str, dict[str, Any]] = {
    "shipped": {},
    "good": {
        "model.attention_backend": "unfused",
        "mixed_precision.grad_reduce_in_fp32": False,
        "ddp.average_in_collective": False,
        "dataset.reset_position_ids": True,
    },
    "bad": {"model.num_layer": 2, "model.attention_backend": "fussed", "optimizer.lr": "fast"},
}


# Megatron core's own layers and no kernels of CUDA: these alone compute on a CPU.
_PLAIN = {
    "bf16": False,
    "fp16": False,
    "apply_rope_fusion": False,
    "bias_activation_fusion": False,
    "bias_dropout_fusion": False,
    "gradient_accumulation_fusion": False,
    "masked_softmax_fusion": False,
    "persist_layer_norm": False,
}


def main() -> None:
    """Take one step, for both models."""
    step = sys.argv[1]
    sys.path[:0] = [str(ROOT), str(ROOT / "megatron_eks/demo/megatron")]
    if step == "train":
        # The pods of conversions have no GPU, so there nothing may answer for one.
        importlib.import_module("cpu_torch")
    importlib.import_module("cpu_bridge").install()
    root, tokenizer = Path(sys.argv[2]), Path(sys.argv[3])
    steps = {"import": _import, "train": _train, "export": _export}
    found = {name: steps[step](root / name, name, tokenizer) for name in _MODELS}
    if step == "import":
        found["refused"] = _refused(root)
        found["recipe"] = _recipe(root)
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.write(json.dumps(found) + "\n")


def _import(root: Path, name: str, tokenizer: Path) -> dict[str, Any]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(**_SHAPE, **_MODELS[name]))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            # A fresh model says the same whatever is mixed up in it.
            weight.add_(torch.randn_like(weight), alpha=0.2 if "norm" in key else 0.05)
            # An import stores bf16, and what it compares is to be the same.
            weight.copy_(weight.bfloat16())
    model.save_pretrained(root / "hf")
    for path in tokenizer.iterdir():
        shutil.copy(path, root / "hf")
    return _convert("import", root / "hf", root / "megatron")


def _refused(root: Path) -> dict[str, Any]:
    """Convert what says that it is another model."""
    source = root / "refused" / "hf"
    shutil.copytree(root / "tied" / "hf", source)
    config = json.loads((source / "config.json").read_text())
    config |= {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    (source / "config.json").write_text(json.dumps(config))
    return _convert("import", source, root / "refused" / "megatron")


def _recipe(root: Path) -> dict[str, Any]:
    """Build the shipped job's recipe as train_bridge does, and one with overrides."""
    from megatron.bridge import AutoBridge, recipes
    from megatron.bridge.training.mixed_precision import get_mixed_precision_config
    from transformers import LlamaConfig

    from megatron_eks.programs import train_bridge
    from megatron_eks.programs.start import bridge_config

    job = json.loads((root / "job.json").read_text())
    folder = root / "llama-3.1-8b"
    LlamaConfig(**_LLAMA_8B, architectures=["LlamaForCausalLM"]).save_pretrained(folder)
    found: dict[str, Any] = {}
    for name, overrides in _OVERRIDES.items():
        with train_bridge.configuration_from(AutoBridge, folder):
            config = train_bridge.find_recipe(recipes, job["recipe"])()
        values = bridge_config.values_of({**job["blocks"], "overrides": overrides})
        problems = [*bridge_config.apply(config, values, get_mixed_precision_config)]
        problems += bridge_config.compare_model(config, job["blocks"]["model"])
        found[name] = {
            "findings": [str(each) for each in problems],
            "sequence": [config.model.seq_length, config.dataset.seq_length],
            "steps": [config.train.train_iters, config.scheduler.lr_warmup_iters],
            "rates": [config.optimizer.lr, config.optimizer.min_lr],
            "start": config.checkpoint.pretrained_checkpoint,
            "backend": str(config.model.attention_backend),
            "reduce": getattr(config.mixed_precision, "grad_reduce_in_fp32", None),
        }
    return found


def _train(root: Path, _name: str, _tokenizer: Path) -> dict[str, Any]:
    """Load into two tensor parallel ranks, train, and save as they stand."""
    import torch
    from megatron.bridge import AutoBridge
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region
    from megatron.core.tensor_parallel.random import initialize_rng_tracker

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
        initialize_rng_tracker(inference_rng_tracker=True, force_reset=True)
    checkpoint = root / "megatron" / "iter_0000000"
    bridge = AutoBridge.from_auto_config(str(checkpoint), str(root / "hf"))
    model = _plain_model(bridge, checkpoint, tensor_model_parallel_size=2)

    def logits() -> Any:
        with torch.no_grad():
            parts = _megatron_logits(model, _tokens())
            return gather_from_tensor_model_parallel_region(parts)[..., :VOCABULARY]

    before = logits()
    losses = _steps(model)
    after = logits()
    if torch.distributed.get_rank() == 0:
        torch.save({"before": before, "after": after}, root / "logits.pt")
    bridge.save_megatron_model([model], root / "trained", hf_tokenizer_path=root / "hf")
    return {"losses": losses}


def _steps(model: Any) -> list[float]:
    """Train on one batch, which is enough to see it learn."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = _tokens()
    positions = torch.arange(LENGTH - 1).expand(tokens.shape[0], -1)
    later = torch.ones(1, 1, LENGTH - 1, LENGTH - 1, dtype=torch.bool).triu(1)
    losses: list[float] = []
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(tokens[:, :-1], positions, later, labels=tokens[:, 1:]).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _export(root: Path, _name: str, _tokenizer: Path) -> dict[str, Any]:
    import torch
    from transformers import AutoModelForCausalLM

    found = _convert("export", root / "trained", root / "back")
    saved = torch.load(root / "logits.pt")
    for when, folder in (("before", "hf"), ("after", "back")):
        model = AutoModelForCausalLM.from_pretrained(root / folder, dtype=torch.float32)
        with torch.no_grad():
            difference = (model.eval()(_tokens()).logits - saved[when]).abs().max()
        found[when] = float(difference)
    found["damaged"] = _damaged(root)
    found["moved"] = float((saved["after"] - saved["before"]).abs().max())
    found["spread"] = float(saved["after"].abs().max())
    return found


def _damaged(root: Path) -> list[str]:
    """Compare the checkpoint with an export in which one value differs and one tensor is gone."""
    from megatron.bridge import AutoBridge
    from safetensors.torch import load_file, save_file

    from megatron_eks.programs.convert import check

    other = root / "damaged"
    shutil.copytree(root / "back", other)
    (path,) = other.glob("*.safetensors")
    weights = load_file(path)
    weights["model.layers.0.mlp.up_proj.weight"][3, 4] += 0.5
    del weights["model.norm.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    checkpoint = root / "trained" / "iter_0000000"
    bridge = AutoBridge.from_auto_config(str(checkpoint), str(other))
    with check.one_process():
        problems = check.compare_tensors(bridge, checkpoint, other, {})
        return [each.found for each in problems]


def _plain_model(bridge: Any, checkpoint: Path, **parallel: int) -> Any:
    """Load a checkpoint in fp32 into layers that compute on a CPU."""
    import torch
    from megatron.bridge.models.gpt_provider import local_layer_spec

    layers = {"transformer_layer_spec": local_layer_spec, "params_dtype": torch.float32}
    words = {**_PLAIN, **layers, **parallel}
    return bridge.load_megatron_model(str(checkpoint), mp_overrides=words)[0]


def _megatron_logits(model: Any, tokens: Any) -> Any:
    """Return what a model of Megatron says after each token."""
    import torch

    count = tokens.shape[1]
    positions = torch.arange(count).expand(tokens.shape[0], -1)
    later = torch.ones(1, 1, count, count, dtype=torch.bool).triu(1)
    return model.eval()(tokens, positions, later)


def _tokens() -> Any:
    import torch

    return torch.randint(VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(3))


def _convert(direction: str, source: Path, target: Path) -> dict[str, Any]:
    """Run the program; return its JSON line."""
    from megatron_eks.programs import convert_checkpoint, program

    places = ["--source", str(source), "--target", str(target), "--model", "tiny"]
    words = ["--direction", direction, *places]
    said = io.StringIO()
    with redirect_stdout(said):
        program.run("convert_checkpoint", convert_checkpoint.main, words)
    found: dict[str, Any] = json.loads(said.getvalue().splitlines()[-1])
    return found


# Saving starts a process that imports this file.
if __name__ == "__main__":
    main()
