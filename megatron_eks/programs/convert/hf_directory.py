"""A Hugging Face model directory, as far as its index, headers and configuration tell a whole one.

Layouts: huggingface.co/docs/safetensors ("Format"); config.json of transformers 5.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from megatron_eks.catalog.models import PRESETS
from megatron_eks.programs.program import Finding, error, warning

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
_LENGTH = struct.Struct("<Q")
_LARGEST_HEADER = 100_000_000
_AGAIN = "fetch the model again"
# Megatron's names in the presets, and the configuration's.
_SIZES = (
    ("num_layers", "num_hidden_layers"),
    ("hidden_size", "hidden_size"),
    ("ffn_hidden_size", "intermediate_size"),
    ("num_attention_heads", "num_attention_heads"),
    ("num_query_groups", "num_key_value_heads"),
    ("vocab_size", "vocab_size"),
    ("kv_channels", "head_dim"),
    ("rotary_base", "rope_theta"),
)
_ROPE_KINDS = ("default", "linear", "llama3")
_ROPE_CONSTANTS = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def check(directory: Path, model: str, facts: dict[str, object]) -> Iterator[Finding]:
    """Check configuration, tokenizer and every shard; facts get tensors and bytes."""
    if not directory.is_dir():
        yield error(directory, "no such directory", "fetch the model, or correct the path")
        return
    yield from check_config(directory, model)
    if not any((directory / name).is_file() for name in _TOKENIZER_FILES):
        yield error(directory, f"none of {', '.join(_TOKENIZER_FILES)} is in it", _AGAIN)
    yield from check_weights(directory, facts)
    yield from check_rope(directory)


def check_config(directory: Path, model: str) -> Iterator[Finding]:
    """Compare config.json with the model that is named."""
    path = directory / "config.json"
    config, found = _read_json(path)
    if found:
        yield error(path, found, _AGAIN)
        return
    preset = PRESETS.get(model)
    if preset is None:
        known = ", ".join(sorted(PRESETS))
        yield warning(model, "no sizes of it are known here", f"nothing compared; known: {known}")
        return
    for ours, theirs in _SIZES:
        value, expected = _config_value(config, theirs), getattr(preset, ours)
        if value is not None and value != expected:
            text = f"{theirs} is {value}, and {model} has {expected}"
            fix = "correct the model's name, or the source"
            yield error(path, text, fix)


def check_rope(directory: Path) -> Iterator[Finding]:
    """Check that a Llama's positions are of the kinds that Megatron-Bridge carries over.

    It takes the factor alone, and Megatron core has the rest as constants; another kind it passes
    over in silence (models/llama/llama_bridge.py of 0.6.2).
    """
    path = directory / "config.json"
    config, found = _read_json(path)
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if found or config.get("model_type") != "llama" or not isinstance(scaling, dict):
        return
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in _ROPE_KINDS:
        found = f"rope_type is {kind}, which Megatron-Bridge passes over for a Llama"
        yield error(path, found, f"convert a model with {', '.join(_ROPE_KINDS)}")
    for name, value in _ROPE_CONSTANTS.items() if kind == "llama3" else ():
        if scaling.get(name, value) != value:
            found = f"{name} is {scaling[name]}, and Megatron core always takes {value:g}"
            yield error(path, found, "this model's logits would differ: it cannot be converted")


def check_weights(directory: Path, facts: dict[str, object]) -> Iterator[Finding]:
    """Check that every shard of the index is there and as long as its header says."""
    index = directory / _INDEX
    if index.exists():
        content, found = _read_json(index)
        weights = content.get("weight_map")
        if found or not isinstance(weights, dict) or not weights:
            yield error(index, found or "no weight_map in it", _AGAIN)
            return
        expected = {
            name: {key for key in weights if weights[key] == name} for name in weights.values()
        }
    elif (directory / _SINGLE).exists():
        expected = {_SINGLE: set()}
    else:
        yield error(directory, f"neither {_INDEX} nor {_SINGLE} is in it", _AGAIN)
        return
    tensors = 0
    for name in sorted(expected):
        names, found = tensor_names(directory / name)
        tensors += len(names)
        missing = expected[name] - names
        if found:
            yield error(directory / name, found, _AGAIN)
        elif missing:
            found = f"{len(missing)} tensors of the index are not in it, such as {min(missing)}"
            yield error(directory / name, found, _AGAIN)
    facts["tensors"] = tensors
    facts["weight_bytes"] = sum(path.stat().st_size for path in directory.glob("*.safetensors"))


def tensor_names(path: Path) -> tuple[set[str], str]:
    """Return the tensors of a file and what is wrong with it, by its header and its size."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(_LENGTH.size)
            length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else size
            if length > min(size - _LENGTH.size, _LARGEST_HEADER):
                return set(), f"{size} bytes, too short for its header"
            header = json.loads(file.read(length))
        ends = {
            name: entry["data_offsets"][1]
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except FileNotFoundError:
        return set(), "no such file"
    except (ValueError, KeyError, TypeError, AttributeError):
        return set(), "no safetensors file"
    wanted = _LENGTH.size + length + max(ends.values(), default=0)
    if size != wanted:
        return set(ends), f"{size} bytes, its header says {wanted}"
    return set(ends), ""


def _config_value(config: dict[str, Any], name: str) -> object:
    """Return a value of config.json, or what transformers takes where it is missing."""
    if name == "rope_theta":
        # transformers 5 writes rope_parameters, older versions rope_theta.
        value = config.get(name) or (config.get("rope_parameters") or {}).get(name)
        return int(value) if value else None
    value = config.get(name)
    if value is None and name == "num_key_value_heads":
        return config.get("num_attention_heads")
    return value


def _read_json(path: Path) -> tuple[dict[str, Any], str]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, "no such file"
    except ValueError:
        return {}, "no JSON"
    return (content, "") if isinstance(content, dict) else ({}, "no JSON object")
