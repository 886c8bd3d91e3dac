"""Takes secrets out of texts that others wrote: logs, messages, and what is quoted in them.

It rather loses text than a secret: from the name of a secret on, the rest of it goes.
"""

import base64
import binascii
import contextlib
import html
import re
from collections.abc import Iterator
from urllib.parse import unquote

from megatron_eks.catalog import shown
from megatron_eks.ops.support import secret_forms
from megatron_eks.ops.support.secret_forms import looks_random, sounds_secret

HIDDEN = "(redacted)"

_DEEPEST = 3
"""So often may a text stand encoded in another one."""
# Of a longer line the beginning says enough, and nothing here takes long.
_TOO_LONG = re.compile(r"([^\n]{8192})[^\n]+")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){6,}")
_ESCAPES = re.compile(r"\\u00([0-9a-fA-F]{2})|\\x([0-9a-fA-F]{2})")

# A name and what joins it with its value, in whatever notation, quoted within quotes or not.
_NAMED = re.compile(
    r"(?<![\w.-])(?P<name>(?:(?:api|access|secret|private|ssh|account) )?[\w.-]+)"
    r"(?:\\*[\"'`]?\]?\s*(?:=>|->|:=|=|:|>|\|)\s*|\\*[\"']\s*,\s*|\s\.{2,}\s*"
    r"|(?: [\w:.-]+=\\*[\"'][^\"'<>]*[\"'])+>"
    r"|\\*[\"']\s+value=)",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"(?:[\"']value\\*[\"']|(?:^|\\n|\bname: \S+)\s*(?:-\s+)?value)\s*:\s*|\bvalue=|<value>"
)
_VARIABLE = re.compile(
    r"(?:(?<![\w$./{-])|(?<=\\[nrt0]))(?P<name>[A-Z][A-Z0-9_]+)\\*[\"']?\]?\s*=(?!=)\s*"
    r"|(?<=[\"'])(?P<field>[A-Z][A-Z0-9_]+)\\*[\"']\s*:\s*"
    r"|(?:^|\\n)\s*(?:-\s+)?(?P<key>[A-Z][A-Z0-9]*_[A-Z0-9_]+):\s+"
    r"|\s{4,}(?P<described>[A-Z][A-Z0-9_]+):\s{2,}"
    r"|\b(?:export|setenv|declare -\w+|ENV|ARG|setx)\s+(?P<set>\w+)[=\s]"
    r"|(?:\benv\s+(?:-\w\s+)?|\$env:)(?P<one>\w+)\s*="
    r"|\b(?:environ\.setdefault|putenv)\(\\*[\"'](?P<put>\w+)\\*[\"'],"
)
_OPTIONS_OF_OURS = shown.OPTIONS | shown.FLAGS
_OPTIONS = re.compile(r"(?=(?<![\w-])--[A-Za-z])")
_OPTION = re.compile(r"(?P<name>--[\w.-]+)(?P<between>=|\\*[\"']?,?\s+\\*[\"']?)(?=[^\s-])")
# What may stand for nothing behind a name, and ends there.
_EMPTY = (
    r"[\s\"'\\([{]*(?:true|false|null|none|%s)[\"'\\]*(?:\s*$|[}\])]|,\s*[\"'])|\(redacted\)\W*$"
)
# Nothing of the rest of a line is a secret: it is empty or a word, or else a number too.
_NOTHING = re.compile(_EMPTY % r"\$\{\w+\}|\$\(\w+\)|[\"']{2}", re.IGNORECASE)
_TRIVIAL = re.compile(rf"{_EMPTY}|[\s\"']*[\d.]{{1,6}}[\"']*\s" % r"[\d.]{1,6}|", re.IGNORECASE)
_NUMBER = re.compile(r"\W*[\d.,]+\b")
# What Kubernetes and AWS say before they name the cause, and programs before a duration.
_BEFORE_CAUSES = (
    *("non-existent ", 'volume "', "getting ", "get ", "anonymous ", "require ", "SSO "),
    *("forward ", "backward "),
)
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def without_secrets(text: str, *, own: bool = False) -> str:
    """Return a text without them; our `own` is one whose names say what we say of them."""
    return _cleaned(text, 0, own=own)


