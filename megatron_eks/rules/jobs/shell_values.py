"""What a shell puts into its script's lines: variables that the script itself sets, once."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from megatron_eks.config.errors import Path
from megatron_eks.rules.workloads import Container

_SHELL = re.compile(r"(\S*/)?(ba|da|k|z|a)?sh")
_NAME = r"[A-Za-z_]\w*"
# At the beginning of a line or behind a semicolon: nothing decides whether it is done.
_SET = re.compile(
    rf"(?m)(?:^|(?<=;))[ \t]*(?:(?:export|readonly|local|declare(?:[ \t]+-[a-z]+)?)[ \t]+)?"
    rf"(?P<name>{_NAME})=(?:\"(?P<text>(?:[^\"\\`]|\\.|\\\n)*)\"|'(?P<plain>[^']*)'"
    rf"|\((?P<array>(?:[^()\"'`\\]|\\.|\\\n|\"[^\"()`]*\"|'[^']*')*)\)"
    rf"|(?P<word>[^\s;&|\"'`()$\\]+))[ \t]*(?=$|;|\#)",
)
_ANY_SET = r"(?<![\w$-]){name}(\[[^\]]*\])?\+?=|\bread\b[^\n;]*\b{name}\b|\bfor[ \t]+{name}\b"
_OPENS = re.compile(r"(?m)(?:^|[;&|])[ \t]*(?:if|case|for|while|until|function)\b|\)[ \t]*\{")
_CLOSES = re.compile(r"(?m)(?:^|[;&|])[ \t]*(?:fi|esac|done|\})(?=$|[\s;)&|])")
_TOKEN = re.compile(
    rf"\\[\s\S]|(?P<plain>'[^']*')|(?P<quote>\")|(?P<comment>(?<=\s)\#[^\n]*)"
    rf"|\$(?:(?P<name>{_NAME})|\{{(?P<braced>{_NAME})(?:\[[@*]\])?\}})"
)
_COMMENT_LINE = re.compile(r"(?m)^[ \t]*#[^\n]*\n?|(?<=[ \t])#[ \t][^\n]*")
# Each of its words is one by itself, as without the quotes.
_WHOLE_ARRAY = re.compile(rf'"(\$\{{{_NAME}\[@\]\}})"')
_ROUNDS = 3
_KEPT = 256


def told(container: Container) -> list[tuple[Path, str]]:
    """Return a container's words, with what its shell puts into scripts for their variables.

    POSIX, "Shell Command Language", 2.6: parameter expansion, and field splitting after it.
    """
    words = container.words
    if not words or _SHELL.fullmatch(words[0][1]) is None:
        return words
    given = tuple((each.name, each.value) for each in container.variables if each.value is not None)
    return [(path, expanded(word, given) if "$" in word else word) for path, word in words]


@lru_cache(_KEPT)
def expanded(script: str, given: tuple[tuple[str, str], ...]) -> str:
    """Put into a script what it surely sets itself, or what its environment holds for it."""
    # A text within a script may look like a part of it.
    if not any(char.isspace() for char in script.strip()) or "<<" in script:
        return script
    own = values_of(script)
    known = {
        name: value
        for name, value in given
        if name not in own and "$" not in value and not set_anywhere(script, name)
    }
    known |= own
    for _ in range(_ROUNDS if known else 0):
        changed = _put(script, known)
        if changed == script:
            break
        script = changed
    return script


def values_of(script: str) -> dict[str, str]:
    """Return the variables that a script sets once, in every case, to a text that it writes out."""
    found: dict[str, str] = {}
    for match in _SET.finditer(script):
        name = match["name"]
        if name in found or len(set_anywhere(script, name)) > 1 or not _always(script, match):
            found.pop(name, None)
            continue
        if match["array"] is not None:
            value = " ".join(_COMMENT_LINE.sub("", match["array"]).split())
        else:
            value = next(
                each for each in (match["text"], match["plain"], match["word"]) if each is not None
            )
            value = value.replace("\\\n", " ")
        # What is computed is not known, and a variable of itself has another value.
        if "$(" not in value and "`" not in value and not re.search(rf"\$\{{?{name}\b", value):
            found[name] = value
    return found


def set_anywhere(script: str, name: str) -> list[str]:
    """Return every place in which a script may set a variable."""
    pattern = _ANY_SET.replace("{name}", name)
    return [match[0] for match in re.finditer(pattern, script)]


def _always(script: str, match: "re.Match[str]") -> bool:
    before = script[: match.start()]
    return len(_OPENS.findall(before)) <= len(_CLOSES.findall(before))


def _put(script: str, known: Mapping[str, str]) -> str:
    return "".join(_parts(_WHOLE_ARRAY.sub(r"\1", script), known))


def _parts(script: str, known: Mapping[str, str]) -> Iterator[str]:
    quoted, end = False, 0
    for match in _TOKEN.finditer(script):
        yield script[end : match.start()]
        end = match.end()
        if match["plain"] is not None and quoted:
            # An apostrophe within quotes is a letter: what is in it is read again.
            yield "'"
            yield from _parts_within(match["plain"][1:], known)
            continue
        if match["quote"] is not None:
            quoted = not quoted
        name = match["name"] or match["braced"]
        value = known.get(name) if name else None
        # Between quotes a text of several words stays one.
        whole = value is not None and quoted and len(value.split()) > 1
        if value is None or whole or (match["comment"] is not None):
            yield match[0]
        else:
            yield value
    yield script[end:]


def _parts_within(text: str, known: Mapping[str, str]) -> Iterator[str]:
    """Put values into a part that stands between quotes."""
    end = 0
    for match in _TOKEN.finditer(text):
        name = match["name"] or match["braced"]
        value = known.get(name) if name else None
        fits = value is not None and len(value.split()) <= 1
        yield text[end : match.start()] + (value if fits and value is not None else match[0])
        end = match.end()
    yield text[end:]
