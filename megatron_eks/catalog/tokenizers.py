"""How many tokens the tokenizers of well-known models have, by the name of model or folder.

Sources: `tokenizer.json` and `tokenizer_config.json` of the repositories on Hugging Face, added
tokens counted; what is named without its version, and differs between versions, is not here.
"""

import re

_NAMES: tuple[tuple[str, int], ...] = (
    (r"llama-?2(?!\d|\.).*", 32000),
    (r"llama-tokenizer", 32000),
    (r"tinyllama.*", 32000),
    (r"llama-?3(?!\d).*", 128256),
    (r"mi[sx]tral-(7b|8x7b)(-instruct)?-v0\.[12]", 32000),
    (r"mixtral-8x7b.*", 32000),
    (r"mistral-7b(-instruct)?-v0\.3", 32768),
    (r"mathstral-7b.*", 32768),
    (r"qwen2\.5-.*", 151665),
    (r"qwen3-\d.*", 151669),
    (r"gpt2(-\w+)?", 50257),
    (r"(gpt-neox-20b|pythia-.*)", 50277),
    (r"gemma-(2-)?\d+b.*", 256000),
)


def tokens(name: str) -> int | None:
    """Return the number of tokens; None for names that nobody has looked up."""
    plain = name.rstrip("/").rpartition("/")[2].lower()
    plain = plain.replace("_", "-").removeprefix("meta-").removesuffix("-hf")
    return next((count for form, count in _NAMES if re.fullmatch(form, plain)), None)