def _cleaned(text: str, depth: int, *, own: bool = False) -> str:
    text = _TOO_LONG.sub(lambda found: found[1] + HIDDEN, _COLOURS.sub("", text))
    for pattern in secret_forms.FORMS.values():
        text = pattern.sub(_but_prefix, text)
    text = secret_forms.WRAPPED.sub(HIDDEN, text)
    if depth < _DEEPEST:
        text = _ENCODED.sub(lambda found: _decoded(found[0], depth), text)
    return text if own else "".join(_lines(text, depth))


def _but_prefix(match: re.Match[str]) -> str:
    """Take a match out, all but its groups."""
    prefix = "".join(filter(None, match.groups()))
    return match[0] if match[0] in {"", prefix + HIDDEN} else prefix + HIDDEN


def _decoded(word: str, depth: int) -> str:
    """Return a word, unless it stands for a text with a secret."""
    kept = all(_cleaned(text, depth + 1) == text for text in _plain_texts(word))
    return word if kept else HIDDEN


def _lines(text: str, depth: int) -> Iterator[str]:
    for line in text.splitlines(keepends=True):
        words = line.rstrip("\r\n")
        kept = _line(words, depth)
        yield kept + line[len(words) :]
        if kept != words and kept.endswith(HIDDEN):
            # What follows may belong to the value that began here.
            return


def _line(line: str, depth: int) -> str:
    plain = _ESCAPES.sub(lambda found: chr(int(found[1] or found[2], 16)), line)
    plain = html.unescape(unquote(plain))
    if plain != line and depth < _DEEPEST:
        cleaned = _cleaned(plain, depth + 1)
        return cleaned if cleaned != plain else line
    end = min(_ends(line), default=None)
    if end is not None:
        return line[:end] + HIDDEN
    line = "".join(map(_option, _OPTIONS.split(line)))
    return secret_forms.RANDOM.sub(
        lambda found: HIDDEN if looks_random(found[0]) else found[0], line
    )


def _ends(line: str) -> Iterator[int]:
    """Yield after how much of a line a secret begins."""
    for match in _NAMED.finditer(line):
        rest = line[match.end() :]
        name = match["name"]
        counted = name.lower().endswith("tokens") and _NUMBER.match(rest)
        if (
            sounds_secret(name)
            and not (counted or _NOTHING.match(rest))
            and not line[: match.start()].endswith(_BEFORE_CAUSES)
            and not (line[: match.start()].endswith("/") and "=" not in match[0])
        ):
            yield match.end()
            break
    for match in _VARIABLE.finditer(line):
        name = next(filter(None, match.groups()))
        if name not in shown.ENVIRONMENT and not _TRIVIAL.match(line[match.end() :]):
            yield match.end()
            break
    for match in _VALUE.finditer(line):
        rest = line[match.end() :]
        if not _NUMBER.match(rest) and not _TRIVIAL.match(rest):
            yield match.end()
            break
    for form in (secret_forms.PASSWORD_FILE, secret_forms.COMMAND, secret_forms.SAID):
        yield from (found.end() for found in form.finditer(line))


def _option(part: str) -> str:
    """Return an option as somebody printed it, with its value if we set it."""
    match = _OPTION.match(part)
    if match is None or match["name"].replace("_", "-") in _OPTIONS_OF_OURS:
        return part
    return match[0] + HIDDEN + (" " if part.endswith(" ") else "")


def _plain_texts(word: str) -> Iterator[str]:
    """Yield what a word may stand for in base64 or hexadecimal digits."""
    sloppy = word.rstrip("=").replace("-", "+").replace("_", "/")
    found = [bytes.fromhex(word)] if _HEX.fullmatch(word) else []
    with contextlib.suppress(binascii.Error):
        found.append(base64.b64decode(sloppy + "=" * (-len(sloppy) % 4)))
    for data in found:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue
        if all(char.isprintable() or char.isspace() for char in text):
            yield text
