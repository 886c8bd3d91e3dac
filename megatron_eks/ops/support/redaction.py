"""What is taken out of everything that goes into a support bundle.

The same value becomes the same placeholder everywhere, so that what belongs together still does.
"""

import ipaddress
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

# JSON and YAML, which have no narrower type.
Value = Any

HIDDEN = "(redacted)"

# Values that are secret wherever they stand.
_SECRETS = {
    "private keys": re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    "AWS keys": re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,20}\b"),
    "tokens": re.compile(
        r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"  # JSON Web Tokens, such as service accounts'
        r"|\bk8s-aws-v1\.[\w-]+"
        r"|\bhf_[A-Za-z0-9]{16,}"
        r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|nvapi-)[\w-]{16,}"
        r"|(?<=[Bb]earer )[\w.~+/=-]{8,}"
        r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"  # a name and a password in an address
        r"|(?<=X-Amz-Signature=)\w+|(?<=X-Amz-Security-Token=)[\w%.-]+"
        r"|(?<=X-Amz-Credential=)[\w%./-]+"
    ),
}
# A name and its value in text: TOKEN=..., "api_key": "...", --password ...
_NAMED = re.compile(
    r"""(?P<name>[\w.-]*(?i:secret|token|passw|passphrase|credential|key)[\w.-]*)(?P<between>["']?\s*[=:]\s*["']?|["']?,?\s+["']?)"""
    r"""(?P<value>[^\s"',;}\])]{4,})"""
)
_ACCOUNT = re.compile(r"(?<![\w.-])\d{12}(?![\w.-])|(?<=:)\d{12}(?=:)|(?<!\d)\d{12}(?=\.dkr\.)")
_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SECRET_WORDS = frozenset(
    {"secret", "token", "password", "passwd", "passphrase", "credential", "credentials", "apikey"}
)
_KEYS = frozenset({"api", "access", "private", "secret", "encryption"})
# They say where a secret is, and not which.
_PLACES = frozenset({"name", "names", "ref", "path", "file", "dir", "type", "mount", "key_id"})
# Keys of our files that name a Secret of the cluster.
_REFERENCES = frozenset({"token_secret"})
# Written by others at length, and told by the rest of the object.
_DROPPED = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})


class Redactor:
    """Takes secrets, accounts, people and public addresses out, and counts them."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._known: dict[tuple[str, str], str] = {}
        self.counts: Counter[str] = Counter()
        """How many values of each kind were taken out."""

    def text(self, text: str) -> str:
        """Return text without them."""
        for kind, pattern in _SECRETS.items():
            text = pattern.sub(self._hider(kind), text)
        text = _NAMED.sub(self._named, text)
        text = _ACCOUNT.sub(self._placeholder("account ids", "ACCOUNT"), text)
        text = _MAIL.sub(self._placeholder("mail addresses", "MAIL"), text)
        text = _ADDRESS.sub(self._address, text)
        return text.replace(self._home, "~") if len(self._home) > 1 else text

    def value(self, value: Value) -> Value:
        """Return structured data without them, and without what would only be long."""
        if isinstance(value, dict):
            named = value.get("name")
            is_secret = isinstance(named, str) and sounds_secret(named)
            return {
                self.text(str(key)): self._field(str(key), inner, secret=is_secret)
                for key, inner in value.items()
                if key not in _DROPPED
            }
        if isinstance(value, list):
            before = ["", *value]
            return [self._argument(*each) for each in zip(before, value, strict=False)]
        return self.text(value) if isinstance(value, str) else value

    def document(self, value: Value) -> str:
        """Return structured data as JSON."""
        return json.dumps(self.value(value), indent=2, default=str) + "\n"

    def _argument(self, before: Value, value: Value) -> Value:
        """Return an element of a list; of arguments, what follows a secret's option."""
        is_option = isinstance(before, str) and before.startswith("--") and "=" not in before
        if is_option and isinstance(value, str) and sounds_secret(before):
            self.counts["named secrets"] += 1
            return HIDDEN
        return self.value(value)

    def _field(self, key: str, value: Value, *, secret: bool) -> Value:
        if isinstance(value, str) and value and (sounds_secret(key) or (secret and key == "value")):
            self.counts["named secrets"] += 1
            return HIDDEN
        return self.value(value)

    def _named(self, match: re.Match[str]) -> str:
        spaced = not match["between"].strip("\"', \t")
        # `--api-key VALUE` and `token VALUE`, but not the sentence `token budget`.
        if not sounds_secret(match["name"]) or (spaced and not _random(match["value"])):
            return match[0]
        if match["value"].startswith(("(redacted", "${", "$(")):
            return match[0]
        self.counts["named secrets"] += 1
        return f"{match['name']}{match['between']}{HIDDEN}"

    def _hider(self, kind: str) -> Callable[[re.Match[str]], str]:
        def hide(_: re.Match[str]) -> str:
            self.counts[kind] += 1
            return HIDDEN

        return hide

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


def sounds_secret(name: str) -> bool:
    """Say whether the value of a name is none of others' business."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _PLACES or name in _REFERENCES:
        return False
    pairs = itertools.pairwise(words)
    return any(word in _SECRET_WORDS for word in words) or any(
        first in _KEYS and second == "key" for first, second in pairs
    )


def _random(value: str) -> bool:
    """Say whether a word looks drawn by lot: letters and digits, and long."""
    return len(value) >= 12 and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)  # noqa: PLR2004 -- as tokens are
