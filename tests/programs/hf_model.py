"""A small Hugging Face model directory, whole, with real safetensors headers."""

import json
import struct
from pathlib import Path

LLAMA_3_1_8B = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
}


def safetensors(names: list[str], each: int = 64) -> bytes:
    """Return a file with some tensors of so many bytes."""
    entries = {
        name: {"dtype": "U8", "shape": [each], "data_offsets": [place * each, (place + 1) * each]}
        for place, name in enumerate(names)
    }
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(len(names) * each)


def write(directory: Path) -> Path:
    """Write the configuration of Llama 3.1 8B, a tokenizer and two shards."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(LLAMA_3_1_8B))
    (directory / "tokenizer.json").write_text("{}")
    weight_map = {}
    for shard in (1, 2):
        name = f"model-0000{shard}-of-00002.safetensors"
        tensors = [f"layers.{shard}.a", f"layers.{shard}.b"]
        weight_map.update(dict.fromkeys(tensors, name))
        (directory / name).write_bytes(safetensors(tensors))
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def configure(directory: Path, **values: object) -> None:
    """Change the configuration."""
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
