"""Recognises secrets by their names and by their form."""

import re

from megatron_eks.catalog.environment import is_secret
from megatron_eks.rules.values import is_placeholder

_TOKENS = {
    "hugging_face": "a Hugging Face token",
    "aws": "an AWS access key",
    "github": "a GitHub token",
}
_TOKEN = re.compile(
    r"\b(?:(?P<hugging_face>hf_[A-Za-z0-9]{30,})|(?P<aws>(?:AKIA|ASIA)[A-Z0-9]{16})"
    r"|(?P<github>gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,}))\b"
)


def kind_of_secret(value: str) -> str | None:
    """Say what a value surely is by its form: a token or key of a known service."""
    match = _TOKEN.search(value)
    return _TOKENS[match.lastgroup] if match and match.lastgroup else None


def holds_secret(name: str, value: str) -> bool:
    """Tell whether a variable of this name and value holds a secret in plain words."""
    literal = is_secret(name, value) and not value.startswith("/")
    return kind_of_secret(value) is not None or (literal and not is_placeholder(value))
