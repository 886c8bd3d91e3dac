"""What is taken out of everything that goes into a support bundle.

The same value becomes the same placeholder everywhere, so that what belongs together still does.
"""

import ipaddress
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from megatron_eks.ops.support.files import facts_in, is_output, is_setting, shown_file, shown_object
from megatron_eks.ops.support.parts import Kind
from megatron_eks.ops.support.text import HIDDEN, Texts

# JSON and YAML, which have no narrower type.
Value = Any

_ACCOUNT = re.compile(r"(?<![\w.-])\d{12}(?![\w.-])|(?<=:)\d{12}(?=:)|(?<!\d)\d{12}(?=\.dkr\.)")
_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")


class Redactor:
    """Takes secrets, accounts, people and public addresses out, and counts them."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._known: dict[tuple[str, str], str] = {}
        self._texts = Texts()
        self.counts = self._texts.counts
        """How many values of each kind were taken out."""

    def text(self, text: str, *, own: bool = False) -> str:
        """Return text without them; `own` is text that this project wrote."""
        text = self._texts.without_secrets(text, own=own)
        text = _ACCOUNT.sub(self._placeholder("account ids", "ACCOUNT"), text)
        text = _MAIL.sub(self._placeholder("mail addresses", "MAIL"), text)
        text = _ADDRESS.sub(self._address, text)
        return text.replace(self._home, "~") if len(self._home) > 1 else text

    def part(self, value: Value, kind: Kind) -> str:
        """Return what a part of the bundle shows of what was read."""
        match kind:
            case "configuration" | "outputs":
                is_shown = is_setting if kind == "configuration" else is_output
                text = shown_file(value, is_shown, self._hide)
                self._texts.know([text])
                return self.text(text, own=True)
            case "objects":
                value = shown_object(value, self._hide)
                self._texts.know(facts_in(value))
            case "text" | "findings":
                return self.text(value, own=kind == "findings")
        return json.dumps(self._values(value, own=kind == "plan"), indent=2, default=str) + "\n"

    def _values(self, value: Value, *, own: bool) -> Value:
        if isinstance(value, dict):
            return {
                self.text(str(key), own=True): self._values(each, own=own)
                for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._values(each, own=own) for each in value]
        return self.text(value, own=own) if isinstance(value, str) else value

    def _hide(self, value: str, variable: str = "") -> str:
        self._texts.remember(value, variable)
        self.counts["values of others"] += bool(value)
        return HIDDEN

    def _placeholder(self, kind: str, name: str) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            self.counts[kind] += 1
            known = [each for each in self._known if each[0] == kind]
            return self._known.setdefault((kind, match[0]), f"{name}-{len(known) + 1}")

        return replace

    def _address(self, match: re.Match[str]) -> str:
        try:
            is_public = ipaddress.ip_address(match[0]).is_global
        except ValueError:
            return match[0]
        # Those of the VPC say nothing to others, and everything about a network that is wrong.
        return self._placeholder("public addresses", "ADDRESS")(match) if is_public else match[0]
