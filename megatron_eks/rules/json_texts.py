"""Says where a text that should be JSON is none."""

import json
import re

_CLOSES = {"{": "}", "[": "]"}
_ESCAPED = re.compile(r"\\.", re.DOTALL)


def json_fault(written: str, wrong: json.JSONDecodeError) -> tuple[str, str]:
    """Say where a text is no JSON (RFC 8259) and what to write, with nothing of the text itself."""
    unclosed = _unclosed(written)
    if wrong.pos >= len(written.rstrip()) and unclosed:
        return f"no JSON: it ends before {unclosed}", f"add {unclosed} at its end"
    where = f"line {wrong.lineno}, column {wrong.colno}"
    return f"no JSON at {where}: {wrong.msg[:1].lower()}{wrong.msg[1:]}", "correct it there"


def _unclosed(written: str) -> str:
    """Return what closes the objects and lists that are open where a text ends."""
    closing, inside = "", False
    for char in _ESCAPED.sub("", written):
        if char == '"':
            inside = not inside
        elif not inside and char in _CLOSES:
            closing = f"{_CLOSES[char]}{closing}"
        elif not inside and closing.startswith(char):
            closing = closing[1:]
    value = re.search(r"[,:]\s*$", written)
    return "" if inside or value else closing
