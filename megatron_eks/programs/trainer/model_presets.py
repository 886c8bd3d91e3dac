"""The architectures that a configuration can name, in Megatron's names.

A copy of the catalogue's (megatron_eks/catalog/models.py), because an image holds the programs
alone; a test compares them.
"""


def _shape(hidden_size: int, ffn_hidden_size: int, **more: object) -> dict[str, object]:
    """Return a shape; what is not given is as in the 7B and 8B models."""
    return {
        "num_layers": 32,
        "hidden_size": hidden_size,
        "ffn_hidden_size": ffn_hidden_size,
        "num_attention_heads": 32,
        "num_query_groups": 8,
        "kv_channels": 128,
        **more,
    }


_GPT: dict[str, object] = {
    "num_query_groups": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 4096,
    "normalization": "LayerNorm",
    "swiglu": False,
    "add_bias_linear": True,
    "untie_embeddings_and_output_weights": False,
    "position_embedding_type": "learned_absolute",
    "attention_dropout": 0.1,
    "hidden_dropout": 0.1,
}
_LLAMA_2: dict[str, object] = {"vocab_size": 32000, "max_position_embeddings": 4096}
_LLAMA_3: dict[str, object] = {
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rotary_base": 500000,
    "rope_scaling": {"factor": 8.0},
}
_LLAMA_3_SMALL = _LLAMA_3 | {
    "untie_embeddings_and_output_weights": False,
    "rope_scaling": {"factor": 32.0},
}
_MISTRAL: dict[str, object] = {
    "vocab_size": 32768,
    "max_position_embeddings": 32768,
    "rotary_base": 1000000,
}
_LARGE: dict[str, object] = {"num_layers": 80, "num_attention_heads": 64}

PRESETS: dict[str, dict[str, object]] = {
    "gpt-7b": _shape(4096, 16384) | _GPT,
    "llama-2-7b": _shape(4096, 11008, num_query_groups=32) | _LLAMA_2,
    "llama-2-13b": _shape(5120, 13824, num_layers=40, num_attention_heads=40, num_query_groups=40)
    | _LLAMA_2,
    "llama-2-70b": _shape(8192, 28672, **_LARGE) | _LLAMA_2,
    "llama-3.1-8b": _shape(4096, 14336) | _LLAMA_3,
    "llama-3.1-70b": _shape(8192, 28672, **_LARGE) | _LLAMA_3,
    "llama-3.1-405b": _shape(16384, 53248, num_layers=126, num_attention_heads=128) | _LLAMA_3,
    "llama-3.2-1b": _shape(2048, 8192, num_layers=16, kv_channels=64) | _LLAMA_3_SMALL,
    "llama-3.2-3b": _shape(3072, 8192, num_layers=28, num_attention_heads=24) | _LLAMA_3_SMALL,
    "mistral-7b": _shape(4096, 14336) | _MISTRAL,
}
