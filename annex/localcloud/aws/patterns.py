"""Regular expressions of AWS's models, which are written for another engine than Python's."""

from functools import cache

import regex


@cache
def _compiled(pattern: str) -> "regex.Pattern[str] | None":
    try:
        return regex.compile(pattern)
    except regex.error:
        # What nobody here can read is not checked.
        return None


def matches(pattern: str, text: str) -> bool:
    """Tell whether a pattern is found in a text, as JSON Schema means it."""
    compiled = _compiled(pattern)
    return compiled is None or compiled.search(text) is not None


def matches_all(pattern: str, text: str) -> bool:
    """Tell whether a pattern describes the whole of a text, as AWS's services mean it."""
    compiled = _compiled(pattern)
    return compiled is None or compiled.fullmatch(text) is not None
