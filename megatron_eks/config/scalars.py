"""What a plain word of a YAML file stands for, and what is odd about a text."""

import math
import re
import unicodedata

Scalar = None | bool | int | float | str

# Python refuses to parse integers of more than 4300 digits; no field here takes one.
_PLAIN = re.compile(r"[A-Za-z0-9_./+-][^\s,#:\[\]{}]*")
_LONGEST_INTEGER = 100

# YAML 1.2 core schema (yaml.org/spec/1.2.2, section 10.3.2): `yes` and `1:30` are strings and
# 1e-5 is a number, unlike in YAML 1.1, which PyYAML resolves by default.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# What YAML 1.1 resolves beside these (yaml.org/type/bool.html and int.html).
_YES = frozenset({"yes", "Yes", "YES", "on", "On", "ON"})
_NO = frozenset({"no", "No", "NO", "off", "Off", "OFF"})
_OCTAL = re.compile(r"[-+]?0[0-7]+")

_QUOTES = frozenset("\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb")
# A place of a template that nobody filled in.
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}|\{\{.*\}\}|\$[A-Z][A-Z0-9_]+|<[A-Za-z][A-Za-z0-9 _-]*>")
_ROOTS = ("/", "s3://")
# Also behind the sign of an option, and in a list of paths.
_UPWARDS = re.compile(r"(?<![^\s/=:,])\.\.(?![^\s/:,])")
_REMEDY = "write the path that is meant, without '.', '..' and '//'"


def scalar(text: str) -> Scalar:
    """Resolve a plain scalar by YAML 1.2's core schema."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text, base) if len(text) < _LONGEST_INTEGER else text
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def as_text(word: str) -> str:
    """Write a word of a list so that YAML reads a text again: in quotes if need be."""
    plain = isinstance(scalar(word), str) and _PLAIN.fullmatch(word) and word != "-"
    return word if plain else f'"{word}"'


def scalar_1_1(text: str) -> Scalar:
    """Resolve a plain scalar as kubectl and CloudFormation do, by YAML 1.1."""
    if text in _YES or text in _NO:
        return text in _YES
    octal = _OCTAL.fullmatch(text) and len(text) < _LONGEST_INTEGER
    return int(text, 8) if octal else scalar(text)


def odd_sign(text: str) -> str | None:
    """Say what to do about a sign that looks like another one, or a place that nobody filled in."""
    for sign in text:
        kind, code = unicodedata.category(sign), f"U+{ord(sign):04X}"
        if sign in _QUOTES:
            return f"write straight quotes, ' or \", in place of {sign} ({code})"
        if kind == "Cf":
            return f"remove the sign {code}, which nobody sees"
        if kind == "Zs" and sign != " ":
            return f"write plain spaces in place of the no-break ones ({code})"
        if kind == "Pd" and sign != "-":
            return f"write - in place of {sign} ({code})"
    left = _PLACEHOLDER.search(text)
    return f"write the value in place of {left.group()}: nothing fills it in" if left else None


def odd_part(text: str) -> tuple[str, str] | None:
    """Return what is odd in a path and what to do, or None."""
    if _UPWARDS.search(text):
        return "a part '..', which leads out of its folder", _REMEDY
    root = next((each for each in _ROOTS if text.startswith(each)), None)
    if root is None:
        return None
    if not text.isprintable():
        return "a character that is not seen", "type it anew, in letters, digits and -_./"
    parts = text.removeprefix(root).split("/")
    # A slash at the end stands for what is in a folder.
    if "." in parts or "" in parts[:-1]:
        return "a part that is '.' or empty", _REMEDY
    return None
